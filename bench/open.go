package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// openConnections are enough that in an open loop a request hardly ever waits for one, below the service's maximum.
	openConnections = 512
	// openTimeout is when the caller of an open loop takes a request for failed.
	openTimeout = 10 * time.Second
)

// open sends at a fixed rate, however long answers take. Latency counts from the moment at which a request was to be sent, so
// that a stall shows in every request that it delays. Refusals and failures are counted and not measured.
func (l *load) open(perSec float64, warm, window time.Duration) *slice {
	if perSec <= 0 {
		return failedSlice(errors.New("the run that sends the next request after each response gave no rate to send at"))
	}
	out := newSlice(window)
	if l.sent == nil {
		l.sent = make([]uint64, len(l.lanes))
	}
	var next atomic.Int64
	conns, parts := make([]*connection, len(l.lanes)), make([]*slice, len(l.lanes))
	if err := together(len(conns), func(i int) (err error) {
		conns[i], err = dial(l.addr, time.Time{})
		return err
	}); err != nil {
		return failedSlice(err)
	}
	var wg sync.WaitGroup
	zero := time.Now()
	due := func() (time.Time, bool) {
		at := time.Duration(float64(next.Add(1)-1) / perSec * float64(time.Second))
		return zero.Add(at), at < warm+window
	}
	for lane, c := range conns {
		parts[lane] = newSlice(window)
		wg.Go(func() { l.workOpen(lane, c, due, zero.Add(warm), parts[lane]) })
	}
	wg.Wait()
	for _, p := range parts {
		out.merge(p)
	}
	return out
}

func (l *load) workOpen(lane int, c *connection, due func() (at time.Time, ok bool), begin time.Time, out *slice) {
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	for {
		at, ok := due()
		if !ok {
			return
		}
		time.Sleep(time.Until(at))
		if c == nil {
			var err error
			if c, err = dial(l.addr, time.Time{}); err != nil {
				c = nil
				out.failed++
				continue
			}
		}
		m := l.next(lane)
		_ = c.SetDeadline(time.Now().Add(openTimeout)) // a connection that is closed fails below
		body, err := c.exchange(m.raw, l.want)
		refused, isRefused := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			out.size = len(body)
			out.answered++
			if !at.Before(begin) {
				out.done++
				out.add(time.Since(at))
			}
		case isRefused && refused.retryAfter:
			out.refused++
		case isRefused:
			out.fault = err
			return
		default:
			out.failed++
			c.close()
			c = nil
		}
	}
}
