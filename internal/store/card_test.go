package store_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
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
		same(t, must[*store.CardPayment](t)(got, err), p)
		paid := must[[]*store.CardPayment](t)(store.CardPaymentsPaid(ctx, st, noon, noon.Add(time.Second)))
		same(t, paid, []*store.CardPayment{p})

		call := &store.CardCall{Key: "o1-1", Subject: "o1", Path: "payment_intents", Params: "amount=500", CreatedAt: noon}
		for _, params := range []string{call.Params, "amount=600"} {
			c := *call
			c.Params = params
			write(t, st, func(tx *store.Tx) error {
				stored, err := store.EnsureCardCall(ctx, tx, &c)
				same(t, must[*store.CardCall](t)(stored, err), call)
				return nil
			})
		}
		call.Params, call.Status, call.Object, call.AnsweredAt = "", 200, "pi_1", noon
		write(t, st, func(tx *store.Tx) error { return store.AnswerCardCall(ctx, tx, call) })
		same(t, must[*store.CardCall](t)(store.CardCallByKey(ctx, st, "o1-1")), call)

		for i, want := range []bool{true, false} {
			write(t, st, func(tx *store.Tx) error {
				e := &store.CardEvent{ID: "evt_1", Type: "payment_intent.succeeded", Object: "pi_1", CreatedAt: noon}
				if first, err := store.TakeCardEvent(ctx, tx, e, noon); first != want || err != nil {
					t.Errorf("event %d: %t, %v", i, first, err)
				}
				return nil
			})
		}
		same(t, must[[]string](t)(store.DueJobs(ctx, st, noon)), []string{store.JobCardSync})

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
		same(t, must[*store.CardSetup](t)(store.CardSetupByIntent(ctx, st, "seti_1")), setup)
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
		same(t, must[*store.CardMethod](t)(store.CardMethodLike(ctx, st, alice, "f")), m)
		same(t, must[*store.CardMethod](t)(store.CardMethodOf(ctx, st, "pm_1")), m)
		other := *m
		other.ID, other.StripeID = "pm_3", "pm_3"
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, &other) }); !store.IsUnique(err) {
			t.Errorf("two cards with one fingerprint: %v", err)
		}
	})
}
