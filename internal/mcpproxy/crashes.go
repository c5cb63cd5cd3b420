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
	crasherLife  = time.Hour        // lifetime of a record after the last call
	blameTime    = 30 * time.Second // time for which an abandoned call can be blamed for a crash
	maxLeft      = 1_000            // maximum tracked callers per connection that abandoned a call
	freeEnds     = 2                // crashes without a delay: they may be coincidence
	firstHeldFor = 10 * time.Second // first delay, doubled by each further crash
	longHeldFor  = 10 * time.Minute
	spread       = 200 * time.Millisecond
)

// crashes delays callers whose calls ended the upstream process. It tracks a bounded number of callers.
type crashes struct {
	mu     sync.Mutex
	byName *cache.Cache[string, *crasher]
}

type crasher struct {
	ended, answered int       // crashes blamed on the caller, and answered calls
	apart           bool      // a call was in progress at the last crash: admit delays the next call
	until           time.Time // end of the delay
}

// of returns the record of a caller, and renews its lifetime. The caller holds the lock.
func (s *crashes) of(name string) *crasher {
	now := time.Now()
	c, known := s.byName.Get(name, now)
	if !known {
		c = new(crasher)
	}
	s.byName.Put(name, c, now.Add(crasherLife), now)
	return c
}

// admit returns an error for a delayed caller. If a caller had a call in progress at the last crash, it first sleeps for a random
// time of up to 200 ms, so that the next crash is not attributed to all of them.
func (s *crashes) admit(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	s.mu.Lock()
	c := *s.of(name)
	s.mu.Unlock()
	if wait := time.Until(c.until); wait > 0 {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(
			"Your calls crashed the upstream server %d times. Retry in %d seconds.", c.ended, int(wait.Seconds())+1)}
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
// with the highest ratio of crashes to answered calls. It returns the number of callers that it has delayed.
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
