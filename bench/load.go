package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// message is a request, ready to be written. A connection writes its own messages only, so it may change their ids.
type message struct {
	raw []byte
	id  int // where the 16 digits of the request id stand, 0 = nowhere
}

// load is what the connections send.
type load struct {
	number int // among the loads of a run, which settle for the same subscribers
	addr   string
	others []string    // addresses of more processes, which the connections use in turn
	lanes  [][]message // of each connection, sent in turn
	want   []byte      // stands in every body that is a success
	limit  int         // requests of a connection in one slice, 0 = as many as it can
	// seen gets the body of every success; it is valid until seen returns.
	seen func(lane int, body []byte)

	sent []uint64 // of each connection, over all slices
}

// slice is what one slice of time showed.
type slice struct {
	window   time.Duration           // that was measured
	done     int                     // in the window
	answered int                     // warm-up and stragglers included
	latency  *hdrhistogram.Histogram // microseconds
	size     int                     // of the body of an answer
	behind   int                     // settlements without their events at the end
	refused  int                     // by the service, which says when to try again
	failed   int                     // not answered in time
	bytes    growth                  // of the database, for each settlement
	fault    error                   // the first
}

func newSlice(window time.Duration) *slice {
	const digits = 2 // a value is known to 1 %
	return &slice{window: window, latency: hdrhistogram.New(1, time.Hour.Microseconds(), digits)}
}

func failedSlice(err error) *slice {
	s := newSlice(time.Second)
	s.fault = err
	return s
}

func (s *slice) add(latency time.Duration) {
	_ = s.latency.RecordValue(min(latency, time.Hour).Microseconds()) // an hour is in range
}

func (s *slice) merge(p *slice) {
	s.done, s.answered = s.done+p.done, s.answered+p.answered
	s.refused, s.failed = s.refused+p.refused, s.failed+p.failed
	s.size = max(s.size, p.size)
	s.latency.Merge(p.latency)
	if s.fault == nil {
		s.fault = p.fault
	}
}

func (s *slice) rate() float64 { return float64(s.done) / s.window.Seconds() }

// number writes the digits of the id: the count of the connection, so that ids ascend with time, the connection, and the load.
func (m message) number(count uint64, lane, load int) {
	if m.id == 0 {
		return
	}
	var b [8]byte
	for i, v := 4, count; i >= 0; i, v = i-1, v>>8 {
		b[i] = byte(v)
	}
	b[5], b[6], b[7] = byte(lane>>8), byte(lane), byte(load)
	hex.Encode(m.raw[m.id:m.id+16], b[:])
}

// run sends for a warm-up that is not measured, and then for the length of the window. Every request that was begun is waited for.
func (l *load) run(warm, window time.Duration) *slice {
	if l.sent == nil {
		l.sent = make([]uint64, len(l.lanes))
	}
	out := newSlice(window)
	conns := make([]*connection, len(l.lanes))
	for i := range conns {
		addr := l.addr
		if n := i % (1 + len(l.others)); n > 0 {
			addr = l.others[n-1]
		}
		c, err := dial(addr, time.Now().Add(warm+window+time.Minute))
		if err != nil {
			out.fault = errors.Join(out.fault, err)
			return out
		}
		defer c.close()
		conns[i] = c
	}
	var w stretch
	parts := make([]*slice, len(l.lanes))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range conns {
		parts[i] = newSlice(window)
		wg.Go(func() {
			<-start
			l.work(i, conns[i], &w, parts[i])
		})
	}
	w.zero = time.Now()
	w.begin.Store(int64(warm))
	w.end.Store(int64(warm + window))
	close(start)
	wg.Wait()
	out.window = time.Duration(w.end.Load() - w.begin.Load())
	for _, p := range parts {
		out.merge(p)
	}
	return out
}

// stretch is the part of a slice that is measured, in nanoseconds since zero. What a lane may send is bounded for some loads: on a fast
// machine the warm-up is cut short by the first that has used a quarter of it, and the stretch by the first that has used it up.
type stretch struct {
	zero       time.Time
	begin, end atomic.Int64
}

func (w *stretch) now() int64 { return int64(time.Since(w.zero)) }

func lower(v *atomic.Int64, to int64) {
	for old := v.Load(); to < old && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

func (l *load) work(lane int, c *connection, w *stretch, out *slice) {
	before := w.now()
	for n := 0; before < w.end.Load(); n++ {
		if l.limit > 0 && n == l.limit/4 && before < w.begin.Load() {
			lower(&w.begin, before)
		}
		if l.limit > 0 && n == l.limit {
			lower(&w.end, before)
			return
		}
		m := l.next(lane)
		body, err := c.exchange(m.raw, l.want)
		if err != nil {
			out.fault = err
			return
		}
		if l.seen != nil {
			l.seen(lane, body)
		}
		after := w.now()
		out.size = len(body)
		out.answered++
		if before >= w.begin.Load() && after <= w.end.Load() {
			out.done++
			out.add(time.Duration(after - before))
		}
		before = after
	}
}

// next is the next message of a connection, with an id of its own.
func (l *load) next(lane int) message {
	count, mine := l.sent[lane], l.lanes[lane]
	l.sent[lane]++
	m := mine[count%uint64(len(mine))]
	m.number(count, lane, l.number)
	return m
}

// once sends every message once, outside of what is measured.
func (l *load) once() error {
	var g errgroup.Group
	for _, mine := range l.lanes {
		g.Go(func() error {
			c, err := dial(l.addr, time.Now().Add(5*time.Minute))
			if err != nil {
				return err
			}
			defer c.close()
			for _, m := range mine {
				if _, err := c.exchange(m.raw, l.want); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// connection is HTTP/1.1 with keep-alive, without the goroutines and copies of a client: the generator shares its processors with
// the service.
type connection struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string, deadline time.Time) (*connection, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReaderSize(c, 32<<10)}, c.SetDeadline(deadline)
}

func (c *connection) close() { _ = c.Close() } // nothing is under way

// refusal is an answer that is no success.
type refusal struct {
	status     int
	body       string
	retryAfter bool // the service says when to try again
}

func (r *refusal) Error() string { return fmt.Sprintf("answer %d: %s", r.status, r.body) }

// exchange returns the body of a success, valid until the next exchange. Any other status, and a body without want, is a *refusal.
func (c *connection) exchange(raw, want []byte) ([]byte, error) {
	if _, err := c.Write(raw); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	length := int(res.ContentLength)
	if length < 0 {
		return nil, errors.New("a response has no Content-Length")
	}
	body, err := c.r.Peek(length) // where res.Body would read it
	if err != nil {
		return nil, fmt.Errorf("body of %d bytes: %w", length, err)
	}
	if _, err := c.r.Discard(length); err != nil {
		return nil, err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 || !bytes.Contains(body, want) {
		return nil, &refusal{res.StatusCode, fmt.Sprintf("%.300s", body),
			res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "",
		}
	}
	return body, nil
}
