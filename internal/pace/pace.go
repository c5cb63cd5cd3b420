// Package pace closes connections of peers that send or read too slowly: after some seconds they must keep up a minimum average
// rate. Only time in which the server waits for the peer counts, so event streams may last and pause.
package pace

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Patience is how long a peer may be slow before the minimum rate applies.
const Patience = 10 * time.Second

// MinRate is the usual minimum rate in bytes a second.
const MinRate = 16 << 10

// Time returns how long n bytes may take.
func Time(patience time.Duration, n, minRate int64) time.Duration {
	return patience + share(n, minRate)
}

// share is the time for n bytes at the minimum rate.
func share(n, minRate int64) time.Duration {
	return time.Duration(float64(n) / float64(minRate) * float64(time.Second))
}

// Body sets the read deadline for a request body of at most most bytes, also of unknown length. net/http lifts it at the end of
// the body, and keeps it for an unread body.
func Body(w http.ResponseWriter, r *http.Request, most int64, patience time.Duration, minRate int64) {
	if r.ContentLength == 0 {
		return
	}
	if r.ContentLength > 0 {
		most = min(most, r.ContentLength)
	}
	// A connection without deadlines has other guards.
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

// shortWrite is a write, in bytes, that may reuse a recent deadline. Most responses are as short, and setting a deadline takes
// time.
const shortWrite = 4 << 10

type conn struct {
	net.Conn
	patience time.Duration
	minRate  int64
	unread   *unread // nil: not counted

	mu    sync.Mutex
	limit time.Time     // write deadline of the server, zero for none
	armed time.Time     // write deadline of the connection, zero for none
	late  time.Duration // how far the reader is behind the minimum rate
}

// Write implements net.Conn. It writes pieces of one second at the minimum rate, so that it soon notices a stopped reader.
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

// SetWriteDeadline implements net.Conn. A later deadline applies from the next write on.
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

// CloseWrite lets net/http close its side first, as with TCP.
func (c *conn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}
