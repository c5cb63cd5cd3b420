package server

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tollhq/toll/internal/must"
)

// TestListenerRefuses: the kernel ignores requests for new connections, and those that were begun can be accepted, also
// when their handshake ends after that.
// F22
func TestListenerRefuses(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			ln, err := Listen(t.Context(), address)
			must.Do(t, err)
			defer ln.Close()
			at := ln.Addr().String()
			raw := must.Get(ln.(syscall.Conn).SyscallConn())(t)
			dial := func() (net.Conn, error) { return net.DialTimeout("tcp", at, 300*time.Millisecond) }
			begin := func() net.Conn {
				t.Helper()
				c := must.Get(dial())(t)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			begun := begin()
			// The handshake of the next one ends with its first byte.
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 5) })
			must.Do(t, err)
			late := begin()
			must.Do(t, refuseConnections(raw))
			if c, err := dial(); !os.IsTimeout(err) {
				if err == nil {
					_ = c.Close()
				}
				t.Errorf("a new connection: %v, want a time-out", err)
			}
			s := &Server{}
			s.draining.Store(true)
			for i, c := range []net.Conn{begun, late} {
				send := func() {
					must.Get(c.Write([]byte("x")))(t)
				}
				send()
				accepted := must.Get(drained{ln, s}.Accept())(t)
				defer accepted.Close()
				for range 2 {
					_ = accepted.SetReadDeadline(time.Now().Add(5 * time.Second))
					if n, err := accepted.Read(make([]byte, 2)); n != 1 || err != nil {
						t.Fatalf("%d bytes of connection %d: %v", n, i, err)
					}
					send()
				}
			}
		})
	}
}
