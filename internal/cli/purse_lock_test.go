package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
)

// TestReview5_LockOfALivingProcess: a process that was stopped for a while, as by a closed lid, still has its lock. Who took it
// over would count without what the other is about to pay.
func TestReview5_LockOfALivingProcess(t *testing.T) {
	f := &filePurse{path: filepath.Join(t.TempDir(), "payments.jsonl"), now: time.Now}
	old := time.Now().Add(-time.Hour)
	must.Do(t, f.locked(t.Context(), func() error {
		if err := os.Chtimes(f.path+".lock", old, old); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := f.locked(ctx, func() error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two have the lock at once: %v", err)
		}
		return nil
	}))
	must.Check(t, f.locked(t.Context(), func() error { return nil }), "the lock is free")
}
