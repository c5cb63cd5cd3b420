// Package backoff computes pauses between retries: exponential, with jitter. Public packages depend on it.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay returns the pause after a number of failures in a row: [Double] with [Jitter], so that callers that failed together
// retry at different times.
func Delay(first, most time.Duration, failures int) time.Duration {
	return Jitter(Double(first, most, failures))
}

// Double returns first for n = 1 and doubles it for each higher n, up to most.
func Double(first, most time.Duration, n int) time.Duration {
	if n = max(n-1, 0); n < 32 && first <= most>>n {
		return first << n
	}
	return most
}

// Jitter returns a random pause between half of d and d.
func Jitter(d time.Duration) time.Duration {
	return d - rand.N(max(d/2, 1))
}

// Sleep waits for d, and returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
