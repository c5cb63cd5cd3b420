package card_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seller = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	buyer  = toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	noon   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const (
	secretKey    = "sk_test_scene0123456789"
	hookSecret   = "whsec_scene"
	installation = "6b1f9a52-6b0e-4a83-8a1e-1f0d3c5b7a90"
	public       = "https://toll.example"
	soon         = time.Minute // what has to come is waited for as long
)

// scene is a service with a card rail, real but for Stripe, which is the double over HTTP. At the
// end of a test the ledger and the orders are audited, and the books of both sides compared.
type scene struct {
	*testing.T
	ctx    context.Context
	store  *store.Store
	ledger *ledger.Ledger
	double *double.Double
	url    string // of the double
	stripe *stripe.Client
	http   *http.Client // a browser that does not follow redirects
	log    *logs

	now, machine atomic.Int64 // both clocks, in microseconds
	processes    []*process
	steps        sync.Map // failpoint -> what happens there once, a func()

	embedded bool   // the rail has a publishable key
	invoices bool   // Stripe makes an invoice of each page
	others   bool   // the double took money for other programs, which our books do not have
	secret   string // of the processes that start
	// refundFees is the bound of fees of refunded payments; 0: the default
	refundFees int64

	permissions map[toll.PlanID]toll.Hash // of the buyer
	cards       map[string]string         // of the buyer, by the name of a test card
	died        atomic.Bool               // a process was killed, and holds its jobs until their time

	between atomic.Pointer[middle] // what stands between the rail and the double; nil: nothing
}

// process is one process of the service.
type process struct {
	*checkout.Checkout
	s     *scene
	rail  *card.Rail
	queue *jobs.Queue
}

// each runs a test on each store, with one process.
func each(t *testing.T, f func(s *scene)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) { f(newScene(t, st)) })
}

func newScene(t *testing.T, st *store.Store, change ...func(*double.Options)) *scene {
	t.Helper()
	s := &scene{T: t, ctx: t.Context(), store: st, log: &logs{}, secret: secretKey, permissions: map[toll.PlanID]toll.Hash{}, cards: map[string]string{}}
	s.now.Store(noon.UnixMicro())
	s.machine.Store(noon.UnixMicro())
	opts := double.Options{Now: s.machineClock, SecretKey: secretKey}
	for _, c := range change {
		c(&opts)
	}
	must.Get(mock())(s) // on a busy machine it takes longer to load than a request may
	d := must.Get(double.New(opts))(s)
	server := httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		d.Close()
		server.Close()
	})
	s.double, s.url = d, server.URL
	jar, _ := cookiejar.New(nil)
	s.http = &http.Client{
		Jar: jar, Transport: s.transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: &s.url, HTTPClient: &http.Client{Transport: s.transport()}, MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	s.stripe = stripe.NewClient(secretKey, stripe.WithBackends(&stripe.Backends{API: backend, Connect: backend, Uploads: backend}))
	s.ledger = ledger.New(st, ledger.Config{Clock: s.clock, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	t.Cleanup(func() {
		s.audit()
		s.silent()
		must.Do(s, s.ledger.Close(context.Background()))
		if t.Failed() {
			t.Log(strings.Join(s.log.with(""), ""))
		}
	})
	s.start()
	return s
}

// transport opens a connection for each request, because net/http itself repeats a request with an
// idempotency key on one that breaks.
func (s *scene) transport() *http.Transport {
	t := &http.Transport{DisableKeepAlives: true}
	s.Cleanup(t.CloseIdleConnections)
	return t
}

// middle is what becomes of a request of the rail on its way.
type middle func(r *http.Request, next http.RoundTripper) (*http.Response, error)

type wayFunc func(r *http.Request) (*http.Response, error)

func (f wayFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// way is the way to the double, past what stands between.
func (s *scene) way(next http.RoundTripper) http.RoundTripper {
	return wayFunc(func(r *http.Request) (*http.Response, error) {
		if m := s.between.Load(); m != nil {
			return (*m)(r, next)
		}
		return next.RoundTrip(r)
	})
}

// put puts something between the rail and the double, nil for nothing.
func (s *scene) put(m middle) {
	if s.between.Store(nil); m != nil {
		s.between.Store(&m)
	}
}

func (s *scene) clock() time.Time        { return time.UnixMicro(s.now.Load()).UTC() }
func (s *scene) machineClock() time.Time { return time.UnixMicro(s.machine.Load()).UTC() }

// pass moves both clocks.
func (s *scene) pass(d time.Duration) {
	s.now.Add(d.Microseconds())
	s.machine.Add(d.Microseconds())
}

// start starts a process of the service.
func (s *scene) start() *process {
	s.Helper()
	cfg := card.Config{
		Store: s.store, Environment: toll.Sandbox, Installation: installation, SecretKey: s.secret, URL: s.url,
		WebhookSecrets: []string{hookSecret}, HTTP: &http.Client{Transport: shaped{s.T, s.way(s.transport())}}, Clock: s.clock, Machine: s.machineClock,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), At: s.reached,
		Link: func(use rail.Use, owner toll.Address, id string, ends time.Time) (string, error) {
			return fmt.Sprintf("%s%s?t=%s.%s.%d", public, use.Path(id), use, owner.Lower(), ends.Unix()), nil
		},
	}
	cfg.Invoices, cfg.RefundFees = s.invoices, s.refundFees
	if s.embedded {
		cfg.PublishableKey = "pk_test_scene"
	}
	r := must.Get(card.New(cfg))(s)
	p := &process{s: s, rail: r, queue: jobs.NewQueue(s.store, s.clock, cfg.Log)}
	p.Checkout = checkout.New(checkout.Deps{
		Store: s.store, Ledger: s.ledger, Clock: s.clock, Queue: p.queue, Rails: rail.Rails{rail.Card: r},
	})
	p.queue.Handle(store.JobCardSync, r.Sync)
	p.queue.Handle(store.JobCardDecide, r.RetryDecision)
	p.queue.Handle(store.JobCardRelease, r.Release)
	p.queue.Handle(store.JobCardRefund, r.SendRefund)
	p.queue.Handle(store.JobCardDetach, r.Detach)
	s.processes = append(s.processes, p)
	s.Cleanup(p.close)
	return p
}

// close ends a process in order.
func (p *process) close() {
	p.StopWaiting()
	must.Check(p.s, p.queue.Close(context.Background()))
}

// at returns the process that was started last.
func (s *scene) at() *process { return s.processes[len(s.processes)-1] }

// reached is every failpoint of every process.
func (s *scene) reached(step string) {
	if f, ok := s.steps.LoadAndDelete(step); ok {
		f.(func())()
	}
}

// errKilled is the panic of a process that ends at a failpoint.
var errKilled = errors.New("killed")

// kill ends the run that reaches a failpoint next, as a crash would.
func (s *scene) kill(step string) {
	s.steps.Store(step, func() { s.died.Store(true); panic(errKilled) })
}

// run runs due jobs of a process until none is due for the moment.
func (p *process) run() {
	p.s.Helper()
	for range 100 {
		n := must.Get(p.queue.RunDue(p.s.ctx))(p.s)
		if n == 0 {
			return
		}
	}
	p.s.Fatal("jobs do not end")
}

// later lets time pass, in steps of a minute, and runs what is due.
func (s *scene) later(d time.Duration) {
	s.Helper()
	for ; d > 0; d -= time.Minute {
		s.pass(min(d, time.Minute))
		s.at().run()
	}
}

// until waits for something that has to come.
func (s *scene) until(f func() bool) {
	s.Helper()
	for end := time.Now().Add(soon); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("it did not come")
		}
	}
}

// inBackground runs f beside the test.
func (s *scene) inBackground(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

// decided lets time pass until an order is decided, at least so much of the clocks. A run of another
// process that has begun gets a minute to end, as it needs time that no clock of a test moves. So does
// a caller who waits and is about to run the job: others pass over it until that is written.
func (s *scene) decided(orderID string, within time.Duration) {
	s.Helper()
	for end := time.Now().Add(soon); s.state(orderID).Open; within -= time.Minute {
		if !s.died.Load() {
			s.until(func() bool {
				s.at().run()
				return s.count("SELECT COUNT(*) FROM jobs WHERE holder <> '' OR key = $1 AND due <= $2 AND held_until <= $2",
					[]byte(orderID), s.now.Load()) == 0
			})
		}
		if within <= 0 {
			if time.Now().After(end) {
				row := s.row(orderID)
				s.Fatalf("the order is open: %s, attempt %d, undecided %t, %s", row.State, row.Attempt, row.Undecided, row.Data)
			}
			time.Sleep(20 * time.Millisecond)
		}
		s.later(time.Minute)
	}
}

// intent returns the payment intent of an order, as the double has it.
func (s *scene) intent(orderID string) *stripe.PaymentIntent {
	s.Helper()
	return must.Get(s.stripe.V1PaymentIntents.Retrieve(s.ctx, s.row(orderID).Intent, nil))(s)
}

// fault is a command to the double.
func (s *scene) fault(f double.Fault) {
	s.Helper()
	must.Do(s, s.double.Fault(f))
}

// plan registers a plan of 100 credits at 5.00 USD, as f changes it.
func (s *scene) plan(f ...func(p *toll.Plan)) *toll.Plan {
	s.Helper()
	p := &toll.Plan{
		ID: toll.NewPlanID(), Owner: seller, Metadata: toll.Metadata{Name: "Hundred calls"},
		Price: toll.Price{
			Currency: toll.CurrencyUSD, Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Receivers: []toll.Address{seller},
		},
		Credits:     toll.CreditsConfig{RedemptionType: 4, Amount: 100, MinAmount: 1, MaxAmount: 1},
		AccessLimit: toll.LimitCredits, IsListed: true, CreatedAt: s.clock(), UpdatedAt: s.clock(),
	}
	for _, f := range f {
		f(p)
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertPlan(s.ctx, tx, p, "", nil) }))
	return p
}

// order places an order that a person pays on a page, and returns its id when the first look at the page is over.
func (s *scene) order(p *toll.Plan) string {
	s.Helper()
	out, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
	must.Do(s, err)
	if !strings.HasPrefix(out.Result.URL, public+"/checkout/") || out.Result.SessionID == "" {
		s.Fatalf("no page: %+v", out.Result)
	}
	s.until(func() bool {
		return s.count("SELECT COUNT(*) FROM jobs WHERE key = $1 AND holder <> ''", []byte(out.OrderID)) == 0
	})
	return out.OrderID
}

// page returns the address of Stripe's page for an order.
func (s *scene) page(orderID string) string {
	s.Helper()
	shown := must.Get(s.at().rail.Page(s.ctx, orderID, true))(s)
	return shown.URL
}

// pay pays a page with a card, as a person in a browser does. It returns the status of the answer
// and where it leads.
func (s *scene) pay(page, number string) (status int, location string) {
	s.Helper()
	form := url.Values{"number": {number}, "expiry": {"12/30"}, "cvc": {"123"}, "name": {"Ada"}, "email": {"ada@example.com"}}
	return s.submit(page, form)
}

func (s *scene) submit(page string, form url.Values) (status int, location string) {
	s.Helper()
	r := must.Get(http.NewRequestWithContext(s.ctx, http.MethodPost, page, strings.NewReader(form.Encode())))(s)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	a := must.Get(s.http.Do(r))(s)
	defer func() { _ = a.Body.Close() }()
	must.Get(io.Copy(io.Discard, a.Body))(s)
	return a.StatusCode, a.Header.Get("Location")
}

// card enrols a test card of the buyer by its name, such as pm_card_visa, and returns the id of the
// payment method. A card is enrolled once.
func (s *scene) card(name string) string {
	s.Helper()
	if id, there := s.cards[name]; there {
		return id
	}
	u := must.Get(s.stripe.V1Customers.Create(s.ctx, &stripe.CustomerCreateParams{}))(s)
	m := must.Get(s.stripe.V1PaymentMethods.Attach(s.ctx, name, &stripe.PaymentMethodAttachParams{Customer: &u.ID}))(s)
	id := toll.NewUUID()
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
		err := store.PutCardMethod(s.ctx, tx, &store.CardMethod{
			Owner: buyer, ID: id, StripeID: m.ID, Customer: u.ID, Fingerprint: m.Card.Fingerprint, CheckedAt: s.clock(),
		})
		if err != nil {
			return err
		}
		return store.PutPaymentMethod(s.ctx, tx, &store.PaymentMethod{
			Owner: buyer, ID: id, Provider: toll.ProviderCard, Brand: string(m.Card.Brand), Last4: m.Card.Last4, ExpMonth: m.Card.ExpMonth,
			ExpYear: m.Card.ExpYear, CreatedAt: s.clock(),
		})
	}))
	s.cards[name] = id
	return id
}

// delegation makes one of the buyer with a card and a limit in cents.
func (s *scene) delegation(method string, cents int64) string {
	s.Helper()
	d := &store.Delegation{
		ID: toll.NewUUID(), Owner: buyer, Provider: toll.ProviderCard, PaymentMethod: method, Currency: "usd", Limit: cents,
		CreatedAt: s.clock(), ExpiresAt: s.clock().Add(30 * 24 * time.Hour),
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertDelegation(s.ctx, tx, d) }))
	return d.ID
}

// topUp buys the plan once through a delegation, for a request.
func (p *process) topUp(plan *toll.Plan, delegation, request string) error {
	_, err := p.TopUp(p.s.ctx, &checkout.TopUp{
		Plan: plan, Subscriber: buyer, DelegationID: delegation, Needed: toll.MaxCredits, RequestID: request, Wait: soon,
	})
	return err
}

// lastOrder returns the id of the order that was placed last.
func (s *scene) lastOrder() (id string) {
	s.Helper()
	must.Do(s, s.store.QueryRow(s.ctx, "SELECT order_id FROM orders ORDER BY created_at DESC, order_id DESC LIMIT 1").Scan(&id))
	return id
}

// remaining returns the cents that are left of a delegation.
func (s *scene) remaining(delegation string) int64 {
	s.Helper()
	d := must.Get(store.DelegationByID(s.ctx, s.store, delegation))(s)
	return d.Remaining()
}

// state returns the row of an order.
func (s *scene) state(orderID string) *store.Order {
	s.Helper()
	return must.Get(store.OrderByID(s.ctx, s.store, orderID))(s)
}

// row returns the payment of an order.
func (s *scene) row(orderID string) *store.CardPayment {
	s.Helper()
	return must.Get(store.CardPaymentByOrder(s.ctx, s.store, orderID))(s)
}

// granted fails the test unless an order is confirmed, with its credits.
func (s *scene) granted(orderID string) {
	s.Helper()
	o, p := s.state(orderID), s.row(orderID)
	if o.Status != toll.OrderConfirmed || o.Open || p.State != string(card.Paid) || p.Charge == "" || p.PaidAt.IsZero() {
		s.Fatalf("the order is not paid: %+v, %+v, %s", o, p, p.Data)
	}
}

// failed fails the test unless an order failed with a code.
func (s *scene) failed(orderID string, code toll.Code) {
	s.Helper()
	if o := s.state(orderID); o.Status != toll.OrderFailed || o.Open || o.FailureCode != code {
		s.Fatalf("the order has not failed with %s: %+v, %s", code, o, s.row(orderID).Data)
	}
}

// rejected fails the test unless so many payments of an order were given back as a whole.
func (s *scene) rejected(orderID string, n int64) {
	s.Helper()
	got := s.count("SELECT COUNT(*) FROM card_refunds WHERE order_id = $1 AND origin = 'rejected' AND state = 'succeeded'", orderID)
	all := s.count("SELECT COUNT(*) FROM card_refunds WHERE order_id = $1 AND origin = 'rejected'", orderID)
	back := int64(0)
	for _, p := range s.double.Books().Payments {
		if p.Metadata["order_id"] == orderID && p.Refunded == p.Captured {
			back++
		}
	}
	if got != n || all != n || back != n {
		s.Fatalf("%d payments were refunded, of %d refunds, %d at the double, want %d", got, all, back, n)
	}
}

// balance returns the credits of the buyer.
func (s *scene) balance(p *toll.Plan) toll.Credits {
	s.Helper()
	a := must.Get(s.ledger.Account(s.ctx, ledger.NewAccountID(p.ID, buyer)))(s)
	return a.Balance
}

// charges returns how often the double took money, and the sum in cents of USD.
func (s *scene) charges() (n int, cents int64) {
	if sums := s.double.Books().Currencies["usd"]; sums != nil {
		return sums.Charges, sums.Captured
	}
	return 0, 0
}

// alarms returns the log lines of alarms so far.
func (s *scene) alarms() []string { return s.log.with("alarm: ") }

func (s *scene) code(err error, want toll.Code) {
	s.Helper()
	if err == nil || toll.AsError(err).Code != want {
		s.Fatalf("got the error %v, want %s", err, want)
	}
}

// count runs a statement that returns a number.
func (s *scene) count(statement string, args ...any) (n int64) {
	s.Helper()
	must.Do(s, s.store.QueryRow(s.ctx, statement, args...).Scan(&n))
	return n
}
