package gate

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/paid"
)

const (
	freeBody    = 256 << 10 // bodies up to this size are not counted, in bytes
	maxIntake   = 64 << 20  // bytes of larger bodies whose tokens are not verified
	maxVerified = 4096
	verifiedFor = time.Hour
)

// intake bounds the memory that callers without a valid access token can fill: the price of a call depends on its body, so the gate reads
// the body before the service verifies the token. Tokens that have paid within the last hour are not counted.
type intake struct {
	verified *cache.Cache[tokenKey, struct{}]

	mu   sync.Mutex
	used int64 // bytes
}

func newIntake() *intake { return &intake{verified: cache.New[tokenKey, struct{}](maxVerified)} }

// enter counts the body of a request that is about to be read, until done. It returns an error (429) if too many bytes are counted.
func (i *intake) enter(c *call, r *http.Request) error {
	size := r.ContentLength
	if size < 0 {
		size = paid.DefaultMaxBody
	}
	if size <= freeBody || slices.ContainsFunc(keysOf(c.sent), func(k tokenKey) bool { _, ok := i.verified.Get(k, time.Now()); return ok }) {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.used+size > maxIntake {
		e := toll.Errorf(toll.CodeRateLimited, "Too many large requests with new access tokens arrive at the same time.").
			WithHint(fmt.Sprintf("Try again, or begin with a request of at most %d KiB.", freeBody>>10))
		e.RetryAfterSecs = 1
		return e
	}
	i.used += size
	c.intake = size
	return nil
}

// done ends the count of a body.
func (i *intake) done(c *call) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.used -= c.intake
	c.intake = 0
}

// paid ends the count of a body whose token was verified, and remembers the token.
func (i *intake) paid(c *call) {
	i.done(c)
	now := time.Now()
	for _, k := range keysOf(c.sent) {
		i.verified.Put(k, struct{}{}, now.Add(verifiedFor), now)
	}
}
