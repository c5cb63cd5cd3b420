package pace

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
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

// T173
func TestManyConnections(t *testing.T) {
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

// TestIdleConnectionsMakeRoom: at the bound the connection that is idle for longest is closed, at the bound of a source one of this
// source. Busy ones stay.
// T173
func TestIdleConnectionsMakeRoom(t *testing.T) {
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

// TestSlowestReaderMakesRoom: when too much waits to be read, the slowest loses its connection, and others are served.
// T173
func TestSlowestReaderMakesRoom(t *testing.T) {
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
	must.Check(t, <-write(fast, 2<<20))
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

// TestUnreadGivenBack: however a large write ends, what waited for its reader counts no more.
// T173
func TestUnreadGivenBack(t *testing.T) {
	u := new(unread)
	ends := map[string]func(c *conn, reader net.Conn){
		"it was read":     func(_ *conn, reader net.Conn) { _, _ = io.Copy(io.Discard, reader) },
		"the reader left": func(_ *conn, reader net.Conn) { _ = reader.Close() },
		"it was closed":   func(c *conn, _ net.Conn) { _ = c.Close() },
		"its time ended":  func(c *conn, _ net.Conn) { _ = c.SetDeadline(time.Now()) },
	}
	for range 2 {
		for name, end := range ends {
			a, b := net.Pipe()
			c := &conn{Conn: a, patience: time.Minute, minRate: MinRate, unread: u}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = c.Write(make([]byte, 1<<20))
				_ = c.Close()
			}()
			waiting := func() int {
				u.mu.Lock()
				defer u.mu.Unlock()
				return u.bytes
			}
			for waiting() == 0 {
				time.Sleep(time.Millisecond)
			}
			end(c, b)
			<-ended
			if n := waiting(); n != 0 || len(u.writes) != 0 {
				t.Errorf("%s: %d bytes of %d writes wait", name, n, len(u.writes))
			}
			_ = b.Close()
		}
	}
}

// TestPlacesGivenBack: a server fills its places, ends each of them in another way, and fills them again.
// T173
func TestPlacesGivenBack(t *testing.T) {
	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	const most = 3
	limit := Limit(inner, most, most).(*limited)
	arrived := make(chan struct{})
	s := &http.Server{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ConnState: ConnState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			switch r.URL.Path {
			case "/panic":
				panic("a fault of a handler")
			case "/canceled":
				<-r.Context().Done()
			case "/hijacked":
				c, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					_ = c.Close()
				}
			case "/error":
				w.Header().Set("Connection", "close")
				w.WriteHeader(http.StatusInternalServerError)
			}
		}),
	}
	go func() { _ = s.Serve(limit) }()
	t.Cleanup(func() { _ = s.Close() })
	places := func() int {
		limit.mu.Lock()
		defer limit.mu.Unlock()
		return limit.all
	}
	for _, path := range []string{"/panic", "/canceled", "/hijacked", "/error", "/read"} {
		for range 2 {
			var all []net.Conn
			for range most {
				c := must.Get(net.Dial("tcp", inner.Addr().String()))(t)
				all = append(all, c)
				must.Get(io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"))(t)
				select {
				case <-arrived:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: no place for request %d", path, len(all))
				}
			}
			for _, c := range all {
				_ = c.Close()
			}
			for end := time.Now().Add(10 * time.Second); places() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: %d places are taken", path, places())
				}
			}
		}
	}
	if len(limit.of) != 0 || limit.idle.Len() != 0 {
		t.Errorf("%d sources and %d idle connections are left", len(limit.of), limit.idle.Len())
	}
}
