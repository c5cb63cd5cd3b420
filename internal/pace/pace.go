// Package pace protects a server from slow peers. [Body] and [Listen] require a minimum average rate after a grace period; only
// time in which the server waits for the peer counts, so event streams may pause. [Limit] bounds the number of connections.
package pace

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Patience is the default grace period in which a peer may be slow before the minimum rate applies.
const Patience = 10 * time.Second

// MinRate is the default minimum rate, in bytes per second.
const MinRate = 16 << 10

// Time returns the time that n bytes may take: patience plus the time for n bytes at minRate bytes per second.
func Time(patience time.Duration, n, minRate int64) time.Duration {
	return patience + share(n, minRate)
}

// share returns the time for n bytes at the minimum rate.
func share(n, minRate int64) time.Duration {
	return time.Duration(float64(n) / float64(minRate) * float64(time.Second))
}

// Body sets the read deadline for a request body of at most most bytes, even if its length is unknown. net/http clears the deadline
// at the end of the body, and keeps it for an unread body.
func Body(w http.ResponseWriter, r *http.Request, most int64, patience time.Duration, minRate int64) {
	if r.ContentLength == 0 {
		return
	}
	if r.ContentLength > 0 {
		most = min(most, r.ContentLength)
	}
	// A connection that does not support deadlines must be protected by other means.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(Time(patience, most, minRate)))
}

// Listen returns a listener whose connections fail a write to a slow reader. It also bounds unread data, see [MaxUnread].
func Listen(l net.Listener, patience time.Duration, minRate int64) net.Listener {
	return listener{l, patience, minRate, new(unread)}
}

type listener struct {
	net.Listener
	patience time.Duration
	minRate  int64
	unread   *unread
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, patience: l.patience, minRate: l.minRate, unread: l.unread}, nil
}

// shortWrite is the largest write, in bytes, that may reuse a recent deadline. Most responses are no longer than this, and
// setting a deadline takes time.
const shortWrite = 4 << 10

type conn struct {
	net.Conn
	patience time.Duration
	minRate  int64
	unread   *unread // nil if writes are not counted

	mu    sync.Mutex
	limit time.Time     // write deadline set by the server, or zero
	armed time.Time     // write deadline set on the connection, or zero
	late  time.Duration // time by which the reader is behind the minimum rate
}

// Write implements net.Conn. It writes in pieces of one second at the minimum rate, so that it detects a stopped reader early.
// Calls must not overlap, as in net/http.
func (c *conn) Write(p []byte) (n int, err error) {
	var w *pending
	if c.unread != nil && len(p) > largeWrite {
		w = c.unread.begin(c, len(p))
		defer c.unread.end(w)
	}
	for err == nil {
		var m int
		m, err = c.write(p[n : n+min(len(p)-n, int(c.minRate))])
		if n += m; n == len(p) {
			break
		}
		if w != nil {
			w.written.Store(int64(n))
		}
	}
	return n, err
}

func (c *conn) write(p []byte) (int, error) {
	c.mu.Lock()
	began := time.Now()
	due := began.Add(Time(c.patience-c.late, int64(len(p)), c.minRate))
	if !c.limit.IsZero() && c.limit.Before(due) {
		due = c.limit
	}
	if early := due.Sub(c.armed); len(p) > shortWrite || c.late > 0 || early < 0 || early > c.patience/4 {
		c.armed = due
		_ = c.Conn.SetWriteDeadline(due)
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	took := time.Since(began)
	c.mu.Lock()
	c.late = max(0, c.late+took-share(int64(n), c.minRate))
	c.mu.Unlock()
	return n, err
}

// SetWriteDeadline implements net.Conn. An earlier deadline applies at once, a later deadline from the next write.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = t
	if !c.armed.IsZero() && t.After(c.armed) {
		return nil
	}
	c.armed = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit, c.armed = t, t
	return c.Conn.SetDeadline(t)
}

// CloseWrite closes the writing side. net/http calls it before Close, as for a TCP connection.
func (c *conn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}
