package oauth

import (
	"context"
	"math"
	"net/http"
	"sync"
)

// slots bounds how many calls run at a time for each name, and how many more wait.
type slots struct {
	most, wait int
	mu         sync.Mutex
	names      map[string]*slot
}

// noBound lets any number wait.
const noBound = math.MaxInt / 2

type slot struct {
	taken chan struct{}
	calls int // that run or wait
}

func newSlots(most, wait int) *slots {
	return &slots{most: most, wait: wait, names: map[string]*slot{}}
}

// enter waits for a place of this name. The caller leaves it when it is done. Errors: errManyFetches when too many wait,
// errNoDocument when ctx ends first.
func (p *slots) enter(ctx context.Context, name string) (leave func(), err error) {
	p.mu.Lock()
	at := p.names[name]
	if at == nil {
		at = &slot{taken: make(chan struct{}, p.most)}
		p.names[name] = at
	}
	if at.calls >= p.most+p.wait {
		p.mu.Unlock()
		return nil, errManyFetches
	}
	at.calls++
	p.mu.Unlock()
	select {
	case at.taken <- struct{}{}:
		return func() {
			<-at.taken
			p.forget(name, at)
		}, nil
	case <-ctx.Done():
		p.forget(name, at)
		return nil, errNoDocument
	}
}

func (p *slots) forget(name string, at *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.calls--; at.calls == 0 {
		delete(p.names, name)
	}
}

type sourceKey struct{}

// From returns the context of a request with its source, for which the documents that it needs are fetched. Without it all
// requests are of one source.
func (o *OAuth) From(r *http.Request) context.Context {
	return context.WithValue(r.Context(), sourceKey{}, counted(o.source(r)))
}

func sourceOf(ctx context.Context) string {
	s, _ := ctx.Value(sourceKey{}).(string)
	return s
}
