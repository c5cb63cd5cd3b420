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
	"testing"
	"time"

	"github.com/tollhq/toll/internal/api"
)

// Callers who send or read a byte now and then lose their connection in time, and others hardly notice them. The times of
// the service are shortened for this.
func TestT173_SlowClients(t *testing.T) {
	s := newStack(t)
	deps := s.built
	deps.Patience = 500 * time.Millisecond
	h := api.NewServer(api.New(deps))
	if h.ReadHeaderTimeout > 10*time.Second || h.WriteTimeout == 0 || h.IdleTimeout == 0 {
		t.Errorf("times of the server: %v, %v, %v", h.ReadHeaderTimeout, h.WriteTimeout, h.IdleTimeout)
	}
	h.ReadHeaderTimeout = 500 * time.Millisecond
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = h.Serve(api.Listen(ln)) }()
	t.Cleanup(func() { _ = h.Close() })
	address := ln.Addr().String()
	authorized := "Host: x\r\nAuthorization: Bearer " + s.b1.key + "\r\n"

	alone := paidTimes(t, s, address)
	const each = 100
	var wait sync.WaitGroup
	slow := func(name string, open func(c net.Conn) error, step func(c net.Conn) error) {
		for range each {
			wait.Go(func() {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				defer c.Close()
				began := time.Now()
				for err = open(c); err == nil && time.Since(began) < 8*time.Second; err = step(c) {
					time.Sleep(50 * time.Millisecond)
				}
				if took := time.Since(began); took >= 8*time.Second {
					t.Errorf("%s: still there after %v", name, took)
				}
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
	slow("head", func(c net.Conn) error { _, err := io.WriteString(c, "GET /health HTTP/1.1\r\n"); return err }, drip)
	slow("body", func(c net.Conn) error {
		_, err := io.WriteString(c, "POST /api/v1/protocol/plans HTTP/1.1\r\n"+authorized+"Content-Length: 5000\r\n\r\n{")
		return err
	}, drip)
	slow("body that nobody reads", func(c net.Conn) error {
		_, err := io.WriteString(c, "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{")
		return err
	}, drip)
	slow("reader", func(c net.Conn) error {
		must(t, c.(*net.TCPConn).SetReadBuffer(4096))
		_, err := io.WriteString(c, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 30))
		return err
	}, func(c net.Conn) error {
		_, err := io.WriteString(c, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
		return err
	})
	time.Sleep(300 * time.Millisecond) // until all are there
	crowded := paidTimes(t, s, address)
	wait.Wait()
	if p := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }; p(crowded) > 2*p(alone)+300*time.Millisecond {
		t.Errorf("99 of 100 calls took %v at most, alone %v", p(crowded), p(alone))
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// paidTimes makes calls with an API key one after the other and returns how long each took, the shortest first.
func paidTimes(t *testing.T, s *stack, address string) []time.Duration {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	defer c.Close()
	in := bufio.NewReader(c)
	var times []time.Duration
	for range 200 {
		began := time.Now()
		_, err := fmt.Fprintf(c, "GET /api/v1/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.b1.key)
		must(t, err)
		res, err := http.ReadResponse(in, nil)
		must(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(t, err)
		times = append(times, time.Since(began))
		time.Sleep(2 * time.Millisecond)
	}
	slices.Sort(times)
	return times
}
