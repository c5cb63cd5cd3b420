package events

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A webhook that is much older than three days is not paused by its first failures: the three days begin with the first failure, and
// they begin again after each success.
// T87
func TestOldWebhookFails(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		r := newReceiver(t, nil)
		w := m.hook(r.URL, toll.EventPlanUpdated)
		fails := func(is bool, name string, paused bool, since time.Duration) {
			t.Helper()
			r.mu.Lock()
			if r.answer = nil; is {
				r.answer = status(500)
			}
			r.mu.Unlock()
			m.tell(name)
			m.deliver(m.events)
			hook := must.Get(m.events.Webhook(t.Context(), builder, w.ID))(t)
			if (hook.Status == toll.WebhookPaused) != paused || (hook.FailingSince != nil) != is {
				t.Fatalf("event %s: %s, failing since %v", name, hook.Status, hook.FailingSince)
			}
			if is && m.clock.now().Sub(hook.FailingSince.Time) != since {
				t.Errorf("event %s: failing since %s, want %s before", name, hook.FailingSince, since)
			}
		}
		m.clock.advance(100 * 24 * time.Hour)
		fails(true, "1", false, 0)
		m.clock.advance(time.Minute)
		fails(true, "2", false, time.Minute)
		m.clock.advance(time.Hour)
		fails(false, "3", false, 0)
		// The second row of failures, longer than three days after the first one.
		m.clock.advance(4 * 24 * time.Hour)
		fails(true, "4", false, 0)
		m.clock.advance(pauseAfter - time.Second)
		fails(true, "5", false, pauseAfter-time.Second)
		m.clock.advance(time.Second)
		fails(true, "6", true, pauseAfter)
	})
}

// After a second rotation within a day the first secret signs nothing, and the second one signs until a day after the second rotation.
// T87
func TestSecondRotation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		r := newReceiver(t, nil)
		w := m.hook(r.URL)
		secrets := []string{w.Secret}
		for range 2 {
			m.clock.advance(time.Hour)
			rotated := must.Get(m.events.RotateWebhook(t.Context(), builder, w.ID))(t)
			secrets = append(secrets, rotated.Secret)
			if got := rotated.PreviousValidUntil.Sub(m.clock.now()); got != oldSecretLife {
				t.Errorf("the secret before is good for %s", got)
			}
		}
		for _, c := range []struct {
			after time.Duration
			signs [3]bool
		}{{0, [3]bool{false, true, true}}, {oldSecretLife - time.Second, [3]bool{false, true, true}}, {time.Second, [3]bool{false, false, true}}} {
			m.clock.advance(c.after)
			m.tell("1")
			m.deliver(m.events)
			all := r.all()
			for i, secret := range secrets {
				if signedWith(all[len(all)-1], secret) != c.signs[i] {
					t.Errorf("%s later, secret %d: signs %v", c.after, i, !c.signs[i])
				}
			}
		}
	})
}

// A webhook that fails has one delivery under way, and a webhook that works has four; each delivery gives its place back.
// T181
func TestPlacesOfWebhooks(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	for _, failing := range []bool{false, true} {
		let := make(chan struct{})
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ delivered) {
			<-let
			w.WriteHeader(http.StatusInternalServerError)
		})
		w := m.hook(r.URL)
		most := slotsOfHook
		if failing {
			most = slotsOfFailing
			must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
				row := must.Get(store.WebhookForUpdate(t.Context(), tx, w.ID))(t)
				row.FailingSince = m.clock.now()
				return store.UpdateWebhook(t.Context(), tx, row)
			}))
		}
		for i := range 2 * slotsOfHook {
			m.tell(fmt.Sprint(i))
		}
		s := m.events.sender
		flying := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.flying[w.ID]
		}
		must.Do(t, s.fanOut(t.Context()))
		for range 3 {
			must.Do(t, s.send(t.Context()))
			if n := flying(); n != most {
				t.Errorf("failing %t: %d deliveries under way, want %d", failing, n, most)
			}
		}
		close(let)
		s.sending.Wait()
		if n := flying(); n != 0 {
			t.Errorf("failing %t: %d places are not given back", failing, n)
		}
		must.Do(t, m.events.DeleteWebhook(t.Context(), builder, w.ID))
	}
}
