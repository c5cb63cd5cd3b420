package pace

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// from is a listener whose peers have the addresses that are given.
type from struct {
	net.Listener
	peers []string
}

type peer struct {
	net.Conn
	address net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.address }

func (f *from) Accept() (net.Conn, error) {
	if len(f.peers) == 0 {
		return nil, io.EOF
	}
	a, _ := net.Pipe()
	at := &net.TCPAddr{IP: net.ParseIP(f.peers[0]), Port: 1}
	f.peers = f.peers[1:]
	return peer{a, at}, nil
}

func TestT173_ManyConnections(t *testing.T) {
	next := func(l net.Listener) string {
		c, err := l.Accept()
		if err != nil {
			return err.Error()
		}
		return c.RemoteAddr().(*net.TCPAddr).IP.String()
	}
	l := Limit(&from{peers: []string{
		"203.0.113.9", "203.0.113.9", "203.0.113.9", "203.0.113.10",
		"2001:db8::1", "2001:db8::2", "2001:db8:0:0:1::3", "2001:db8:0:1::4", "127.0.0.1", "127.0.0.1", "10.0.0.1", "127.0.0.1", "203.0.113.11",
	}}, 9, 2)
	var first net.Conn
	for _, want := range []string{
		"203.0.113.9", "203.0.113.9", "203.0.113.10", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::4", "127.0.0.1", "127.0.0.1", "10.0.0.1", "EOF",
	} {
		if got := next(l); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	// What closes makes room, once.
	inner := &from{peers: []string{"203.0.113.9"}}
	l = Limit(inner, 1, 1)
	first, _ = l.Accept()
	_, _ = first.Close(), first.Close()
	inner.peers = []string{"203.0.113.9", "203.0.113.10"}
	if got := next(l); got != "203.0.113.9" {
		t.Error(got)
	}
	if got := next(l); got != "EOF" {
		t.Error(got)
	}
}

// TestT173_IdleConnectionsMakeRoom: at the bound the connection that is idle for longest is closed, at the bound of a source one of this
// source. Busy ones stay.
func TestT173_IdleConnectionsMakeRoom(t *testing.T) {
	const a, b, c = "203.0.113.9", "203.0.113.10", "10.0.0.1"
	inner := &from{}
	l := Limit(inner, 5, 3)
	open := func(address string, state http.ConnState) net.Conn {
		t.Helper()
		inner.peers = []string{address}
		conn, err := l.Accept()
		if err != nil {
			return nil
		}
		ConnState(conn, http.StateNew)
		ConnState(conn, state)
		return conn
	}
	closed := func(conn net.Conn) bool {
		_ = conn.SetReadDeadline(time.Now())
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, io.ErrClosedPipe)
	}
	all := []net.Conn{open(a, http.StateActive), open(a, http.StateIdle), open(a, http.StateIdle), open(b, http.StateActive), open(b, http.StateIdle)}
	states := func(what string, want ...bool) {
		t.Helper()
		for i, conn := range all {
			if closed(conn) != want[i] {
				t.Errorf("%s: connection %d is closed: %v", what, i, !want[i])
			}
		}
	}
	ConnState(all[1], http.StateActive)
	ConnState(all[1], http.StateIdle) // after the others
	all = append(all, open(c, http.StateActive))
	states("at the bound", false, false, true, false, false, false)
	all = append(all, open(a, http.StateActive), open(a, http.StateActive)) // b has the longest idle one, and then a is at its bound
	states("of a source", false, true, true, false, true, false, false, false)
	if open(a, http.StateActive) != nil || open(b, http.StateActive) != nil {
		t.Error("a busy connection gave way")
	}
	_ = all[7].Close()
	ConnState(all[7], http.StateClosed)
	if open(b, http.StateActive) == nil || open(b, http.StateActive) != nil {
		t.Error("a connection that was closed makes room once")
	}
	states("at the end", false, true, true, false, true, false, false, true)
}

// TestT173_SlowestReaderMakesRoom: when too much waits to be read, the slowest loses its connection, and others are served.
func TestT173_SlowestReaderMakesRoom(t *testing.T) {
	u := new(unread)
	open := func() (server *conn, reader net.Conn) {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		return &conn{Conn: a, patience: time.Minute, minRate: MinRate, unread: u}, b
	}
	write := func(c *conn, n int) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, n))
			ended <- err
		}()
		return ended
	}
	slow, _ := open()
	fast, reader := open()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	ended := write(slow, MaxUnread-(1<<20))
	time.Sleep(unreadTime + 100*time.Millisecond)
	if err := <-write(fast, 2<<20); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the slowest reader keeps its connection")
	}
	// Two that are slow from the beginning are looked at later.
	one, _ := open()
	two, _ := open()
	first, second := write(one, MaxUnread/2), write(two, MaxUnread/2+1)
	select {
	case <-first:
	case <-second:
	case <-time.After(10 * time.Second):
		t.Error("both keep their connections")
	}
	if u.bytes > MaxUnread {
		t.Error(u.bytes)
	}
}
