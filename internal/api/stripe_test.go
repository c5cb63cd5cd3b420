package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// cards is a stack whose card rail takes every event whose head it does not refuse, and remembers
// them.
type cards struct {
	*stack
	*card.Rail
	mu     sync.Mutex
	events []string // signature and body
	fails  error
}

func newCards(t *testing.T) *cards {
	t.Helper()
	c := &cards{stack: newStack(t)}
	c.Rail = newRail(c.stack)
	c.handler = api.New(c.deps(func(d *api.Deps) { d.Rails.StripeEvents = c }))
	server := c.serve(c.handler)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// Receive takes an event without a look at it.
func (c *cards) Receive(_ context.Context, signature string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, signature+"\n"+string(body))
	return c.fails
}

// newRail returns a card rail on a stack. No processor is there.
func newRail(s *stack, secrets ...string) *card.Rail {
	s.t.Helper()
	return must.Get(card.New(card.Config{
		Store: s.store, Environment: toll.Sandbox, SecretKey: "sk_test_0123456789", WebhookSecrets: secrets, URL: "http://127.0.0.1:1",
		HTTP: &http.Client{}, Clock: s.clock.now, Machine: s.clock.now, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}))(s.t)
}

// taken returns the events that have reached the rail since it was asked last.
func (c *cards) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.events = nil }()
	return c.events
}

const stripePath = base + "/fiat/stripe/webhook"

func (c *cards) signature(age time.Duration) string {
	return fmt.Sprintf("t=%d,v1=%064x", c.clock.now().Add(-age).Unix(), 1)
}

// The service refuses an event before it reads the body, unless it has one Stripe-Signature header
// whose time is within five minutes of the clock. It passes the other events to the card rail byte
// for byte.
// T74
func TestStripeEventHead(t *testing.T) {
	c := newCards(t)
	c.clock.advance(128 * time.Millisecond) // to a whole second
	for name, tt := range map[string]struct {
		headers []string
		ok      bool
	}{
		"none":         {nil, false},
		"empty":        {[]string{""}, false},
		"two":          {[]string{c.signature(0), c.signature(0)}, false},
		"no time":      {[]string{"v1=00"}, false},
		"bad time":     {[]string{"t=yesterday,v1=00"}, false},
		"huge time":    {[]string{"t=99999999999999999999,v1=00"}, false},
		"last time":    {[]string{"t=9223372036854775807,v1=00"}, false},
		"first time":   {[]string{"t=-9223372036854775808,v1=00"}, false},
		"301 s old":    {[]string{c.signature(301 * time.Second)}, false},
		"301 s ahead":  {[]string{c.signature(-301 * time.Second)}, false},
		"300 s old":    {[]string{c.signature(300 * time.Second)}, true},
		"300 s ahead":  {[]string{c.signature(-300 * time.Second)}, true},
		"now":          {[]string{c.signature(0)}, true},
		"spaces":       {[]string{" v1=00, " + c.signature(0)}, false}, // Stripe sends none, and its library takes none
		"two times":    {[]string{"t=1," + c.signature(0)}, false},
		"other scheme": {[]string{strings.Replace(c.signature(0), "v1", "v0", 1)}, true}, // which the rail refuses
	} {
		t.Run(name, func(t *testing.T) {
			head := "POST " + stripePath + " HTTP/1.1\r\nHost: x\r\n"
			for _, h := range tt.headers {
				head += "Stripe-Signature: " + h + "\r\n"
			}
			if !tt.ok { // the body never comes
				answers, closed := c.raw(t, head+"Content-Length: 100000\r\n\r\n")
				if len(answers) != 1 || !closed || answers[0].status != 400 || answers[0].code() != string(toll.CodeWebhookSignature) {
					t.Fatalf("%+v, closed %t", answers, closed)
				}
				if got := c.taken(); got != nil {
					t.Errorf("the rail has got %q", got)
				}
				return
			}
			const body = " { \"id\": \"evt_1\",\n\"id\":1} "
			answers, _ := c.raw(t, head+"Content-Type: text/plain\r\nContent-Encoding: gzip\r\nService-Version: 9.9\r\nConnection: close\r\n"+
				fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)), body)
			if len(answers) != 1 || answers[0].status != 200 || string(answers[0].body) != `{"received":true}` {
				t.Fatalf("%+v", answers)
			}
			if got := c.taken(); len(got) != 1 || got[0] != strings.TrimSpace(tt.headers[0])+"\n"+body {
				t.Errorf("the rail has got %q", got)
			}
		})
	}
	c.fails = toll.NewError(toll.CodeWebhookSignature)
	if a := c.do(actor{}, "POST", stripePath, "{}", "Stripe-Signature", c.signature(0)); a.status != 400 || a.code() != string(toll.CodeWebhookSignature) {
		t.Errorf("refused by the rail: %d %s", a.status, a.body)
	}
}

// The service refuses a body of more than 512 KiB: at once if Content-Length announces it, else
// after it has read that many bytes.
// T86
func TestStripeEventSize(t *testing.T) {
	c := newCards(t)
	const most = 512 << 10
	head := "POST " + stripePath + " HTTP/1.1\r\nHost: x\r\nStripe-Signature: " + c.signature(0) + "\r\n"
	for _, n := range []int{most + 1, 2 << 20} {
		answers, closed := c.raw(t, head+fmt.Sprintf("Content-Length: %d\r\n\r\n", n))
		if len(answers) != 1 || !closed || answers[0].status != 413 {
			t.Errorf("%d bytes: %+v, closed %t", n, answers, closed)
		}
		answers, closed = c.raw(t, head+fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", n)))
		if len(answers) != 1 || !closed || answers[0].status != 413 {
			t.Errorf("%d bytes in chunks: %+v, closed %t", n, answers, closed)
		}
	}
	if got := c.taken(); got != nil {
		t.Errorf("the rail has got %d events", len(got))
	}
	body := strings.Repeat("x", most)
	if a := c.do(actor{}, "POST", stripePath, body, "Stripe-Signature", c.signature(0)); a.status != 200 {
		t.Errorf("at the limit: %d %s", a.status, a.body)
	}
	if got := c.taken(); len(got) != 1 || len(got[0]) != len(c.signature(0))+1+most {
		t.Error("the body at the limit has not come in whole")
	}
}

// hook is a stack on a store whose route of events leads to the real rail. The processor is not asked for them.
type hook struct {
	*stack
	rail *card.Rail
}

func newHook(t *testing.T, st *store.Store, secrets ...string) *hook {
	t.Helper()
	h := &hook{stack: newStackOn(t, st)}
	h.rail = newRail(h.stack, secrets...)
	h.handler = api.New(h.deps(func(d *api.Deps) { d.Rails.StripeEvents = h.rail }))
	server := h.serve(h.handler)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// sent posts an event whose signature is as much later than the clock as after says. It fails the
// test unless the answer has this status, and the database this number of events.
func (h *hook) sent(what string, after time.Duration, signed, body string, status, events int, secrets ...string) {
	h.t.Helper()
	a := h.do(actor{}, "POST", stripePath, body, "Stripe-Signature", double.Sign(h.clock.now().Add(after), []byte(signed), secrets...))
	var n int
	must.Do(h.t, h.store.QueryRow(h.t.Context(), "SELECT COUNT(*) FROM card_events").Scan(&n))
	if a.status != status || n != events || status == 200 && string(a.body) != `{"received":true}` ||
		status == 400 && a.code() != string(toll.CodeWebhookSignature) {
		h.t.Errorf("%s: %d %s, %d events, want %d and %d", what, a.status, a.body, n, status, events)
	}
}

func stripeEvent(id, more string) string {
	return fmt.Sprintf(`{"id":%q,"object":"event","type":"refund.created","livemode":false,"data":{"object":{"id":"re_1"}}%s}`, id, more)
}

// The service stores an event once, and only if one of the two secrets signed it within five
// minutes of the clock.
// T74
func TestStripeEventSigned(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const one, two = "whsec_one", "whsec_two"
		h := newHook(t, st, one, two)
		h.clock.advance(128 * time.Millisecond) // to a whole second
		body := stripeEvent("evt_1", "")
		h.sent("another secret", 0, body, body, 400, 0, "whsec_other")
		h.sent("no secret", 0, body, body, 400, 0, "")
		h.sent("a changed byte", 0, body, strings.Replace(body, "re_1", "re_2", 1), 400, 0, one)
		h.sent("a byte more", 0, body, body+" ", 400, 0, one)
		h.sent("301 s old", -301*time.Second, body, body, 400, 0, one)
		h.sent("301 s ahead", 301*time.Second, body, body, 400, 0, two)
		h.sent("300 s old", -300*time.Second, body, body, 200, 1, one)
		h.sent("300 s ahead, by the other secret", 300*time.Second, body, body, 200, 1, two) // a repeat
		next := stripeEvent("evt_2", "")
		h.sent("while a secret is rotated", 0, next, next, 200, 2, "whsec_next", two)
	})
}

// The service answers events of another account, of another mode and of unused types with 200, and
// malformed ones as well. It stores none of them.
// T77
func TestStripeEventsOfOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const secret = "whsec_one"
		h := newHook(t, st, secret)
		for _, body := range []string{
			stripeEvent("evt_1", `,"livemode":true`), stripeEvent("evt_2", `,"account":"acct_other"`), "[]", "", "{",
			strings.Replace(stripeEvent("evt_3", ""), "refund.created", "customer.created", 1),
		} {
			h.sent(body, 0, body, body, 200, 0, secret)
		}
		if n := strings.Count(h.log.String(), "alarm: "); n != 1 {
			t.Errorf("%d alarms in a minute:\n%s", n, h.log.String())
		}
	})
}
