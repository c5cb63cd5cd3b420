package api

import (
	"net/http"
	"sync"
	"time"

	"github.com/tollhq/toll"
)

const (
	// keptCalls is how many calls of a key are kept.
	keptCalls = 200
	// halfOfKeys bounds the keys whose calls are kept: twice as many, those that called last.
	halfOfKeys = 512
)

// recentCalls are the last calls of API keys in this process. They are in memory alone.
type recentCalls struct {
	mu         sync.Mutex
	young, old map[toll.Hash]*callRing // at most halfOfKeys each
}

// callRing has the last calls of one key.
type callRing struct {
	mu    sync.Mutex
	calls []recentCall
	next  int // the place of the next call, once all are taken
}

type recentCall struct {
	at, took    int64 // microseconds
	route       *route
	method      string // "" where there is no route
	code        toll.Code
	status      int
	correlation []byte // a copy in memory that the ring keeps: the header that the id came in can be large
}

// of returns the calls of a key, nil when there are none and none are to be added.
func (r *recentCalls) of(key toll.Hash, add bool) *callRing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ring := r.young[key]; ring != nil {
		return ring
	}
	ring := r.old[key]
	if ring == nil && !add {
		return nil
	}
	if ring == nil {
		ring = &callRing{}
	}
	if len(r.young) >= halfOfKeys || r.young == nil {
		r.old, r.young = r.young, make(map[toll.Hash]*callRing)
	}
	r.young[key] = ring
	return ring
}

func (r *callRing) add(c recentCall, correlation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) < keptCalls {
		c.correlation = []byte(correlation)
		r.calls = append(r.calls, c)
		return
	}
	c.correlation = append(r.calls[r.next].correlation[:0], correlation...)
	r.calls[r.next] = c
	r.next = (r.next + 1) % keptCalls
}

// list returns the calls, the last one first.
func (r *callRing) list() []toll.RecentCall {
	out := []toll.RecentCall{}
	if r == nil {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		c := &r.calls[(r.next+len(r.calls)-1-i)%len(r.calls)]
		call := toll.RecentCall{
			At: toll.At(time.UnixMicro(c.at).UTC()), Status: c.status, Code: c.code, DurationMicros: c.took, CorrelationID: string(c.correlation),
		}
		if c.route != nil {
			call.Operation, call.Method, call.Path = c.route.op, c.method, c.route.path
		}
		out = append(out, call)
	}
	return out
}

// remember keeps a call of an API key that has been answered.
func (c *call) remember() {
	if c.began.IsZero() || !c.known || c.answered == 0 && !c.written {
		return
	}
	if c.answered == 0 { // it was written in parts
		c.answered = http.StatusOK
	}
	took := time.Since(c.began)
	r := recentCall{
		at: c.h.now().Add(-took).UnixMicro(), took: took.Microseconds(), route: c.route, code: c.code, status: c.answered,
	}
	if c.route != nil {
		r.method = c.route.method
	}
	c.h.recent.of(c.caller.KeyID, true).add(r, c.correlation.ID)
}

// RecentCalls are the last calls of a key.
type RecentCalls struct {
	Calls []toll.RecentCall `json:"calls" doc:"The last one first, at most 200."`
	Since toll.Time         `json:"since" doc:"When this process started. It knows no call before, and none that another process answered."`
}

func (h *handler) recentCalls(c *call, id toll.Hash) (*RecentCalls, error) {
	if _, err := h.Auth.Key(c.context, c.caller.Address, id); err != nil {
		return nil, err
	}
	return &RecentCalls{Calls: h.recent.of(id, false).list(), Since: toll.At(h.started)}, nil
}
