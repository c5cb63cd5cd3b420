package server

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestF22_ListenerRefuses: the kernel ignores requests for new connections, and those that were begun can be accepted.
func TestF22_ListenerRefuses(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial := func() (net.Conn, error) { return net.DialTimeout("tcp", ln.Addr().String(), 300*time.Millisecond) }
	begun, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := refuseConnections(raw); err != nil {
		t.Fatal(err)
	}
	if c, err := dial(); !os.IsTimeout(err) {
		if err == nil {
			_ = c.Close()
		}
		t.Errorf("a new connection: %v, want a time-out", err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if _, err := begun.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := accepted.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes of a connection that was begun: %v", n, err)
	}
}
