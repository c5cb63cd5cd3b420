package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxUnread bounds the large writes that wait for their readers, in bytes, over all connections of a listener. Above it, the
	// connection of the slowest reader is closed.
	MaxUnread = 128 << 20
	// largeWrite is the size in bytes above which a write is large. The number of connections bounds smaller writes.
	largeWrite = 64 << 10
	// unreadTime is the age after which a write may be cut to free memory.
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

// begin counts a large write of n bytes until end.
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

// makeRoom closes the slowest writes above [MaxUnread] that are older than unreadTime. If only younger writes remain, it retries.
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
