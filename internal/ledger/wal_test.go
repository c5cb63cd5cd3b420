package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestWriteAheadLogCut opens copies of a database whose write-ahead log ends at a random byte, as after a power cut in
// the middle of a write: every settlement that was acknowledged before that byte is there, and the books are intact.
// F17
func TestWriteAheadLogCut(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	b := open(t, st)
	b.mint(1000, time.Time{})
	perm := b.permission(0)
	wal := filepath.Join(cfg.Data, "toll.db-wal")
	size := func() int64 {
		t.Helper()
		info := must.Get(os.Stat(wal))(b)
		return info.Size()
	}
	start := size()
	acknowledged := []int64{} // size of the log after each settlement
	for i := range 40 {
		must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 1)))(b)
		acknowledged = append(acknowledged, size())
	}
	main := must.Get(os.ReadFile(filepath.Join(cfg.Data, "toll.db")))(b)
	log := must.Get(os.ReadFile(wal))(b)
	if size() != int64(len(log)) || acknowledged[0] <= start {
		t.Fatal("the log was checkpointed in between: the test proves nothing")
	}
	for range 30 {
		cut := start + rand.Int64N(int64(len(log))-start+1)
		dir := t.TempDir()
		must.Do(b, os.WriteFile(filepath.Join(dir, "toll.db"), main, 0o600))
		must.Do(b, os.WriteFile(filepath.Join(dir, "toll.db-wal"), log[:cut], 0o600))
		copied, err := store.Open(context.Background(), store.Config{Data: dir})
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(log), err)
		}
		l := ledger.New(copied, ledger.Config{Clock: b.clock.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
		audit(t, l)
		want := 0
		for _, end := range acknowledged {
			if end <= cut {
				want++
			}
		}
		a := must.Get(l.Account(context.Background(), ledger.NewAccountID(plan, subscriber)))(b)
		if int(a.Burned) < want {
			t.Errorf("cut at %d of %d: %d settlements are left, %d were acknowledged", cut, len(log), a.Burned, want)
		}
		must.Do(b, l.Close(context.Background()))
		must.Do(b, copied.Close())
	}
}
