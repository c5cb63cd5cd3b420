package pace

import (
	"net"
	"net/netip"
	"sync"
)

// Usual bounds of connections: in all, and of one address or IPv6 network of 64 bits.
const (
	MaxConns   = 2_000
	MaxConnsOf = 100
)

// Limit returns a listener that closes connections above a number at once, in all and of one source. Addresses of this machine
// and of private networks count in all only: they may be proxies.
func Limit(l net.Listener, most, each int) net.Listener {
	return &limited{Listener: l, most: most, each: each, of: make(map[netip.Prefix]int)}
}

type limited struct {
	net.Listener
	most, each int

	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int // connections by source
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := sourceOf(c)
		if l.enter(source) {
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(source) })}, nil
		}
		_ = c.Close() // nothing was said yet
	}
}

// sourceOf returns whose connection it is, zero when that may be a proxy.
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

func (l *limited) enter(source netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || source.IsValid() && l.of[source] >= l.each {
		return false
	}
	l.all++
	if source.IsValid() {
		l.of[source]++
	}
	return true
}

func (l *limited) leave(source netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if !source.IsValid() {
		return
	}
	if l.of[source]--; l.of[source] == 0 {
		delete(l.of, source)
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite lets net/http end its side first, as it does on plain TCP.
func (c *limitedConn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return net.ErrClosed
}
