package events

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
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
		must.Do(t, m.events.sender.fanOut(ctx))
		m.clock.advance(deliveryLife + time.Hour)
		must.Do(t, st.Tx(ctx, func(tx *store.Tx) error {
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
		must.Do(t, m.events.expire(ctx)) // the mark
		add := func(ends time.Duration, change func(d *store.Delegation)) string {
			t.Helper()
			d := &store.Delegation{
				ID: toll.NewUUID(), Owner: subscriber, Provider: toll.ProviderCrypto, Currency: "usdc", Limit: 100, CreatedAt: m.clock.now(), ExpiresAt: m.clock.now().Add(ends),
			}
			change(d)
			must.Do(t, st.Tx(ctx, func(tx *store.Tx) error { return store.InsertDelegation(ctx, tx, d) }))
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
				wg.Go(func() { must.Do(t, m.room().expire(ctx)) })
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

// Two processes remove what is past the horizon, and one dies at a step: whoever reads from the beginning gets what is left.
func TestRetain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx := t.Context()
		for i := range 3 {
			m.tell(fmt.Sprint("old", i))
		}
		m.clock.advance(399 * 24 * time.Hour)
		m.tell("new")
		last := must.Get(store.LastSequences(ctx, st, []toll.Address{builder}))(t)
		a, b := m.room(), m.room()
		for _, e := range []*Events{a, b} {
			e.cfg.Horizon = 400 * 24 * time.Hour
			must.Do(t, e.retain(ctx))
		}
		kept := func() int {
			t.Helper()
			list := must.Get(a.List(ctx, store.EventFilter{Principal: builder}, store.Page{Size: 100, Ascending: true}))(t)
			if list.Total != int64(len(list.Items)) {
				t.Errorf("%d events of %d", len(list.Items), list.Total)
			}
			return len(list.Items)
		}
		all := kept()
		m.clock.advance(25 * time.Hour)
		a.failpoint = func(at string) {
			if at == "retained" {
				panic("killed")
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = a.retain(ctx)
		}()
		var workers sync.WaitGroup
		a.failpoint = nil
		for _, e := range []*Events{a, m.room()} {
			e.cfg.Horizon = 400 * 24 * time.Hour
			workers.Go(func() {
				must.Check(t, e.retain(ctx))
			})
		}
		workers.Wait()
		must.Do(t, b.retain(ctx))
		if n := kept(); n != 1 || all < 4 {
			t.Errorf("%d events are left of %d, want 1", n, all)
		}
		s := must.Get(a.Follow(ctx, builder, "0"))(t)
		defer s.Close()
		got, _, err := s.Next(ctx, time.Minute)
		if err != nil || len(got) != 1 || got[0].Sequence != last[builder] {
			t.Errorf("a stream from the beginning: %v, %v", got, err)
		}
	})
}
