package mcpproxy

import (
	"context"
	"fmt"
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
	turnTime     = 2 * time.Second // maximum time that a suspect waits for the call of another suspect
)

// crashes delays callers whose calls ended the upstream process. It tracks a bounded number of callers.
type crashes struct {
	mu     sync.Mutex
	byName *cache.Cache[string, *crasher]
	turn   chan struct{} // holds a value while a suspect's call runs
}

type crasher struct {
	ended, answered int       // crashes blamed on the caller, and answered calls
	suspect         bool      // a call was in progress at the last crash, and no later call was answered
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

// admit returns an error for a delayed caller. The calls of suspects run one at a time, so that the next crash is attributed to only
// one of them: admit waits up to 2 s for its turn. The caller calls done when its call has ended.
func (s *crashes) admit(ctx context.Context, name string) (done func(), err error) {
	done = func() {}
	if name == "" {
		return done, nil
	}
	suspect, err := s.check(name)
	if err != nil || !suspect {
		return done, err
	}
	select {
	case s.turn <- struct{}{}:
		done = func() { <-s.turn }
	case <-time.After(turnTime):
	case <-ctx.Done():
	}
	if _, err = s.check(name); err != nil { // its other calls may have crashed the server meanwhile
		done()
	}
	return done, err
}

// check reports whether a caller is a suspect. It returns an error for a delayed caller.
func (s *crashes) check(name string) (suspect bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of(name)
	if wait := time.Until(c.until); wait > 0 {
		return false, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(
			"Your calls crashed the upstream server %d times. Retry in %d seconds.", c.ended, int(wait.Seconds())+1)}
	}
	return c.suspect, nil
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
	c.suspect = false
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
		c.suspect = true
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
