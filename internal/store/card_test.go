package store_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Records of the card rail go in and out, and repeats change nothing.
func TestCardRecords(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx, account := t.Context(), [16]byte{1}
		p := &store.CardPayment{
			OrderID: "o1", Account: account, Seller: bob, Payer: alice, State: "created", Attempt: 1, Cents: 500, Currency: "usd",
			CreatedAt: noon, UpdatedAt: noon, Data: []byte(`{}`),
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertCardPayment(ctx, tx, p) })
		write(t, st, func(tx *store.Tx) error { return store.InsertCardPayment(ctx, tx, p) })
		p.State, p.Intent, p.PaidAt = "paid", "pi_1", noon
		write(t, st, func(tx *store.Tx) error { return store.UpdateCardPayment(ctx, tx, p) })
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.UpdateCardPayment(ctx, tx, p) })) // of another version
		p.Version++
		got, err := store.CardPaymentByIntent(ctx, st, "pi_1")
		same(t, must.Get(got, err)(t), p)

		call := &store.CardCall{Key: "o1-1", Subject: "o1", Path: "payment_intents", Params: "amount=500", CreatedAt: noon}
		for _, params := range []string{call.Params, "amount=600"} {
			c := *call
			c.Params = params
			write(t, st, func(tx *store.Tx) error {
				stored, err := store.EnsureCardCall(ctx, tx, &c)
				same(t, must.Get(stored, err)(t), call)
				return nil
			})
		}
		call.Params, call.Status, call.Object, call.AnsweredAt = "", 200, "pi_1", noon
		write(t, st, func(tx *store.Tx) error { return store.AnswerCardCall(ctx, tx, call) })
		same(t, must.Get(store.CardCallByKey(ctx, st, "o1-1"))(t), call)

		for i, want := range []int{2, 0} {
			write(t, st, func(tx *store.Tx) error {
				one := &store.CardEvent{ID: "evt_1", Type: "payment_intent.succeeded", Object: "pi_1", CreatedAt: noon}
				two := &store.CardEvent{ID: "evt_0", Type: "payment_intent.processing", Object: "pi_1", CreatedAt: noon}
				if taken, err := store.TakeCardEvents(ctx, tx, noon, one, two, one); taken != want || err != nil {
					t.Errorf("take %d: %d, %v", i, taken, err)
				}
				return nil
			})
		}
		same(t, must.Get(store.DueJobs(ctx, st, noon))(t), []string{store.JobCardSync})
		write(t, st, func(tx *store.Tx) error {
			claimed, err := store.ClaimJobs(ctx, tx, store.JobCardSync, "h", noon, noon, 9)
			if len(claimed) != 1 || err != nil {
				t.Errorf("the jobs of two events of one object: %v, %v", claimed, err)
			}
			return err
		})
		for i, want := range []int64{1, 1, 0} {
			write(t, st, func(tx *store.Tx) error {
				if n, err := store.DropCardEvents(ctx, tx, noon.Add(time.Second), 1); n != want || err != nil {
					t.Errorf("drop %d: %d, %v", i, n, err)
				}
				return nil
			})
		}

		setup := &store.CardSetup{ID: "s1", Owner: alice, Source: "a", State: "open", Failures: 2, CreatedAt: noon, ExpiresAt: noon}
		write(t, st, func(tx *store.Tx) error { return store.InsertCardSetup(ctx, tx, setup) })
		if own, source, err := store.CardTries(ctx, st, alice, "b", noon); own != 3 || source != 0 || err != nil {
			t.Errorf("%d, %d, %v", own, source, err)
		}
		setup.Intent, setup.Method = "seti_1", "pm_1"
		write(t, st, func(tx *store.Tx) error {
			got, err := store.CardSetupForUpdate(ctx, tx, "s1")
			if err != nil || got.Intent != "" {
				t.Errorf("%+v, %v", got, err)
			}
			return store.UpdateCardSetup(ctx, tx, setup)
		})
		same(t, must.Get(store.CardSetupByIntent(ctx, st, "seti_1"))(t), setup)
		for _, c := range []struct {
			owner  toll.Address
			source string
			since  time.Time
			want   int
		}{{alice, "b", noon, 1}, {bob, "a", noon, 1}, {alice, "a", noon, 1}, {bob, "b", noon, 0}, {alice, "a", noon.Add(time.Second), 0}} {
			open, err := store.CardSetupsOpen(ctx, st, "open", c.owner, c.source, c.since, 9)
			if err != nil || len(open) != c.want {
				t.Errorf("%+v: %d, %v", c, len(open), err)
			}
		}
		write(t, st, func(tx *store.Tx) error { return store.DropCardSetup(ctx, tx, "s1") })
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.DropCardSetup(ctx, tx, "s1") }))

		m := &store.CardMethod{Owner: alice, ID: "pm_1", StripeID: "pm_1", Customer: "cus_1", Fingerprint: "f", CheckedAt: noon}
		write(t, st, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, m) })
		m.StripeID = "pm_2"
		write(t, st, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, m) })
		same(t, must.Get(store.CardMethodLike(ctx, st, alice, "f"))(t), m)
		same(t, must.Get(store.CardMethodOf(ctx, st, "pm_1"))(t), m)
		other := *m
		other.ID, other.StripeID = "pm_3", "pm_3"
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, &other) }); !store.IsUnique(err) {
			t.Errorf("two cards with one fingerprint: %v", err)
		}

		re := &store.CardRefund{
			ID: "r1", OrderID: "o1", Account: account, Origin: "seller", State: "created", Cents: 200, Intent: "pi_1", CreatedAt: noon,
			UpdatedAt: noon,
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertCardRefund(ctx, tx, re) })
		_, err = store.CardRefundByStripeID(ctx, st, "re_1")
		notFound(t, err)
		re.StripeID, re.State = "re_1", "pending"
		write(t, st, func(tx *store.Tx) error { return store.UpdateCardRefund(ctx, tx, re) })
		same(t, must.Get(store.CardRefundByStripeID(ctx, st, "re_1"))(t), re)
		for i, state := range []string{"needs_response", "lost"} {
			d := &store.CardDispute{
				ID: []string{"dp_1", "dp_2"}[i], OrderID: "o1", Account: account, State: state, Cents: 300, CreatedAt: noon, UpdatedAt: noon,
			}
			write(t, st, func(tx *store.Tx) error { return store.PutCardDispute(ctx, tx, d) })
		}
		later := noon.Add(time.Hour)
		same(t, must.Get(store.UnsettledCardObjects(ctx, st, later))(t), []string{"dp_1", "re_1"})
		re.State = "succeeded"
		write(t, st, func(tx *store.Tx) error { return store.UpdateCardRefund(ctx, tx, re) })
		same(t, must.Get(store.UnsettledCardObjects(ctx, st, later))(t), []string{"dp_1"})
		same(t, must.Get(store.UnsettledCardObjects(ctx, st, noon))(t), []string{"dp_1", "re_1"})

		for _, move := range []store.CardMove{
			{ID: "txn_1", Kind: "charge", Cents: 500, Fee: 44, At: noon}, {ID: "txn_2", Kind: "refund", Cents: -200, At: noon},
			{ID: "txn_3", Kind: "refund", Cents: -100, At: noon}, {ID: "txn_4", Kind: "refund", Cents: -50, At: later},
			{ID: "txn_2", Kind: "refund", Cents: -999, At: noon}, // a repeat
		} {
			move.OrderID, move.Currency = "o1", "usd"
			write(t, st, func(tx *store.Tx) error { return store.InsertCardMove(ctx, tx, &move) })
		}
		same(t, must.Get(store.CardMoveSums(ctx, st, noon, later))(t), []store.CardMoveSum{
			{Seller: bob, Currency: "usd", Kind: "charge", Moves: 1, Cents: 500, Fee: 44},
			{Seller: bob, Currency: "usd", Kind: "refund", Moves: 2, Cents: -300},
		})
	})
}

// What doctor and payouts read of the card rail.
func TestCardCounts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		used := func(want bool) {
			t.Helper()
			if got, err := store.CardUsed(ctx, st); got != want || err != nil {
				t.Errorf("used %t, %v, want %t", got, err, want)
			}
		}
		undecided := func(want int64) {
			t.Helper()
			if n, err := store.CardPaymentsUndecided(ctx, st); n != want || err != nil {
				t.Errorf("%d undecided, %v, want %d", n, err, want)
			}
		}
		used(false)
		undecided(0)
		for i := range 3 {
			p := &store.CardPayment{
				OrderID: toll.NewUUID(), Seller: bob, Payer: alice, State: "paid", Attempt: 1, Cents: 500, Currency: "usd",
				Undecided: i > 0, CreatedAt: noon, UpdatedAt: noon, Data: []byte(`{}`),
			}
			write(t, st, func(tx *store.Tx) error {
				if err := store.InsertCardPayment(ctx, tx, p); err != nil || !p.Undecided {
					return err
				}
				return store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte(p.OrderID), Due: noon})
			})
		}
		used(true)
		undecided(2)

		for i, want := range []bool{true, false} {
			write(t, st, func(tx *store.Tx) error {
				o := &store.CardOrphan{Object: "pi_1", Cents: int64(i + 1), Currency: "usd", Reason: "unknown", SeenAt: noon}
				if first, err := store.InsertCardOrphan(ctx, tx, o); first != want || err != nil {
					t.Errorf("orphan %d: %t, %v", i, first, err)
				}
				return nil
			})
		}
		same(t, must.Get(store.CardOrphans(ctx, st, 9))(t), []*store.CardOrphan{
			{Object: "pi_1", Cents: 1, Currency: "usd", Reason: "unknown", SeenAt: noon},
		})

		var want []*store.CardPayout
		for i, seller := range []toll.Address{alice, bob} {
			p := &store.CardPayout{
				ID: toll.NewUUID(), Seller: seller, Month: []string{"2026-11", "2026-12"}[i], Currency: "usd", Cents: 500, Note: "SEPA", PaidAt: noon,
			}
			write(t, st, func(tx *store.Tx) error { return store.InsertCardPayout(ctx, tx, p) })
			if err := st.Tx(ctx, func(tx *store.Tx) error { return store.InsertCardPayout(ctx, tx, p) }); !store.IsUnique(err) {
				t.Errorf("a payout twice: %v", err)
			}
			want = append(want, p)
		}
		same(t, must.Get(store.CardPayouts(ctx, st, "2026-11"))(t), want[:1])
	})
}
