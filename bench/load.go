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
	addr  string
	lanes [][]message // of each connection, sent in turn
	want  []byte      // stands in every body that is a success
	limit int         // requests of a connection in one slice, 0 = as many as it can
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
	fault    error                   // the first
}

func newSlice(window time.Duration) *slice {
	const digits = 2 // a value is known to 1 %
	return &slice{window: window, latency: hdrhistogram.New(1, time.Hour.Microseconds(), digits)}
}

func (s *slice) add(latency time.Duration) {
	_ = s.latency.RecordValue(min(latency, time.Hour).Microseconds()) // an hour is in range
}

func (s *slice) rate() float64 { return float64(s.done) / s.window.Seconds() }

// number writes the digits of the id: the count of the connection, then the connection, so that ids ascend with time.
func (m message) number(count uint64, lane int) {
	if m.id == 0 {
		return
	}
	var b [8]byte
	for i, v := 5, count; i >= 0; i, v = i-1, v>>8 {
		b[i] = byte(v)
	}
	b[6], b[7] = byte(lane>>8), byte(lane)
	hex.Encode(m.raw[m.id:m.id+16], b[:])
}

// run sends for a warm-up that is not measured, and then for the length of the window. Every request that was begun is
// waited for.
func (l *load) run(warm, window time.Duration) *slice {
	if l.sent == nil {
		l.sent = make([]uint64, len(l.lanes))
	}
	out := newSlice(window)
	conns := make([]*connection, len(l.lanes))
	for i := range conns {
		c, err := dial(l.addr, time.Now().Add(warm+window+time.Minute))
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
		out.done += p.done
		out.answered += p.answered
		out.size = max(out.size, p.size)
		out.latency.Merge(p.latency)
		if out.fault == nil {
			out.fault = p.fault
		}
	}
	return out
}

// stretch is the part of a slice that is measured, in nanoseconds since zero. What a lane may send is bounded for some
// loads: on a fast machine the warm-up is cut short by the first that has used a quarter of it, and the stretch by the first
// that has used it up.
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
	mine := l.lanes[lane]
	before := w.now()
	for n := 0; before < w.end.Load(); n++ {
		if l.limit > 0 && n == l.limit/4 && before < w.begin.Load() {
			lower(&w.begin, before)
		}
		if l.limit > 0 && n == l.limit {
			lower(&w.end, before)
			return
		}
		count := l.sent[lane]
		l.sent[lane]++
		m := mine[count%uint64(len(mine))]
		m.number(count, lane)
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

// exchange returns the body of a success, valid until the next exchange. Any other status, and a body without want, is an
// error.
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
		return nil, errors.New("an answer without Content-Length")
	}
	body, err := c.r.Peek(length) // where res.Body would read it
	if err != nil {
		return nil, fmt.Errorf("body of %d bytes: %w", length, err)
	}
	if _, err := c.r.Discard(length); err != nil {
		return nil, err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 || !bytes.Contains(body, want) {
		return nil, fmt.Errorf("answer %d: %.300s", res.StatusCode, body)
	}
	return body, nil
}
