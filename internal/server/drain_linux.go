package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuseConnections has the kernel ignore requests for new connections on a socket that listens or will listen. It
// demands that packets arrive with a TTL (a hop limit in IPv6) of 255, and systems send 64 or 128; every user may set that,
// whereas since Linux 6.18 only root may attach a filter. Established connections can still be accepted before the
// listener is closed, which resets those that wait in its queue. A client whose request is ignored sends it again after
// a second, is refused by the closed port, and knows that nothing was sent: nginx then sends even a POST to the next process.
func refuseConnections(raw syscall.RawConn) error { return setLeastTTL(raw, 255) }

// serveConnection lifts what a connection inherited from a listener of [refuseConnections]: its handshake had begun before
// the listener refused new ones, and ended after it. What the kernel ignored in between is sent again.
func serveConnection(c net.Conn) {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = setLeastTTL(raw, 0) // fails only for a connection that has ended
	}
}

func setLeastTTL(raw syscall.RawConn, ttl int) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		s := int(fd)
		domain, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_DOMAIN)
		failed = errors.Join(err, unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_MINTTL, ttl)) // IPv4, also on a socket of both
		if domain == unix.AF_INET6 {
			failed = errors.Join(failed, unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, ttl))
		}
	})
	return errors.Join(err, failed)
}
