package crypto

import (
	"context"
	"errors"
	"testing"
	"time"
)

// F22: work that hangs delays a shutdown up to its deadline, and the error says so.
func TestF22_CloseEndsAtItsDeadline(t *testing.T) {
	n := &Network{}
	n.life, n.end = context.WithCancel(t.Context())
	hangs := make(chan struct{})
	n.work.Go(func() { <-hangs })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of work that hangs: %v", err)
	}
	close(hangs)
	if err := n.Close(t.Context()); err != nil {
		t.Errorf("the end of work that has ended: %v", err)
	}
}
