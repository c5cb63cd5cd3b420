package pay_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// A payment describes an endpoint, and before that is committed another one does: of payers the first stays, and the owner has the
// last word.
func TestBazaarInOneInstant(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		for _, who := range []toll.Address{b1, s1} {
			s.mint(p, who, 100)
		}
		const success, refused = `{"bazaar":{"status":"success"}}`, `{"bazaar":{"status":"rejected","rejectedReason":"only the owner of the agent can change its description"}}`
		for who, want := range map[toll.Address]struct{ said, shown string }{s1: {refused, "{}"}, b1: {success, exampleInfo}} {
			a := s.agent(nil, p)
			late := s.call(p, a, s.token(p, who, nil)).nonce("late").stock("1").at(askURL).declaring(`{"info":` + exampleInfo + `,"schema":{"type":"object"}}`)
			var start sync.Once
			var others sync.WaitGroup
			var v *x402.VerifyResponse
			var err error
			must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
				first, e := store.InsertDiscovered(s.ctx, tx, store.Discovered{
					Agent: a.ID, Verb: "POST", URL: askURL, Info: "{}", UpdatedAt: s.clock.now().Add(-time.Minute),
				})
				if e != nil || !first {
					t.Errorf("the first description: %v, %v", first, e)
				}
				start.Do(func() { others.Go(func() { v, err = late.verify(s.at(1)) }) })
				if tx.Engine() == store.Postgres {
					s.waits()
				}
				return nil
			}))
			others.Wait()
			s.valid(v, err)
			d := must.Get(store.DiscoveredOf(s.ctx, s.one().store, a.ID, "POST", askURL))(s)
			if got := string(v.ExtensionResponses); got != want.said || d.Info != want.shown {
				t.Errorf("%s: %s, and %s is shown", who, got, d.Info)
			}
		}
	})
}

// waits returns when a connection to the database waits for a lock.
func (s *scene) waits() {
	s.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		var n int
		must.Do(s, s.one().store.QueryRow(s.ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n))
		if n > 0 {
			return
		}
	}
	s.Error("nobody waits for the description")
}
