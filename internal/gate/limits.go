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
	spare   map[tokenKey]int // calls above the limit that may only wait for the response of an equal call
}

func newLimiter(l Limits) *limiter {
	out := &limiter{concurrent: l.Concurrent, start: time.Now(), running: map[tokenKey]int{}, spare: map[tokenKey]int{}}
	if l.PerMinute > 0 {
		out.rate = meter.New[tokenKey](time.Minute/time.Duration(l.PerMinute), int64(l.PerMinute))
	}
	return out
}

// enter counts a call of c with the token of the request. It returns an error (429) if that is too many. As many repeated requests as calls
// may enter besides, because the call for which they wait may still run.
func (l *limiter) enter(c *call, h http.Header) error {
	if l.concurrent == 0 && l.rate == nil {
		return nil
	}
	keys := keysOf(h)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.concurrent > 0 && l.running[key] >= l.concurrent {
			if !repeats(h) || l.spare[key] >= l.concurrent {
				return l.tooMany()
			}
			c.spare = true
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
		counts := l.running
		if c.spare {
			counts = l.spare
		}
		c.leave = l.count(counts, keys)
	}
	return nil
}

func (l *limiter) tooMany() *toll.Error {
	e := toll.Errorf(toll.CodeRateLimited, "Too many calls run at the same time with this access token: at most %d.", l.concurrent)
	e.RetryAfterSecs = 1
	return e
}

// count counts a call, until the returned function is called. The caller of count has the lock.
func (l *limiter) count(counts map[tokenKey]int, keys []tokenKey) (leave func()) {
	for _, key := range keys {
		counts[key]++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range keys {
			if counts[key]--; counts[key] <= 0 {
				delete(counts, key)
			}
		}
	}
}

// admit counts a call that found no response to wait for. It returns an error (429) if too many calls run.
func (l *limiter) admit(c *call) *toll.Error {
	if !c.spare {
		return nil
	}
	keys := keysOf(c.sent)
	c.leave()
	c.leave = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(keys, func(k tokenKey) bool { return l.running[k] >= l.concurrent }) {
		return l.tooMany()
	}
	c.spare, c.leave = false, l.count(l.running, keys)
	return nil
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
			if key := keyOf(t.JWS); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// keyOf returns the key of a compact JWS. Only the signed part identifies the token: the last letter of a signature has bits that its
// decoding ignores.
func keyOf(jws string) tokenKey {
	sum := sha256.Sum256([]byte(jws[:max(strings.LastIndexByte(jws, '.'), 0)]))
	return tokenKey(sum[:16])
}
