package pace

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Default bounds for connections: in total, and per IPv4 address or IPv6 /64 network.
const (
	MaxConns   = 2_000
	MaxConnsOf = 100
)

const (
	// kept is the number of descriptors that [Descriptors] reserves for the database, files and outgoing calls.
	kept = 512
	// mostConns bounds the memory of connections if a system has no descriptor limit.
	mostConns = 65_536
)

// Descriptors returns the number of connections that a process may hold if each uses this many descriptors. It divides the limit
// of open files minus 512, or half the limit if that is more, at most 65,536.
func Descriptors(each int) int {
	open := openFiles()
	return min(max(open-kept, open/2), mostConns) / each
}

// Limit returns a listener that bounds connections: at most most in total, and each per source. A connection above a bound replaces
// the connection that [ConnState] has reported idle for longest; if all are busy, the new connection is closed. Local and private
// addresses may be proxies, so only the total bound applies to them.
func Limit(l net.Listener, most, each int) net.Listener {
	return &limited{Listener: l, most: most, each: each, of: make(map[netip.Prefix]*source)}
}

// ConnState reports idle connections to the listener of [Limit]. Set it in an [http.Server] whose outermost listener, except for
// TLS, comes from Limit.
func ConnState(c net.Conn, state http.ConnState) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if c, ok := c.(*limitedConn); ok {
		c.at.mark(c, state == http.StateNew || state == http.StateIdle)
	}
}

type limited struct {
	net.Listener
	most, each int

	mu   sync.Mutex
	all  int
	idle list.List // *limitedConn, longest idle first
	of   map[netip.Prefix]*source
}

// source counts the connections of one source. Possible proxies share the zero prefix.
type source struct {
	conns int
	idle  list.List
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		out := &limitedConn{Conn: c, at: l, from: sourceOf(c)}
		ended := l.enter(out)
		if ended != nil {
			_ = ended.Conn.Close() // it is idle, or new and above a bound
		}
		if ended != out {
			return out, nil
		}
	}
}

// sourceOf returns the source of a connection, zero for a possible proxy.
func sourceOf(c net.Conn) netip.Prefix {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	if mayBeProxy(ip) {
		return netip.Prefix{}
	}
	return network(ip)
}

// enter counts a connection. At a bound it returns the connection to close: the longest idle, or c itself if all are busy.
func (l *limited) enter(c *limitedConn) (ended *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[c.from]
	if of == nil {
		of = new(source)
	}
	full := &l.idle
	switch {
	case c.from.IsValid() && of.conns >= l.each:
		full = &of.idle
	case l.all < l.most:
		full = nil
	}
	if full != nil {
		oldest := full.Front()
		if oldest == nil {
			c.left = true
			return c
		}
		ended = oldest.Value.(*limitedConn)
		l.leave(ended)
	}
	l.all++
	of.conns++
	l.of[c.from] = of
	return ended
}

// leave removes a connection. The caller holds the lock.
func (l *limited) leave(c *limitedConn) {
	if c.left {
		return
	}
	l.setIdle(c, false)
	c.left = true
	l.all--
	of := l.of[c.from]
	if of.conns--; of.conns == 0 {
		delete(l.of, c.from)
	}
}

func (l *limited) mark(c *limitedConn, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setIdle(c, idle)
}

func (l *limited) setIdle(c *limitedConn, idle bool) {
	if c.left || idle == (c.inAll != nil) {
		return
	}
	of := l.of[c.from]
	if idle {
		c.inAll, c.inOf = l.idle.PushBack(c), of.idle.PushBack(c)
		return
	}
	l.idle.Remove(c.inAll)
	of.idle.Remove(c.inOf)
	c.inAll, c.inOf = nil, nil
}

type limitedConn struct {
	net.Conn
	at          *limited
	from        netip.Prefix
	left        bool
	inAll, inOf *list.Element // nil unless it is idle
}

func (c *limitedConn) Close() error {
	c.at.mu.Lock()
	c.at.leave(c)
	c.at.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the writing side. net/http calls it before Close, as for a TCP connection.
func (c *limitedConn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}
