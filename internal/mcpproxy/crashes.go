package mcpproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tollhq/toll/internal/cache"
)

const (
	maxCrashers  = 10_000
	crasherLife  = time.Hour        // after the last call
	blameTime    = 30 * time.Second // a call whose caller left may still end the server so long after
	maxLeft      = 1_000            // callers that left one connection, of whom it is known
	freeEnds     = 2                // as many may be bad luck
	firstHeldFor = 10 * time.Second // after that, doubled each time
	longHeldFor  = 10 * time.Minute
	spread       = 200 * time.Millisecond
)

// crashes delays callers whose calls ended the upstream process. It tracks a bounded number of callers.
type crashes struct {
	mu     sync.Mutex
	byName *cache.Cache[string, *crasher]
}

type crasher struct {
	ended, answered int  // connections that ended, calls that were answered
	apart           bool // the last call was not answered: the next must not coincide with those of others
	until           time.Time
}

// of returns the record of a caller. The lock is held.
func (s *crashes) of(name string) *crasher {
	now := time.Now()
	c, known := s.byName.Get(name, now)
	if !known {
		c = new(crasher)
	}
	s.byName.Put(name, c, now.Add(crasherLife), now)
	return c
}

// admit returns an error for a caller that has to wait. Callers with a call at the last crash make their next call at random
// times, so that another crash is not attributed to all of them.
func (s *crashes) admit(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	s.mu.Lock()
	c := *s.of(name)
	s.mu.Unlock()
	if wait := time.Until(c.until); wait > 0 {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(
			"Calls of yours have ended the server behind %d times. Retry in %d seconds.", c.ended, int(wait.Seconds())+1)}
	}
	if c.apart {
		select {
		case <-time.After(rand.N(spread)):
		case <-ctx.Done():
		}
	}
	return nil
}

// answered counts a call that the process survived.
func (s *crashes) answered(name string) {
	if name == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of(name)
	c.answered++
	c.apart = false
}

// blame records that the process ended during calls of these callers. The responsible call is unknown, so it blames the callers
// with the most crashes for their answered calls. It returns how many are delayed now.
func (s *crashes) blame(names []string) (held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rate := func(c *crasher) float64 { return float64(c.ended+1) / float64(c.answered+1) }
	var worst float64
	for _, name := range names {
		worst = max(worst, rate(s.of(name)))
	}
	for _, name := range names {
		c := s.of(name)
		c.apart = true
		if rate(c) < worst {
			continue
		}
		if c.ended++; c.ended > freeEnds {
			c.until = time.Now().Add(min(firstHeldFor<<min(c.ended-freeEnds-1, 10), longHeldFor))
			held++
		}
	}
	return held
}
