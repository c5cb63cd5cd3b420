package double_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

// receiver takes webhooks and checks them as a program with stripe-go does.
type receiver struct {
	*httptest.Server
	clock *clock

	mu     sync.Mutex
	got    []stripe.Event
	answer func(n int) int // status of the nth webhook
}

func receive(t *testing.T, secrets ...string) *receiver {
	r := &receiver{answer: func(int) int { return 200 }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		header := q.Header.Get("Stripe-Signature")
		for _, secret := range secrets {
			if err := webhook.ValidatePayloadIgnoringTolerance(body, header, secret); err != nil {
				t.Errorf("the secret %s: %v", secret, err)
			}
		}
		// The clock that was given, whatever the double's own clock says.
		at, now := int64(0), r.clock.now().Unix()
		if _, err := fmt.Sscanf(header, "t=%d,", &at); err != nil || at > now || at < newClock().t.Unix() {
			t.Errorf("the signature is %s at %d: %v", header, now, err)
		}
		e, err := webhook.ConstructEventIgnoringTolerance(body, header, secrets[0])
		must.Check(t, err)
		r.got = append(r.got, e)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(r.answer(len(r.got)))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.got {
		out = append(out, string(e.Type))
	}
	return out
}

// until waits for webhooks, at most a minute.
func (r *receiver) until(t *testing.T, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got := r.types()
		if len(got) >= len(want) {
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func hooked(t *testing.T) (*stand, *receiver) {
	r := receive(t, "whsec_old", "whsec_new")
	w := double.Webhook{URL: r.URL + "/hook", Secrets: []string{"whsec_old", "whsec_new"}}
	s := start(t, func(o *double.Options) {
		r.clock = newClock()
		o.Now = r.clock.now
		o.Webhooks = []double.Webhook{w}
	})
	s.clock = r.clock
	return s, r
}

var paidEvents = []string{
	"customer.created", "payment_method.attached", "payment_intent.created", "charge.succeeded", "payment_intent.succeeded",
}

func TestWebhooks(t *testing.T) {
	s, r := hooked(t)
	s.charge("pm_card_visa", 500)
	r.until(t, paidEvents...)
	for e, err := range s.sc.V1Events.List(s.ctx, nil).All(s.ctx) {
		if err != nil || e.PendingWebhooks > 1 {
			t.Errorf("got %+v, %v", e, err)
		}
	}
	if r.got[4].Data.Object["status"] != "succeeded" || r.got[4].APIVersion != stripe.APIVersion {
		t.Errorf("got %+v", r.got[4])
	}
}

func TestWebhooks_Retried(t *testing.T) {
	s, r := hooked(t)
	r.answer = func(n int) int { return []int{500, 302, 200}[n-1] }
	s.customer()
	r.until(t, "customer.created")
	for len(r.types()) < 3 { // the pauses follow the clock
		s.clock.move(time.Second)
		time.Sleep(5 * time.Millisecond)
	}
	r.until(t, "customer.created", "customer.created", "customer.created")
	if r.got[0].ID != r.got[2].ID {
		t.Error("a retry has another id")
	}
}

func TestFaults_Webhooks(t *testing.T) {
	for name, c := range map[string]struct {
		fault double.Fault
		want  []string
	}{
		"lose":    {double.Fault{Kind: "lose", Type: "charge.succeeded"}, slices.Delete(slices.Clone(paidEvents), 3, 4)},
		"lose 4":  {double.Fault{Kind: "lose", Count: 4}, paidEvents[4:]},
		"double":  {double.Fault{Kind: "double", Type: "charge.succeeded"}, slices.Insert(slices.Clone(paidEvents), 3, "charge.succeeded")},
		"reorder": {double.Fault{Kind: "reorder", Count: 5}, []string{paidEvents[4], paidEvents[3], paidEvents[2], paidEvents[1], paidEvents[0]}},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := hooked(t)
			s.fault(c.fault)
			s.charge("pm_card_visa", 500)
			r.until(t, c.want...)
		})
	}
	t.Run("delay", func(t *testing.T) {
		s, r := hooked(t)
		s.fault(double.Fault{Kind: "delay", Seconds: 100, Type: "charge.succeeded"})
		s.charge("pm_card_visa", 500)
		rest := slices.Delete(slices.Clone(paidEvents), 3, 4)
		r.until(t, rest...)
		s.fault(double.Fault{Kind: "clock", Seconds: 100}) // the signature keeps the time of the clock that was given
		r.until(t, append(rest, "charge.succeeded")...)
	})
}

func TestFaults_Requests(t *testing.T) {
	s := start(t)
	u := s.customer()
	m := s.card(u.ID, "pm_card_visa")
	pay := func(key string) error {
		p := offSession(u.ID, m.ID, 500)
		p.SetIdempotencyKey(key)
		_, err := s.sc.V1PaymentIntents.Create(s.ctx, p)
		return err
	}
	charges := func(want int) {
		t.Helper()
		if got := len(s.d.Books().Payments); got != want {
			t.Errorf("%d charges, want %d", got, want)
		}
	}
	on := func(kind string, after bool) {
		s.fault(double.Fault{Kind: kind, After: after, Method: "POST", Path: "/v1/payment_intents"})
	}
	on("cut", true)
	if err := pay("a"); err == nil {
		t.Error("no cut")
	}
	charges(1)
	must.Check(t, pay("a"))
	charges(1)
	on("cut", false)
	if err := pay("b"); err == nil {
		t.Error("no cut")
	}
	charges(1)
	must.Check(t, pay("b"))
	charges(2)
	on("500", true)
	refused(t, pay("c"), 500, "")
	refused(t, pay("c"), 500, "") // the 500 is the outcome
	charges(3)
	on("500", false)
	refused(t, pay("d"), 500, "")
	refused(t, pay("d"), 500, "")
	charges(3)
	on("429", false)
	refused(t, pay("e"), 429, "rate_limit")
	must.Check(t, pay("e"))
	charges(4)

	s.fault(double.Fault{Kind: "hang", After: true, Seconds: 600, Path: "/v1/payment_intents"})
	ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	defer cancel()
	p := offSession(u.ID, m.ID, 500)
	p.SetIdempotencyKey("f")
	if _, err := s.sc.V1PaymentIntents.Create(ctx, p); err == nil {
		t.Error("no hang")
	}
	for len(s.d.Books().Payments) < 5 {
		time.Sleep(5 * time.Millisecond)
	}
	refused(t, pay("f"), http.StatusConflict, "idempotency_key_in_use")
	on("429", false)
	s.fault(double.Fault{Kind: "clear"})
	must.Check(t, pay("g"))
}

// A page whose name was made to lead to this machine reaches nothing; other machines name the double as they know it.
func TestOtherHosts(t *testing.T) {
	d := must.Get(double.New(double.Options{PublicURL: "https://cards.example"}))(t)
	t.Cleanup(d.Close)
	for _, c := range []struct {
		from, host string
		status     int
	}{
		{"127.0.0.1:5", "127.0.0.1:8406", 200}, {"127.0.0.1:5", "localhost", 200}, {"[::1]:5", "[::1]:8406", 200},
		{"127.0.0.1:5", "cards.example", 200}, {"192.0.2.7:5", "card-double:8406", 200},
		{"127.0.0.1:5", "evil.example:8406", 403}, {"127.0.0.1:5", "127.0.0.1.evil.example", 403}, {"127.0.0.1:5", "", 403},
	} {
		r := httptest.NewRequest("GET", "http://x/v1/account", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		if d.Handler().ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%+v: got %d %s", c, w.Code, w.Body)
		}
	}
}

func TestCommands(t *testing.T) {
	s := start(t)
	ch := s.charge("pm_card_visa", 500)
	post := func(body string, header ...string) (int, map[string]any) {
		return s.raw("POST", "/_double/faults", body, append([]string{"Content-Type", "application/json"}, header...)...)
	}
	if status, m := post(`{"kind":"refund","object":"` + ch.ID + `","amount":200}`); status != 200 {
		t.Errorf("got %d %v", status, m)
	}
	_, m := s.raw("GET", "/_double/books", "")
	if usd := m["currencies"].(map[string]any)["usd"]; fmt.Sprint(usd) != "map[captured:500 charges:1 disputed:0 fees:44 net:256 refunded:200]" {
		t.Errorf("the books are %v", usd)
	}
	for _, body := range []string{
		`{`, `{"kind":"nonsense"}`, `{"kind":"cut","more":1}`, `{"kind":"hang","seconds":601}`, `{"kind":"refund","object":"ch_none"}`,
		`{"kind":"refund","object":"` + ch.ID + `","amount":301}`, `{"kind":"won","object":"` + ch.ID + `"}`,
		`{"kind":"clock","seconds":99999999999}`, strings.Repeat(" ", 5000) + `{"kind":"clear"}`,
	} {
		if status, m := post(body); status != 400 {
			t.Errorf("%s: got %d %v", body, status, m)
		}
	}
	for name, header := range map[string][]string{
		"a proxy":     {"X-Forwarded-For", "203.0.113.1"},
		"a web page":  {"Origin", "https://evil.example"},
		"another key": {"Authorization", "Bearer sk_test_other0123456789"},
	} {
		if status, m := post(`{"kind":"clear"}`, header...); status != 403 && status != 401 {
			t.Errorf("%s: got %d %v", name, status, m)
		}
	}
	r := httptest.NewRequest("GET", "http://127.0.0.1/_double/books", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	for remote, host := range map[string]string{"203.0.113.1:1": "127.0.0.1", "127.0.0.1:1": "toll.example"} {
		r.RemoteAddr, r.Host = remote, host
		w := httptest.NewRecorder()
		if s.d.Handler().ServeHTTP(w, r); w.Code != 403 {
			t.Errorf("%s, %s: got %d", remote, host, w.Code)
		}
	}
	for i := range 101 {
		if err := s.d.Fault(double.Fault{Kind: "429"}); (err != nil) != (i == 100) {
			t.Errorf("fault %d: %v", i, err)
		}
	}
}
