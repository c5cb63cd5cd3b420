package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pace"
)

// Callers who send or read a byte now and then lose their connection in time, and others hardly notice them. The times of
// the service are lengthened and shortened for this.
// T173
func TestSlowClients(t *testing.T) {
	s := newStack(t)
	serve := func(patience time.Duration) (address string) {
		t.Helper()
		deps := s.built
		deps.Policy.BodyTimeout = patience
		h := api.NewServer(api.New(deps))
		if h.ReadHeaderTimeout > 10*time.Second || h.WriteTimeout == 0 || h.IdleTimeout == 0 {
			t.Errorf("times of the server: %v, %v, %v", h.ReadHeaderTimeout, h.WriteTimeout, h.IdleTimeout)
		}
		h.ReadHeaderTimeout = patience
		h.WriteTimeout = max(h.WriteTimeout, patience) // on a busy machine the first crowd stays longer
		ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		go func() { _ = h.Serve(api.Listen(pace.Listen(narrow{ln}, patience, pace.MinRate))) }()
		t.Cleanup(func() { _ = h.Close() })
		return ln.Addr().String()
	}

	// Who pays is served while the slow ones are there, all of them, to the end.
	address := serve(time.Hour)
	alone := paidTimes(t, s, address)
	c := s.crowd(address)
	crowded := paidTimes(t, s, address)
	if n := c.lost.Load(); n > 0 {
		t.Errorf("%d connections ended before their time", n)
	}
	c.leave()
	c.gone.Wait()
	if median := func(d []time.Duration) time.Duration { return d[len(d)/2] }; median(crowded) > 2*median(alone)+300*time.Millisecond {
		t.Errorf("half of the calls took %v at most, alone %v", median(crowded), median(alone))
	}

	// The time for a whole request would end them, too, after two minutes.
	c = s.crowd(serve(500 * time.Millisecond))
	defer time.AfterFunc(100*time.Second, c.leave).Stop()
	c.gone.Wait()
	if n := int(c.lost.Load()); n != c.size {
		t.Errorf("%d of %d are still there", c.size-n, c.size)
	}
}

// narrow lets few bytes of an answer be on their way.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

// crowd are slow clients.
type crowd struct {
	size  int
	lost  atomic.Int32 // connections that the service has ended
	gone  sync.WaitGroup
	leave func() // has those go that still have a connection
}

// crowd returns when a hundred clients of each kind have sent what they begin with.
func (s *stack) crowd(address string) *crowd {
	c := new(crowd)
	end := make(chan struct{})
	c.leave = sync.OnceFunc(func() { close(end) })
	var arrived sync.WaitGroup
	slow := func(name string, begin string, step func(c net.Conn) error) {
		for range 100 {
			c.size++
			arrived.Add(1)
			c.gone.Go(func() {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					arrived.Done()
					s.t.Errorf("%s: %v", name, err)
					return
				}
				defer conn.Close()
				must.Do(s.t, conn.(*net.TCPConn).SetReadBuffer(4096))
				_, err = io.WriteString(conn, begin)
				arrived.Done()
				for err == nil && step(conn) == nil {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-end:
						return
					}
				}
				c.lost.Add(1)
			})
		}
	}
	// What has ended is seen by a read that finds the end, or by a write that fails.
	drip := func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 512)); err != nil && !isTimeout(err) {
			return err
		}
		_, err := c.Write([]byte("x"))
		return err
	}
	slow("head", "GET /health HTTP/1.1\r\n", drip)
	slow("body", "POST /api/v1/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.b1.key+"\r\nContent-Length: 5000\r\n\r\n{", drip)
	slow("body that nobody reads", "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{", drip)
	const big = "GET /docs/errors HTTP/1.1\r\nHost: x\r\n\r\n"
	slow("reader", strings.Repeat(big, 30), func(c net.Conn) error {
		_, err := io.WriteString(c, big)
		return err
	})
	arrived.Wait()
	return c
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// paidTimes makes calls with an API key one after the other and returns how long each took, the shortest first.
func paidTimes(t *testing.T, s *stack, address string) []time.Duration {
	t.Helper()
	c := must.Get(net.Dial("tcp", address))(t)
	defer c.Close()
	in := bufio.NewReader(c)
	var times []time.Duration
	for range 200 {
		began := time.Now()
		must.Do(t, c.SetDeadline(began.Add(long)))
		must.Get(fmt.Fprintf(c, "GET /api/v1/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.b1.key))(t)
		res := must.Get(http.ReadResponse(in, nil))(t)
		must.Get(io.Copy(io.Discard, res.Body))(t)
		times = append(times, time.Since(began))
		time.Sleep(2 * time.Millisecond)
	}
	slices.Sort(times)
	return times
}
