package paidmcp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/paidmcp"
)

// TestT173_SlowReaderOfServer: a client that does not read a large answer loses its connection.
func TestT173_SlowReaderOfServer(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{Description: strings.Repeat("a", 32<<20)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(ctx, ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+ln.Addr().String()+"\r\n\r\n")
	for err == nil && time.Since(began) < time.Minute {
		time.Sleep(500 * time.Millisecond)
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err = c.Write([]byte("x")); err == nil {
			if _, err = c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
		}
	}
	if err == nil {
		t.Error("a reader who takes a byte at a time is still served")
	}
	stop()
	if err := <-served; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
