package double_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk_test_double0123456789"

// clock is a clock that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// stand is a double behind a server, and a client of Stripe that talks to it.
type stand struct {
	t     *testing.T
	d     *double.Double
	url   string
	sc    *stripe.Client
	clock *clock
	ctx   context.Context
	http  *http.Client // a browser that does not follow redirects
}

func start(t *testing.T, change ...func(*double.Options)) *stand {
	t.Helper()
	s := &stand{t: t, clock: newClock(), ctx: t.Context()}
	opts := double.Options{Now: s.clock.now, SecretKey: key}
	for _, c := range change {
		c(&opts)
	}
	d := must.Get(double.New(opts))(t)
	server := httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		d.Close()
		server.Close()
	})
	s.d, s.url = d, server.URL
	s.sc = s.client(key)
	jar, _ := cookiejar.New(nil)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return s
}

// client is stripe-go, with its requests and answers checked against Stripe's specification.
//
// It opens a connection for each request: on one that was used before, net/http itself repeats a
// request with an idempotency key when the answer does not come.
func (s *stand) client(key string) *stripe.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(s.url),
		HTTPClient:        &http.Client{Transport: &checking{s.t, transport}},
		MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return stripe.NewClient(key, stripe.WithBackends(&stripe.Backends{API: backend, Connect: backend, Uploads: backend}))
}

// refused returns the error of Stripe that a request got.
func refused(t *testing.T, err error, status int, code stripe.ErrorCode) *stripe.Error {
	t.Helper()
	var e *stripe.Error
	if !errors.As(err, &e) || e.HTTPStatusCode != status || e.Code != code {
		t.Fatalf("got %v, want an error with status %d and code %q", err, status, code)
	}
	return e
}

func (s *stand) customer() *stripe.Customer {
	s.t.Helper()
	return must.Get(s.sc.V1Customers.Create(s.ctx, &stripe.CustomerCreateParams{
		Metadata: map[string]string{"address": "0xabc", "installation": "i1"},
	}))(s.t)
}

// card attaches the payment method of a test card.
func (s *stand) card(customer, name string) *stripe.PaymentMethod {
	s.t.Helper()
	return must.Get(s.sc.V1PaymentMethods.Attach(s.ctx, name, &stripe.PaymentMethodAttachParams{Customer: &customer}))(s.t)
}

func offSession(customer, method string, cents int64) *stripe.PaymentIntentCreateParams {
	return &stripe.PaymentIntentCreateParams{
		Amount:             stripe.Int64(cents),
		Currency:           stripe.String("usd"),
		Customer:           stripe.String(customer),
		PaymentMethod:      stripe.String(method),
		PaymentMethodTypes: []*string{stripe.String("card")},
		Confirm:            stripe.Bool(true),
		OffSession:         stripe.Bool(true),
		CaptureMethod:      stripe.String("automatic"),
		Metadata:           map[string]string{"order_id": "o1"},
	}
}

// charge pays off session and returns the charge.
func (s *stand) charge(card string, cents int64) *stripe.Charge {
	s.t.Helper()
	u := s.customer()
	p := offSession(u.ID, s.card(u.ID, card).ID, cents)
	p.AddExpand("latest_charge")
	return must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(s.t).LatestCharge
}

func (s *stand) fault(f double.Fault) {
	s.t.Helper()
	must.Do(s.t, s.d.Fault(f))
}

// later moves the clock over the time that things take.
func (s *stand) later() { s.fault(double.Fault{Kind: "clock", Seconds: 3}) }

func payment(cents int64) *stripe.CheckoutSessionCreateParams {
	return &stripe.CheckoutSessionCreateParams{
		Mode:               stripe.String("payment"),
		UIMode:             stripe.String("hosted_page"),
		SuccessURL:         stripe.String("https://shop.example/done?s={CHECKOUT_SESSION_ID}"),
		CancelURL:          stripe.String("https://shop.example/cart"),
		PaymentMethodTypes: []*string{stripe.String("card")},
		AdaptivePricing:    &stripe.CheckoutSessionCreateAdaptivePricingParams{Enabled: stripe.Bool(false)},
		ClientReferenceID:  stripe.String("o1"),
		Metadata:           map[string]string{"order_id": "o1"},
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{
			Metadata:                  map[string]string{"order_id": "o1"},
			StatementDescriptorSuffix: stripe.String("PLAN"),
		},
		LineItems: []*stripe.CheckoutSessionCreateLineItemParams{{
			Quantity: stripe.Int64(1),
			PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
				Currency:    stripe.String("usd"),
				UnitAmount:  stripe.Int64(cents),
				ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: stripe.String("Plan <b>")},
			},
		}},
	}
}

func setup(customer string) *stripe.CheckoutSessionCreateParams {
	return &stripe.CheckoutSessionCreateParams{
		Mode:               stripe.String("setup"),
		Customer:           stripe.String(customer),
		SuccessURL:         stripe.String("https://shop.example/cards"),
		PaymentMethodTypes: []*string{stripe.String("card")},
		SetupIntentData:    &stripe.CheckoutSessionCreateSetupIntentDataParams{Metadata: map[string]string{"installation": "i1"}},
	}
}

func (s *stand) session(p *stripe.CheckoutSessionCreateParams) *stripe.CheckoutSession {
	s.t.Helper()
	return must.Get(s.sc.V1CheckoutSessions.Create(s.ctx, p))(s.t)
}

func (s *stand) reload(id string, expand ...string) *stripe.CheckoutSession {
	s.t.Helper()
	p := &stripe.CheckoutSessionRetrieveParams{}
	for _, e := range expand {
		p.AddExpand(e)
	}
	return must.Get(s.sc.V1CheckoutSessions.Retrieve(s.ctx, id, p))(s.t)
}

// page is what a browser gets.
type page struct {
	status   int
	location string
	body     string
	header   http.Header
}

func (s *stand) browse(r *http.Request) page {
	s.t.Helper()
	a := must.Get(s.http.Do(r))(s.t)
	defer a.Body.Close()
	b := must.Get(io.ReadAll(a.Body))(s.t)
	return page{a.StatusCode, a.Header.Get("Location"), string(b), a.Header}
}

func (s *stand) open(u string) page {
	s.t.Helper()
	return s.browse(must.Get(http.NewRequestWithContext(s.ctx, http.MethodGet, u, nil))(s.t))
}

func (s *stand) submit(u string, form url.Values) page {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(s.ctx, http.MethodPost, u, strings.NewReader(form.Encode())))(s.t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.browse(r)
}

func typed(number string) url.Values {
	return url.Values{"number": {number}, "expiry": {"12/30"}, "cvc": {"123"}, "name": {"Ada"}, "email": {"ada@example.com"}}
}

// raw sends a request without stripe-go.
func (s *stand) raw(method, path, body string, header ...string) (int, map[string]any) {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(s.ctx, method, s.url+path, bytes.NewReader([]byte(body))))(s.t)
	r.Header.Set("Authorization", "Bearer "+key)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	p := s.browse(r)
	var m map[string]any
	if err := json.Unmarshal([]byte(p.body), &m); err != nil {
		s.t.Fatalf("status %d: %q is no JSON: %v", p.status, p.body, err)
	}
	return p.status, m
}

// eventTypes are the types of all events, oldest first.
func (s *stand) eventTypes() []string {
	s.t.Helper()
	p := &stripe.EventListParams{}
	p.Limit = stripe.Int64(100)
	var out []string
	for e, err := range s.sc.V1Events.List(s.ctx, p).All(s.ctx) {
		must.Do(s.t, err)
		out = append([]string{string(e.Type)}, out...)
	}
	return out
}
