package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxUnread bounds the large writes that wait for their readers, in bytes, over all connections of a listener. Above it the
	// slowest reader loses its connection.
	MaxUnread = 128 << 20
	// largeWrite is the size of a large write. Smaller ones are bounded by the number of connections.
	largeWrite = 64 << 10
	// unreadTime is how long a write lasts before it can be cut for others.
	unreadTime = time.Second
)

// unread tracks the large writes that wait for their readers.
type unread struct {
	mu     sync.Mutex
	bytes  int
	writes map[*pending]struct{}
	timer  *time.Timer
}

// pending is one large write.
type pending struct {
	conn    *conn
	bytes   int
	written atomic.Int64
	since   time.Time
}

// begin counts a write until end.
func (u *unread) begin(c *conn, n int) *pending {
	w := &pending{conn: c, bytes: n, since: time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = make(map[*pending]struct{})
	}
	u.writes[w] = struct{}{}
	u.bytes += n
	u.makeRoom()
	return w
}

func (u *unread) end(w *pending) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(w)
}

func (u *unread) forget(w *pending) {
	if _, waits := u.writes[w]; waits {
		delete(u.writes, w)
		u.bytes -= w.bytes
	}
}

// makeRoom cuts the slowest of the long writes. While there is too much data and no such write, it tries again.
func (u *unread) makeRoom() {
	for u.bytes > MaxUnread {
		var slowest *pending
		var least float64
		for w := range u.writes {
			age := time.Since(w.since)
			if rate := float64(w.written.Load()) / age.Seconds(); age > unreadTime && (slowest == nil || rate < least) {
				slowest, least = w, rate
			}
		}
		if slowest == nil {
			if u.timer == nil {
				u.timer = time.AfterFunc(unreadTime/2, func() {
					u.mu.Lock()
					defer u.mu.Unlock()
					u.timer = nil
					u.makeRoom()
				})
			}
			return
		}
		u.forget(slowest)
		_ = slowest.conn.Conn.Close() // ends its write
	}
}
