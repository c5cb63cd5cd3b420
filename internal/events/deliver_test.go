package events

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// receiver keeps what it was sent.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []delivered
	answer func(w http.ResponseWriter, r *http.Request, d delivered) // nil: 204
}

type delivered struct {
	id, stamp  string
	signatures []string
	header     http.Header
	body       []byte
	event      toll.Event
}

func newReceiver(t *testing.T, answer func(http.ResponseWriter, *http.Request, delivered)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		d := delivered{
			id: req.Header.Get("Service-Webhook-Id"), stamp: req.Header.Get("Service-Webhook-Timestamp"),
			signatures: req.Header.Values("Service-Webhook-Signature"), header: req.Header, body: body,
		}
		if err := x402.Decode(body, &d.event); err != nil {
			t.Errorf("body %s: %v", body, err)
		}
		r.mu.Lock()
		r.got = append(r.got, d)
		r.mu.Unlock()
		if r.answer != nil {
			r.answer(w, req, d)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivered(nil), r.got...)
}

func status(code int) func(http.ResponseWriter, *http.Request, delivered) {
	return func(w http.ResponseWriter, _ *http.Request, _ delivered) { w.WriteHeader(code) }
}

func (m *market) hook(url string, types ...toll.EventType) *toll.WebhookSecret {
	m.t.Helper()
	return must.Get(m.events.CreateWebhook(m.t.Context(), builder, WebhookParams{URL: &url, Types: &types}, nil))(m.t)
}

// tell adds an event of an object to the builder's stream.
func (m *market) tell(object string) {
	m.t.Helper()
	must.Do(m.t, m.st.Tx(m.t.Context(), func(tx *store.Tx) error {
		return store.InsertEvent(m.t.Context(), tx, store.NewEvent{
			Principal: builder, Type: toll.EventPlanUpdated, Kind: "plan", ID: object, Data: map[string]string{"id": object}, At: m.clock.now(),
		})
	}))
}

// deliver makes and sends everything that is due now, one after the other.
func (m *market) deliver(e *Events) (sent int) {
	m.t.Helper()
	ctx := m.t.Context()
	must.Do(m.t, e.sender.fanOut(ctx))
	for {
		hooks := must.Get(store.WebhooksDue(ctx, m.st, m.clock.now(), "", 100))(m.t)
		n := 0
		for _, w := range hooks {
			due := must.Get(store.DueDeliveries(ctx, m.st, w.ID, m.clock.now(), 100))(m.t)
			for _, d := range due {
				claimed := must.Get(e.claim(ctx, d))(m.t)
				if claimed {
					n++
					e.attempt(ctx, w.ID, d)
				}
			}
		}
		if sent += n; n == 0 {
			return sent
		}
	}
}

func (m *market) deliveries(id string) []*toll.WebhookDelivery {
	m.t.Helper()
	l := must.Get(m.events.Deliveries(m.t.Context(), builder, id, "", store.Page{Size: 100, Ascending: true}))(m.t)
	return l.Items
}

func signedWith(d delivered, secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(d.id + "." + d.stamp + "." + string(d.body)))
	want := "v1=" + hex.EncodeToString(mac.Sum(nil))
	for _, s := range d.signatures {
		if s == want {
			return true
		}
	}
	return false
}

// T87
func TestSignedAndRotated(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		r := newReceiver(t, nil)
		m.tell("before") // not sent: it happened before
		w := m.hook(r.URL + "/hook")
		m.tell("1")
		m.deliver(m.events)
		rotated := must.Get(m.events.RotateWebhook(t.Context(), builder, w.ID))(t)
		m.tell("2")
		m.deliver(m.events)
		m.clock.advance(25 * time.Hour)
		m.tell("3")
		m.deliver(m.events)
		got := r.all()
		if len(got) != 3 {
			t.Fatalf("%d deliveries", len(got))
		}
		for i, want := range []struct{ old, new bool }{{true, false}, {true, true}, {false, true}} {
			d := got[i]
			if signedWith(d, w.Secret) != want.old || signedWith(d, rotated.Secret) != want.new {
				t.Errorf("delivery %d is not signed with %+v", i, want)
			}
			standard := strings.Join(d.header.Values("webhook-signature"), "")
			for secret, signs := range map[string]bool{w.Secret: want.old, rotated.Secret: want.new} {
				key := must.Get(base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")))(t)
				mac := hmac.New(sha256.New, key)
				mac.Write([]byte(d.id + "." + d.stamp + "." + string(d.body)))
				if slices.Contains(strings.Split(standard, " "), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))) != signs {
					t.Errorf("delivery %d: %q by Standard Webhooks, want %+v", i, standard, want)
				}
			}
			if d.header.Get("webhook-id") != d.id || d.header.Get("webhook-timestamp") != d.stamp {
				t.Errorf("delivery %d: %v", i, d.header)
			}
			if d.id != d.event.ID || d.event.Object.ID != fmt.Sprint(i+1) || string(d.event.Data) != fmt.Sprintf(`{"id":"%d"}`, i+1) {
				t.Errorf("delivery %d: %s", i, d.body)
			}
			if want.old && want.new != (len(d.signatures) == 2) {
				t.Errorf("delivery %d has %d signatures", i, len(d.signatures))
			}
		}
		if w.Secret == rotated.Secret || rotated.PreviousValidUntil == nil {
			t.Error("not rotated")
		}
		rows := must.Get(st.Query(t.Context(), "SELECT secret, url FROM webhooks"))(t)
		defer rows.Close()
		for rows.Next() {
			var sealed []byte
			var url string
			must.Do(t, rows.Scan(&sealed, &url))
			if strings.Contains(string(sealed), "whsec_") {
				t.Error("the secret stands there plain")
			}
		}
	})
}

// A receiver that fails gets the attempts that are written down, for three days; then the delivery failed, and the webhook is
// paused with an event.
// T87
func TestRetriesAndPause(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		r := newReceiver(t, status(500))
		w := m.hook(r.URL, toll.EventPlanUpdated)
		other := newReceiver(t, nil)
		m.hook(other.URL, toll.EventWebhookDisabled)
		m.tell("1")
		began := m.clock.now()
		var at []time.Duration
		for m.clock.now().Sub(began) < 80*time.Hour {
			if n := m.deliver(m.events); n > 0 && len(r.all()) > len(at) {
				at = append(at, m.clock.now().Sub(began))
			}
			d := m.deliveries(w.ID)[0]
			if d.Status != toll.DeliveryPending {
				break
			}
			m.clock.advance(d.NextAttemptAt.Sub(m.clock.now()))
		}
		want := []time.Duration{0, 5 * time.Second, 35 * time.Second, 155 * time.Second, 755 * time.Second, 755*time.Second + time.Hour}
		for i, d := range want {
			if i >= len(at) || at[i].Round(time.Second) != d {
				t.Fatalf("attempts at %v, want %v ...", at[:min(len(at), 8)], want)
			}
		}
		last := at[len(at)-1]
		if last > 72*time.Hour || last < 71*time.Hour || len(at) != 5+71 {
			t.Errorf("%d attempts, the last after %v", len(at), last)
		}
		d := m.deliveries(w.ID)[0]
		if d.Status != toll.DeliveryFailed || d.LastStatus == nil || *d.LastStatus != 500 || d.CompletedAt == nil || d.NextAttemptAt != nil {
			t.Errorf("%+v", d)
		}
		ids := map[string]bool{}
		for _, got := range r.all() {
			ids[got.id] = true
		}
		if len(ids) != 1 {
			t.Errorf("an event under %d ids", len(ids))
		}
		// The next event fails as well, three days after the first failure.
		m.clock.advance(2 * time.Hour)
		m.tell("2")
		m.deliver(m.events)
		hook := must.Get(m.events.Webhook(t.Context(), builder, w.ID))(t)
		if hook.Status != toll.WebhookPaused {
			t.Fatalf("%+v", hook)
		}
		m.deliver(m.events)
		if got := other.all(); len(got) != 1 || got[0].event.Type != toll.EventWebhookDisabled || got[0].event.Object.ID != w.ID {
			t.Fatalf("%+v", got)
		}
		// Paused it gets nothing, and keeps its place: resumed it gets all.
		n := len(r.all())
		m.tell("3")
		m.clock.advance(3 * time.Hour)
		m.deliver(m.events)
		if len(r.all()) != n {
			t.Error("sent to a paused webhook")
		}
		r.answer = nil
		active := toll.WebhookActive
		resumed := must.Get(m.events.UpdateWebhook(t.Context(), builder, w.ID, WebhookParams{Status: &active}))(t)
		m.deliver(m.events)
		got := r.all()[n:]
		if len(got) != 2 || got[0].event.Object.ID != "2" || got[1].event.Object.ID != "3" || resumed.FailingSince != nil {
			t.Errorf("%d after it was resumed, %+v", len(got), resumed)
		}
	})
}

// T87
func TestOddReceivers(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	metadata := newReceiver(t, nil)
	redirect := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ delivered) {
		http.Redirect(w, r, metadata.URL, http.StatusTemporaryRedirect)
	})
	endless := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ delivered) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	a, b := m.hook(redirect.URL), m.hook(endless.URL)
	m.tell("1")
	began := time.Now()
	m.deliver(m.events)
	if time.Since(began) > patience {
		t.Error("the endless body was read")
	}
	if d := m.deliveries(a.ID)[0]; d.Status != toll.DeliveryPending || *d.LastStatus != 307 || len(metadata.all()) != 0 {
		t.Errorf("redirect: %+v, followed %d times", d, len(metadata.all()))
	}
	if d := m.deliveries(b.ID)[0]; d.Status != toll.DeliverySucceeded {
		t.Errorf("endless: %+v", d)
	}
	// The url changes while a delivery waits: the old one gets nothing more.
	moved := newReceiver(t, nil)
	must.Get(m.events.UpdateWebhook(t.Context(), builder, a.ID, WebhookParams{URL: &moved.URL}))(t)
	m.clock.advance(10 * time.Second)
	m.tell("2")
	m.deliver(m.events)
	if len(redirect.all()) != 1 || len(moved.all()) != 2 {
		t.Errorf("old %d, new %d", len(redirect.all()), len(moved.all()))
	}
	// Resent at the wish of the owner, and tested.
	again := must.Get(m.events.Resend(t.Context(), builder, a.ID, m.deliveries(a.ID)[0].ID))(t)
	test := must.Get(m.events.TestWebhook(t.Context(), builder, a.ID))(t)
	m.deliver(m.events)
	got := moved.all()[2:]
	if len(got) != 2 || again.Status != toll.DeliveryPending || test.Sequence != 0 {
		t.Fatalf("%d more", len(got))
	}
	if byType := got[0].event.Type + " " + got[1].event.Type; !strings.Contains(string(byType), "webhook.test") || !strings.Contains(string(byType), "plan.updated") {
		t.Error(byType)
	}
	if _, err := m.events.Resend(t.Context(), stranger, a.ID, m.deliveries(a.ID)[0].ID); !errors.Is(err, toll.NewError(toll.CodeWebhookNotFound)) {
		t.Error(err)
	}
}

// nobody has no address.
type nobody struct{}

func (nobody) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, errors.New("no such host")
}

// TestOneErrorForAll: what a webhook's owner is told of addresses that cannot be reached is one text.
// T109
func TestOneErrorForAll(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	gone := httptest.NewServer(nil)
	gone.Close()
	shut := m.room()
	shut.client = outbound.New(outbound.Config{Loopback: true, IgnoreBody: true, Timeout: patience, Resolver: nobody{}})
	hooks := []*toll.WebhookSecret{m.hook(gone.URL), m.hook("https://unknown.invalid/")}
	m.tell("1")
	m.deliver(shut)
	for _, w := range hooks {
		if d := m.deliveries(w.ID)[0]; d.LastError == nil || *d.LastError != noAnswer || d.LastStatus != nil {
			t.Errorf("%+v", d)
		}
	}
}

// TestKilledBetween: a sender that ends between claim, answer and note loses nothing. The event comes at least once, under
// one id, and events of one object come in their order.
// F14
func TestKilledBetween(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		for _, step := range []string{"fanned", "claimed", "sent"} {
			m := newMarket(t, st)
			r := newReceiver(t, nil)
			w := m.hook(r.URL)
			a, b := "a "+step, "b "+step
			m.tell(a)
			m.tell(a)
			m.tell(b)
			dying := m.room()
			dying.failpoint = func(at string) {
				if at == step {
					panic(errStop)
				}
			}
			func() {
				defer func() {
					if p := recover(); p != errStop {
						t.Fatalf("%s: %v", step, p)
					}
				}()
				m.deliver(dying)
			}()
			m.deliver(m.events)
			if all := r.all(); step != "fanned" {
				for _, d := range all {
					if d.event.Object.Sequence == 2 {
						t.Errorf("%s: the second event of an object came before the first was done", step)
					}
				}
			}
			m.clock.advance(lease + time.Second)
			m.deliver(m.events)
			seen := map[string][]int64{}
			for _, d := range r.all() {
				if n := len(seen[d.event.Object.ID]); n == 0 || seen[d.event.Object.ID][n-1] != d.event.Object.Sequence {
					seen[d.event.Object.ID] = append(seen[d.event.Object.ID], d.event.Object.Sequence)
				}
			}
			if fmt.Sprint(seen[a]) != "[1 2]" || fmt.Sprint(seen[b]) != "[1]" {
				t.Errorf("%s: %v", step, seen)
			}
			for _, d := range m.deliveries(w.ID) {
				if d.Status != toll.DeliverySucceeded {
					t.Errorf("%s: %+v", step, d)
				}
			}
			if n := len(r.all()); n < 3 || n > 4 {
				t.Errorf("%s: %d requests", step, n)
			}
			must.Do(t, m.events.DeleteWebhook(t.Context(), builder, w.ID))
		}
	})
}

// Two processes send: each delivery is sent once.
func TestWebhooks_TwoProcesses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		r := newReceiver(t, nil)
		w := m.hook(r.URL)
		const n = 60
		for i := range n {
			m.tell(fmt.Sprint(i % 7))
		}
		var stops []func()
		for range 2 {
			e := m.room()
			stops = append(stops, run(jobs.Loop{Every: deliverEvery, Wake: e.sender.wake, Run: jobs.Do(e.sender.run), End: e.sender.end}))
		}
		eventually(t, func() bool { return len(r.all()) >= n })
		eventually(t, func() bool {
			l := must.Get(store.Deliveries(t.Context(), st, w.ID, toll.DeliverySucceeded, store.Page{}))(t)
			return l.Total == n
		})
		for _, stop := range stops {
			stop()
		}
		last := map[string]int64{}
		for _, d := range r.all() {
			if d.event.Object.Sequence != last[d.event.Object.ID]+1 {
				t.Errorf("object %s: %d after %d", d.event.Object.ID, d.event.Object.Sequence, last[d.event.Object.ID])
			}
			last[d.event.Object.ID] = d.event.Object.Sequence
		}
		if len(r.all()) != n {
			t.Errorf("%d requests", len(r.all()))
		}
	})
}

// TestQueuesGrow: a receiver that is down does not let its queue grow without bound, delays no other and no settlement,
// and gets everything once it is back.
// T181
func TestQueuesGrow(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	m.events.client = outbound.New(outbound.Config{Loopback: true, IgnoreBody: true, Timeout: time.Hour}) // who is silent stays so
	release := make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(release) })
	silent := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ delivered) { <-release; w.WriteHeader(200) })
	down := m.hook(silent.URL)
	good := newReceiver(t, nil)
	const most = 400
	m.events.maxPending = most
	const n = most + fanOut + 100
	for i := range n {
		m.tell(fmt.Sprint(i))
	}
	must.Do(t, m.events.sender.fanOut(t.Context()))
	pending := must.Get(store.CountPending(t.Context(), st, down.ID, 1<<30))(t)
	if pending > most+fanOut {
		t.Errorf("%d wait", pending)
	}
	m.hook(good.URL)
	defer run(m.events.Loops()...)()
	eventually(t, func() bool { return len(silent.all()) == slotsOfHook }) // all that it may have at a time
	m.tell("more")
	token := m.token(subscriber, 0)
	m.mint(subscriber, 10, "o", time.Time{})
	m.settle(subscriber, token, 1, "r")
	m.drain(m.events)
	eventually(t, func() bool { return len(good.all()) == 3 }) // while the silent one keeps its deliveries waiting
	once.Do(func() { close(release) })
	within(t, 5*time.Minute, func() bool {
		w := must.Get(store.WebhookByID(t.Context(), st, down.ID))(t)
		left := must.Get(store.CountPending(t.Context(), st, down.ID, 1<<30))(t)
		return left == 0 && w.Sequence == n+3
	})
	if got := len(silent.all()); got != n+3 {
		t.Errorf("%d requests for %d events", got, n+3)
	}
}

func TestWebhooks_Bounds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx := t.Context()
		url := "https://example.com/hook"
		var wg sync.WaitGroup
		errs := make(chan error, 30)
		for range 30 {
			wg.Go(func() {
				_, err := m.events.CreateWebhook(ctx, builder, WebhookParams{URL: &url}, nil)
				errs <- err
			})
		}
		wg.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
			} else if !errors.Is(err, toll.NewError(toll.CodeWebhookTooMany)) {
				t.Error(err)
			}
		}
		if made != MaxWebhooks {
			t.Errorf("%d webhooks", made)
		}
		list := must.Get(m.events.Webhooks(ctx, builder, toll.WebhookActive, store.Page{Size: 50}))(t)
		if list.Total != MaxWebhooks || list.Items[0].Types == nil || len(list.Items[0].Types) != 0 {
			t.Errorf("%+v", list)
		}
		if _, err := m.events.Webhook(ctx, stranger, list.Items[0].ID); !errors.Is(err, toll.NewError(toll.CodeWebhookNotFound)) {
			t.Error(err)
		}
		bad, long := "https://10.0.0.1/", strings.Repeat("a", 2000)
		types := []toll.EventType{"plan.updated", "plan.exploded"}
		for _, p := range []WebhookParams{{URL: &bad}, {Types: &types}, {Description: &long}} {
			if _, err := m.events.UpdateWebhook(ctx, builder, list.Items[0].ID, p); err == nil {
				t.Errorf("%+v", p)
			}
		}
		must.Do(t, m.events.DeleteWebhook(ctx, builder, list.Items[0].ID))
		if err := m.events.DeleteWebhook(ctx, builder, list.Items[0].ID); !errors.Is(err, toll.NewError(toll.CodeWebhookNotFound)) {
			t.Error(err)
		}
	})
}
