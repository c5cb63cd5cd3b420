package pay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

var (
	b1 = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	b2 = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
	s1 = toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	s2 = toll.MustAddress("0x90F79bf6EB2c4f870365E785982E1f101E93b906")

	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const askURL = "https://a.example/ask"

// clock is set by the test.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time      { return time.UnixMicro(c.us.Load()).UTC() }
func (c *clock) set(t time.Time)     { c.us.Store(t.UnixMicro()) }
func (c *clock) add(d time.Duration) { c.us.Add(d.Microseconds()) }

// instance is one service process: what it shares with the others is the database and the master key.
type instance struct {
	store    *store.Store
	auth     *auth.Auth
	ledger   *ledger.Ledger
	checkout *checkout.Checkout
	*pay.Facilitator
}

// scene is a service and its actors.
type scene struct {
	testing.TB
	ctx   context.Context
	clock *clock
	rail  *railtest.Rail // pays crypto plans
	inst  []*instance
}

func (s *scene) at(i int) *instance { return s.inst[i%len(s.inst)] }
func (s *scene) one() *instance     { return s.inst[0] }

// each runs a test on all stores: two instances on PostgreSQL, one on SQLite. The invariants are checked at its end.
func each(t *testing.T, f func(s *scene)) {
	t.Helper()
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			n := 2
			if v == storetest.SQLite {
				n = 1
			}
			f(newScene(t, v, n))
		})
	}
}

// newScene starts the instances. change, which may be missing, changes what the checkout of each is built on.
func newScene(t testing.TB, v storetest.Variant, instances int, change ...func(*scene, *checkout.Deps)) *scene {
	t.Helper()
	s := &scene{TB: t, ctx: context.Background(), clock: &clock{}, rail: railtest.New()}
	s.clock.set(start)
	cfg := storetest.Config(t, v)
	ring := seal.New([32]byte{1})
	for range instances {
		st := storetest.OpenConfig(t, cfg)
		a := must.Get(auth.Bootstrap(s.ctx, st, ring, auth.Config{
			Issuer: "https://pay.example.com/api/v1", ClaimObject: x402.Default.Scheme, Clock: s.clock.now,
		}))(s)
		l := ledger.New(st, ledger.Config{Clock: s.clock.now, MACKey: a.MACKey()})
		queue := jobs.NewQueue(st, s.clock.now, nil)
		deps := checkout.Deps{
			Store: st, Ledger: l, Queue: queue, Rails: rail.Rails{rail.Crypto: s.rail}, Clock: s.clock.now,
			SignReference: a.SignReference, OpenReference: a.OpenReference,
		}
		for _, f := range change {
			f(s, &deps)
		}
		c := checkout.New(deps)
		i := &instance{store: st, auth: a, ledger: l, checkout: c}
		i.Facilitator = i.pays(s, func(f *pay.Deps, t *tokens.Deps, _ *purchases.Deps) {
			f.TopUpWait, f.Horizon = time.Minute, horizon
			f.FreeHolds, t.Quota = -1, -1 // benchmarks do nothing else
		})
		s.inst = append(s.inst, i)
		t.Cleanup(func() {
			must.Check(t, errors.Join(queue.Close(context.Background()), l.Close(context.Background())))
		})
	}
	t.Cleanup(s.audit)
	return s
}

// pays returns a facilitator of the instance, whose dependencies change may set.
func (i *instance) pays(s *scene, change func(*pay.Deps, *tokens.Deps, *purchases.Deps)) *pay.Facilitator {
	f := pay.Deps{Store: i.store, Ledger: i.ledger, Auth: i.auth, Checkout: i.checkout, Clock: s.clock.now}
	t := tokens.Deps{Store: i.store, Ledger: i.ledger, Auth: i.auth, Checkout: i.checkout, Clock: s.clock.now}
	p := purchases.Deps{Store: i.store, Auth: i.auth, Checkout: i.checkout, Clock: s.clock.now}
	change(&f, &t, &p)
	if f.Catalogue == nil {
		f.Catalogue = catalogue.New(i.store, catalogue.Brand{}, s.clock.now, nil)
	}
	t.Catalogue, p.Catalogue = f.Catalogue, f.Catalogue
	f.Tokens = tokens.New(t)
	p.Tokens = f.Tokens
	f.Purchases = purchases.New(p)
	return pay.New(f)
}

// audit checks the invariants of threats.md, section 16, that the records can show.
func (s *scene) audit() {
	s.Helper()
	found, err := s.one().ledger.Audit(context.Background())
	must.Check(s, err)
	for _, f := range found {
		s.Error(f)
	}
	// I12, I14: each order has one mint, each ordering mint its order, and the counters of plans and accounts agree.
	for name, q := range map[string]string{
		"orders without their lot": `SELECT count(*) FROM orders o LEFT JOIN lots l ON l.account_id = o.account_id AND l.ref = o.order_id
			AND l.granted = o.credits WHERE o.status IN ('confirmed', 'final') AND l.lot_id IS NULL`,
		"lots without their order": `SELECT count(*) FROM lots l LEFT JOIN orders o ON o.account_id = l.account_id AND l.ref = o.order_id
			WHERE substr(l.ref, 1, 5) NOT IN ('mint:', 'back:') AND o.order_id IS NULL`,
		"plans whose orders are miscounted": `SELECT count(*) FROM plan_orders p WHERE p.orders <>
			(SELECT count(*) FROM orders o WHERE o.plan_id = p.plan_id AND o.status <> 'failed')`,
		"accounts whose orders are miscounted": `SELECT count(*) FROM accounts a WHERE a.orders <>
			(SELECT count(*) FROM orders o WHERE o.account_id = a.account_id AND o.status IN ('confirmed', 'final'))`,
		"plans with more orders than allowed": `SELECT count(*) FROM plan_orders p, plans q WHERE p.plan_id = q.plan_id
			AND q.max_orders > 0 AND p.orders > q.max_orders`,
	} {
		var n int
		must.Check(s, s.one().store.QueryRow(context.Background(), q).Scan(&n), name)
		if n != 0 {
			s.Errorf("%d %s", n, name)
		}
	}
}

func (s *scene) code(err error, want toll.Code) {
	s.Helper()
	if !errors.Is(err, toll.NewError(want)) {
		s.Fatalf("got the error %v, want %s", err, want)
	}
}

// plan registers a plan of b1: 100 credits, 5 per request, for a price, as f changes it.
func (s *scene) plan(f func(p *toll.Plan)) *toll.Plan {
	s.Helper()
	p := &toll.Plan{
		ID: toll.NewPlanID(), Owner: b1, Metadata: toll.Metadata{Name: "Basic"},
		Price:       toll.Price{IsCrypto: true, TokenAddress: toll.USDCSandbox, Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{b1}},
		Credits:     toll.CreditsConfig{RedemptionType: 4, Amount: 100, MinAmount: 5, MaxAmount: 5},
		AccessLimit: toll.LimitCredits, IsListed: true, CreatedAt: s.clock.now(), UpdatedAt: s.clock.now(),
	}
	if f != nil {
		f(p)
	}
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertPlan(s.ctx, tx, p, "", nil) }))
	return p
}

func dynamic(least, most toll.Credits) func(*toll.Plan) {
	return func(p *toll.Plan) { p.Credits.MinAmount, p.Credits.MaxAmount = least, most }
}

func free(p *toll.Plan) { p.Price = toll.Price{IsCrypto: true} }

// agent registers an agent of b1 with the plans.
func (s *scene) agent(f func(a *toll.Agent), plans ...*toll.Plan) *toll.Agent {
	s.Helper()
	a := &toll.Agent{
		ID: toll.NewAgentID(), Owner: b1, Metadata: toll.Metadata{Name: "Ask"}, IsListed: true,
		API:       toll.AgentAPI{Endpoints: []toll.Endpoint{{Verb: "POST", URL: askURL}}, AuthType: "none"},
		CreatedAt: s.clock.now(), UpdatedAt: s.clock.now(),
	}
	for _, p := range plans {
		a.Plans = append(a.Plans, toll.PlanRef{PlanID: p.ID, Name: p.Metadata.Name})
	}
	if f != nil {
		f(a)
	}
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertAgent(s.ctx, tx, a, nil) }))
	return a
}

// mint grants credits that never end.
func (s *scene) mint(p *toll.Plan, holder toll.Address, n toll.Credits) {
	s.Helper()
	must.Get(s.one().checkout.Mint(s.ctx, p.Owner, p.ID, holder, n, toll.Units{}, nil))(s)
}

// token makes an access token of a subscriber.
func (s *scene) token(p *toll.Plan, subscriber toll.Address, f func(r *tokens.PermissionRequest)) *toll.AccessToken {
	s.Helper()
	req := &tokens.PermissionRequest{PlanID: p.ID}
	if f != nil {
		f(req)
	}
	return must.Get(s.one().Tokens.Create(s.ctx, auth.Caller{Address: subscriber}, req, nil))(s)
}

func limit(n toll.Credits) func(*tokens.PermissionRequest) {
	return func(r *tokens.PermissionRequest) { r.RedemptionLimit = &n }
}

// required asks for payment for a request to the agent, which may be nil.
func (s *scene) required(p *toll.Plan, a *toll.Agent) x402.PaymentRequired {
	s.Helper()
	terms := must.Get(s.one().Purchases.Terms(s.ctx, p.ID))(s)
	o := x402.Options{Endpoint: askURL, HTTPVerb: "POST"}
	if a != nil {
		o.AgentID = a.ID
	}
	return *x402.NewPaymentRequired([]*x402.Terms{terms}, o)
}

// call is a paid request that can be verified and settled.
type call struct {
	s        *scene
	caller   toll.Address
	required x402.PaymentRequired
	token    string
}

func (s *scene) call(p *toll.Plan, a *toll.Agent, t *toll.AccessToken) *call {
	s.Helper()
	return &call{s, p.Owner, s.required(p, a), t.AccessToken}
}

// nonce is the same call with a nonce of its own.
func (c *call) nonce(n string) *call {
	c.s.Helper()
	t := must.Get(x402.WithNonce(c.token, n))(c.s)
	d := *c
	d.token = t
	return &d
}

func (c *call) verify(i *instance, f func(r *x402.VerifyRequest)) (*x402.VerifyResponse, error) {
	r := &x402.VerifyRequest{PaymentRequired: c.required, AccessToken: c.token}
	if f != nil {
		f(r)
	}
	return i.Verify(c.s.ctx, c.caller, r)
}

func held(r *x402.VerifyRequest) { r.Hold = true }

func heldFor(n toll.Credits) func(*x402.VerifyRequest) {
	return func(r *x402.VerifyRequest) { r.Hold, r.MaxAmount = true, &n }
}

// hold verifies with a hold, which must be granted.
func (c *call) hold(f func(r *x402.VerifyRequest)) *x402.VerifyResponse {
	c.s.Helper()
	r := must.Get(c.verify(c.s.one(), func(r *x402.VerifyRequest) {
		r.Hold = true
		if f != nil {
			f(r)
		}
	}))(c.s)
	if !r.IsValid {
		c.s.Fatalf("refused: %s (%s)", r.InvalidReason, r.InvalidMessage)
	}
	return r
}

func (c *call) settle(i *instance, id string, f func(r *x402.SettleRequest)) (*x402.SettleResponse, error) {
	r := &x402.SettleRequest{PaymentRequired: c.required, AccessToken: c.token, AgentRequestID: id}
	if f != nil {
		f(r)
	}
	return i.Settle(c.s.ctx, c.caller, r)
}

func amount(n toll.Credits) func(*x402.SettleRequest) {
	return func(r *x402.SettleRequest) { r.MaxAmount = &n }
}

// burn settles, which must succeed.
func (c *call) burn(id string, f func(r *x402.SettleRequest)) *x402.SettleResponse {
	c.s.Helper()
	r := must.Get(c.settle(c.s.one(), id, f))(c.s)
	if !r.Success {
		c.s.Fatalf("refused: %s (%s)", r.ErrorReason, r.ErrorMessage)
	}
	return r
}

// invalid checks that a verify was refused for one of these reasons.
func (s *scene) invalid(r *x402.VerifyResponse, err error, reasons ...string) {
	s.Helper()
	must.Do(s, err)
	if r.IsValid || !slices.Contains(reasons, r.InvalidReason) {
		s.Fatalf("valid %v, reason %q (%s); want the refusal %s", r.IsValid, r.InvalidReason, r.InvalidMessage, strings.Join(reasons, " or "))
	}
	if r.Code == "" || r.InvalidMessage == "" {
		s.Fatalf("a refusal without code or message: %+v", r)
	}
}

func (s *scene) valid(r *x402.VerifyResponse, err error) {
	s.Helper()
	must.Do(s, err)
	if !r.IsValid {
		s.Fatalf("refused: %s (%s)", r.InvalidReason, r.InvalidMessage)
	}
}

// refused checks that a settle was refused with this code and burned nothing.
func (s *scene) refused(r *x402.SettleResponse, err error, code toll.Code) {
	s.Helper()
	must.Do(s, err)
	if r.Success || r.Code != code || r.ErrorReason == "" || r.Transaction != "" || r.Network == "" {
		s.Fatalf("success %v, %s (%s, %s); want the refusal %s", r.Success, r.Code, r.ErrorReason, r.ErrorMessage, code)
	}
}

func (s *scene) balance(p *toll.Plan, holder toll.Address, balance, held toll.Credits) {
	s.Helper()
	b := must.Get(s.one().checkout.Balance(s.ctx, p, holder, false))(s)
	if b.Balance != balance || b.Held != held {
		s.Fatalf("balance %d, held %d; want %d, %d", b.Balance, b.Held, balance, held)
	}
}

// atOnce releases n goroutines by one barrier and waits for them.
func atOnce(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-gate
			f(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

func nonceOf(i int) string { return fmt.Sprintf("nonce-%d", i) }

// outer is the unsigned object around an access token.
type outer struct {
	X402Version int                `json:"x402Version"`
	Resource    x402.Resource      `json:"resource"`
	Accepted    *x402.Requirements `json:"accepted"`
	Payload     struct {
		Signature     string              `json:"signature"`
		Authorization *x402.Authorization `json:"authorization,omitempty"`
		Nonce         string              `json:"nonce,omitempty"`
	} `json:"payload"`
	Extensions map[string]any `json:"extensions,omitempty"`
}

// rewrite changes the outer object of an access token in the x402 rendering.
func rewrite(s *scene, token string, f func(o *outer)) string {
	s.Helper()
	var o outer
	must.Do(s, x402.DecodeHeader(token, &o))
	f(&o)
	return must.Get(x402.EncodeHeader(&o))(s)
}

// refusing undoes what creates.
func refusing(err error) *store.Once {
	return &store.Once{Scope: toll.NewHash(), Seal: func(any) ([]byte, error) { return nil, err }}
}
