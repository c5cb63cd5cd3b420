package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestConnectionLostInCommit loses the answer to a commit. The writer finds out by itself when it gets a connection
// again; when it does not, the caller learns that the outcome is unknown, and the same call gets the truth later.
// F04
func TestConnectionLostInCommit(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	direct := storetest.OpenConfig(t, cfg)
	line, behind := storetest.NewLine(t, cfg)
	through := must.Get(store.Open(context.Background(), behind))(t)
	defer through.Close()
	truth := open(t, direct)
	truth.mint(100, time.Time{})
	perm := truth.permission(0)
	for _, stays := range []bool{false, true} {
		id := "back"
		var about toll.Hash
		if stays {
			id = "" // nothing names the request: the error says how to repeat it
		}
		c := newClock()
		batches := make(chan ledger.Batch, 100)
		l := ledger.New(through, ledger.Config{
			Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef"),
			TimeBatch: func() func(ledger.Batch) { return func(b ledger.Batch) { batches <- b } },
		})
		// A connection prepares its statements at their first use; only after that is a commit a single message.
		for _, way := range []string{"read ", "remembered "} {
			must.Get(l.Settle(context.Background(), settleOp(perm, fmt.Sprint(way, stays), 1)))(truth)
			if b := <-batches; b != (ledger.Batch{Operations: 1, Attempts: 1}) {
				t.Errorf("%s%+v", way, b)
			}
		}
		var once sync.Once
		ledger.SetFailpoint(l, func(at string) {
			if at == "decided" {
				once.Do(func() { line.Lose.Store(true); line.Down.Store(stays) })
			}
		})
		s, err := l.Settle(context.Background(), settleOp(perm, id, 5))
		if b := <-batches; b.Operations != 1 || b.Attempts < 2 || b.Failed != stays {
			t.Errorf("%+v", b)
		}
		if stays {
			if !errors.Is(err, ledger.ErrUnknownOutcome) {
				t.Fatalf("got %v, want %v", err, ledger.ErrUnknownOutcome)
			}
			line.Down.Store(false)
			id = s.RequestID
			about = s.Transaction
		} else if err != nil || !s.Replayed {
			t.Fatalf("replayed %v, %v", s.Replayed, err)
		}
		again, err := l.Settle(context.Background(), settleOp(perm, id, 5))
		if err != nil || !again.Replayed || (!stays && string(again.Answer) != string(s.Answer)) {
			t.Fatalf("the retry got %s (replayed %v), %v", again.Answer, again.Replayed, err)
		}
		// The transaction that was about to be written is the one that was.
		if r, err := truth.RequestByTransaction(context.Background(), about); stays && (err != nil || r.ID != id) {
			t.Errorf("transaction %s: %v", about, err)
		}
		must.Check(t, l.Close(context.Background()))
	}
	truth.balance(86, 0)
}
