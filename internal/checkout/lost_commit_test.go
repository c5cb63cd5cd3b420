package checkout_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// TestWithdraw_LostCommit: the database committed, and the service did not hear of it. Credits are taken back once: a service that
// reaches the database again answers with what was committed; one that does not says that it does not know, and a repeat with
// the same Idempotency-Key takes nothing more. A commit inside the process, as with SQLite, has no answer to lose.
func TestWithdraw_LostCommit(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.Postgres, storetest.Partitioned} {
		for name, c := range map[string]struct{ keyed, down bool }{"back": {}, "back, with a key": {keyed: true}, "gone": {true, true}} {
			t.Run(string(v)+"/"+name, func(t *testing.T) {
				cfg := storetest.Config(t, v)
				line, behind := storetest.NewLine(t, cfg)
				s := &shop{T: t, ctx: context.Background(), queues: map[*checkout.Checkout]*jobs.Queue{}}
				s.now.Store(start.UnixMicro())
				direct := storetest.OpenConfig(t, cfg)
				through := must.Get(store.Open(context.Background(), behind))(s)
				t.Cleanup(func() { _ = through.Close() })
				room := func(st *store.Store) *checkout.Checkout {
					l := ledger.New(st, ledger.Config{Clock: s.clock, MACKey: []byte("0123456789abcdef0123456789abcdef")})
					t.Cleanup(func() {
						found, err := l.Audit(context.Background())
						if err := errors.Join(err, l.Close(context.Background())); err != nil || len(found) > 0 {
							t.Error(err, found)
						}
					})
					s.ledgers = append(s.ledgers, l)
					return s.open(checkout.Deps{Store: st, Ledger: l, Clock: s.clock})
				}
				s.store = direct
				sure, unsure := room(direct), room(through)
				p := s.plan(nil)
				must.Get(sure.Mint(s.ctx, owner, p.ID, holder, 10, toll.Units{}, nil))(s)
				var once *store.Once
				if c.keyed {
					once = &store.Once{Scope: toll.NewHash(), Body: toll.NewHash(), At: s.clock(), Since: start.Add(-1), Seal: x402.Encode}
				}
				line.Lose.Store(true)
				line.Down.Store(c.down)
				out, err := unsure.Withdraw(s.ctx, owner, p.ID, holder, 4, once)
				if line.Lose.Load() {
					t.Fatal("no answer to a commit was lost")
				}
				if c.down {
					s.code(err, toll.CodeDatabaseUnavailable)
				} else if must.Do(s, err); out.Data["balance"] != toll.Credits(6) {
					t.Errorf("%+v", out)
				}
				if a := s.account(p, holder); a.Balance != 6 || a.TakenBack != 4 {
					t.Fatalf("after the lost answer: %+v", a)
				}
				if c.keyed {
					line.Down.Store(false)
					if _, err := unsure.Withdraw(s.ctx, owner, p.ID, holder, 4, once); err == nil || !once.Lost {
						t.Errorf("the repeat: %v", err)
					}
					if _, err := store.Answer(s.ctx, direct, once.Scope, start.Add(-1)); err != nil {
						t.Errorf("the stored answer: %v", err)
					}
				}
				if a := s.account(p, holder); a.Balance != 6 || a.TakenBack != 4 {
					t.Errorf("after the repeat: %+v", a)
				}
				var acts int
				must.Do(s, direct.QueryRow(s.ctx, "SELECT COUNT(*) FROM audit_log WHERE act = 'credits.taken_back'").Scan(&acts))
				if acts != 1 {
					t.Errorf("%d entries in the audit log, want 1", acts)
				}
			})
		}
	}
}
