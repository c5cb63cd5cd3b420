package events

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Deliveries that are long done are forgotten, pending ones never.
func TestSweep(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx := t.Context()
		r := newReceiver(t, nil)
		w := m.hook(r.URL)
		m.tell("1")
		m.deliver(m.events)
		m.tell("2")
		must(t, m.events.sender.fanOut(ctx))
		m.clock.advance(deliveryLife + time.Hour)
		must(t, st.Tx(ctx, func(tx *store.Tx) error {
			_, err := store.ForgetDeliveries(ctx, tx, m.clock.now().Add(-deliveryLife), 10)
			return err
		}))
		if left := m.deliveries(w.ID); len(left) != 1 || left[0].Status != toll.DeliveryPending {
			t.Errorf("%+v", left)
		}
	})
}

func TestExpiredDelegations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx := t.Context()
		must(t, m.events.expire(ctx)) // the mark
		add := func(ends time.Duration, change func(d *store.Delegation)) string {
			t.Helper()
			d := &store.Delegation{
				ID: toll.NewUUID(), Owner: subscriber, Provider: toll.ProviderCrypto, Currency: "usdc", Limit: 100, CreatedAt: m.clock.now(), ExpiresAt: m.clock.now().Add(ends),
			}
			change(d)
			must(t, st.Tx(ctx, func(tx *store.Tx) error { return store.InsertDelegation(ctx, tx, d) }))
			return d.ID
		}
		none := func(*store.Delegation) {}
		first, second := add(time.Minute, none), add(2*time.Minute, none)
		add(time.Minute, func(d *store.Delegation) { d.RevokedAt = m.clock.now() })
		add(time.Minute, func(d *store.Delegation) { d.Spent = 100 })
		for range 5 {
			m.clock.advance(70 * time.Second)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { must(t, m.room().expire(ctx)) })
			}
			wg.Wait()
		}
		var got []string
		for _, e := range m.stream(subscriber) {
			got = append(got, string(e.Type)+" "+e.Object.ID)
		}
		want := []string{"delegation.expired " + first, "delegation.expired " + second}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
