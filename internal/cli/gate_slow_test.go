package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

// Callers of the gate who read or send a byte now and then lose their connection; a stream that is read lasts, however little comes.
// T173
func TestSlowCallersOfGate(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 32<<20)) })
	mux.HandleFunc("/body", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 4 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Second)
		}
	})
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		must.Check(t, serveGate(ctx, ln, nil, mux, paid.NewQueue()))
	})
	defer serving.Wait()
	defer stop()

	var callers sync.WaitGroup
	call := func(what, request string, step func(c net.Conn) error) {
		callers.Go(func() {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			began := time.Now()
			for _, err = io.WriteString(c, request); err == nil; err = step(c) {
				if time.Since(began) > time.Minute {
					t.Errorf("%s is still served", what)
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
		})
	}
	trickle := func(c net.Conn) error { // shows also when the server has gone
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !strings.Contains(err.Error(), "timeout") {
			return err
		}
		_, err := c.Write([]byte("x"))
		return err
	}
	call("a reader who takes a byte at a time", "GET /big HTTP/1.1\r\nHost: a\r\n\r\n", trickle)
	call("a body that trickles", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n", trickle)
	call("chunks that trickle", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", func(c net.Conn) error {
		_, err := io.WriteString(c, "1\r\nx\r\n")
		if err == nil {
			err = trickle(c)
		}
		return err
	})
	callers.Go(func() {
		res, err := http.Get("http://" + ln.Addr().String() + "/stream")
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		n := 0
		in := bufio.NewScanner(res.Body)
		for in.Scan() {
			if in.Text() != "" {
				n++
			}
		}
		if n != 4 || in.Err() != nil {
			t.Errorf("%d events of a stream, %v", n, in.Err())
		}
	})
	callers.Wait()
}
