package gate

import (
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/x402"
)

// Limits bounds the calls with one access token on priced routes, in this process. 0 means unlimited.
type Limits struct {
	Concurrent int `yaml:"concurrent"` // calls at a time
	PerMinute  int `yaml:"per_minute"` // calls in a minute; all of them may come at once
}

const maxLimit = 1_000_000

func (l Limits) check() error {
	for name, n := range map[string]int{"concurrent": l.Concurrent, "per_minute": l.PerMinute} {
		if n < 0 || n > maxLimit {
			return fmt.Errorf("limits.%s must be 0 to %d; got %d", name, maxLimit, n)
		}
	}
	return nil
}

// tokenKey identifies an access token, regardless of its form.
type tokenKey [16]byte

// limiter enforces [Limits].
type limiter struct {
	concurrent int
	rate       *meter.Meter[tokenKey] // nil: no limit
	start      time.Time

	mu      sync.Mutex
	running map[tokenKey]int
}

func newLimiter(l Limits) *limiter {
	out := &limiter{concurrent: l.Concurrent, start: time.Now(), running: map[tokenKey]int{}}
	if l.PerMinute > 0 {
		out.rate = meter.New[tokenKey](time.Minute/time.Duration(l.PerMinute), int64(l.PerMinute))
	}
	return out
}

// enter counts a call of c with the token of the request. It returns an error (429) if that is too many.
func (l *limiter) enter(c *call, h http.Header) error {
	if l.concurrent == 0 && l.rate == nil {
		return nil
	}
	keys := keysOf(h)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.concurrent > 0 && l.running[key] >= l.concurrent {
			e := toll.Errorf(toll.CodeRateLimited, "Too many calls run at the same time with this access token: at most %d.", l.concurrent)
			e.RetryAfterSecs = 1
			return e
		}
	}
	for _, key := range keys {
		if l.rate == nil {
			break
		}
		if r := l.rate.Take(key, 1, time.Since(l.start)); !r.OK {
			e := toll.Errorf(toll.CodeRateLimited, "Too many calls with this access token: at most %d in a minute.", l.rate.Burst())
			e.RetryAfterSecs = int(math.Ceil(r.Retry.Seconds()))
			return e
		}
	}
	if l.concurrent > 0 && len(keys) > 0 {
		for _, key := range keys {
			l.running[key]++
		}
		c.leave = func() { l.leave(keys) }
	}
	return nil
}

func (l *limiter) leave(keys []tokenKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.running[key]--; l.running[key] <= 0 {
			delete(l.running, key)
		}
	}
}

// keysOf returns the keys of all access tokens in the headers of a request, none for an unpaid request. Besides the token that pays,
// these may be tokens of other services.
func keysOf(h http.Header) (keys []tokenKey) {
	for _, name := range tokenHeaders {
		v := strings.TrimSpace(h.Get(name))
		if i := strings.IndexAny(v, " \t"); i > 0 && strings.EqualFold(v[:i], "bearer") {
			v = strings.TrimSpace(v[i:])
		}
		if t, err := x402.DecodeToken(v); v != "" && err == nil {
			// Only the signed part identifies the token: the last letter of a signature has bits that its decoding ignores.
			signed := t.JWS[:max(strings.LastIndexByte(t.JWS, '.'), 0)]
			sum := sha256.Sum256([]byte(signed))
			if key := tokenKey(sum[:16]); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
