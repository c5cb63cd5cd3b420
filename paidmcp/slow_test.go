package paidmcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestSlowReaderOfServer: a client that does not read a large answer loses its connection.
// T173
func TestSlowReaderOfServer(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{Description: strings.Repeat("a", 32<<20)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(ctx, ln) }()
	c := must.Get(net.Dial("tcp", ln.Addr().String()))(t)
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

// TestSilentBodies: a body that does not come ends its connection, also when the answer is a 401, a 404 or the like and
// nobody reads the body.
// T173
func TestSilentBodies(t *testing.T) {
	t.Cleanup(paidmcp.SetPatience(300 * time.Millisecond))
	h := host(t, service(t), paidmcp.ServerConfig{RequireSignIn: true})
	address := served(t, h)
	for name, head := range map[string]string{
		"before the 401":    "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n",
		"after the 401":     "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\n",
		"wrong type":        "POST /mcp HTTP/1.1\r\nHost: %s\r\n",
		"unknown path":      "POST /nowhere HTTP/1.1\r\nHost: %s\r\n",
		"another host":      "POST /mcp HTTP/1.1\r\nHost: other%s\r\n",
		"a registration":    "POST /register HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n",
		"a stream":          "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n",
		"the end of a head": "",
	} {
		t.Run(name, func(t *testing.T) {
			c := must.Get(net.Dial("tcp", address))(t)
			defer c.Close()
			request := "POST /mcp HTTP/1.1\r\n"
			if head != "" {
				request = fmt.Sprintf(head, address) + "Content-Length: 2000\r\n\r\n{"
			}
			must.Get(io.WriteString(c, request))(t)
			// An end within the time of a server without deadlines, which is none.
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
}
