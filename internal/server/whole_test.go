package server_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// wholeService is a running service with a clock of the test and a rail that pays.
type wholeService struct {
	clock   atomic.Int64 // microseconds
	builder *client.Client
	subs    []*client.Client
	holders []toll.Address
	steps   atomic.Int64
	uncut   int            // runs that made all their steps
	lost    int            // runs that ended with a lost answer
	seen    map[string]int // outcomes, by call
}

func (w *wholeService) now() time.Time { return time.UnixMicro(w.clock.Load()).UTC() }

func startWhole(t *testing.T, v storetest.Variant) *wholeService {
	t.Helper()
	w := &wholeService{seen: map[string]int{}}
	w.clock.Store(time.Now().Truncate(time.Second).UnixMicro())
	db := storetest.Config(t, v)
	cfg := server.Config{Data: db.Data, Database: db.Database, Clock: w.now, Rails: rails.Config{Given: rail.Rails{rail.Crypto: railtest.New()}}, Quotas: api.Quotas{Plans: 1 << 30, Delegations: 1 << 30}}
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	s := open(t, cfg)
	front := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		front.Close()
		must.Check(t, closeService(s))
		auditAfter(t, servertest.Options{Data: db.Data, Database: db.Database})
	})
	key := func(account string) toll.APIKey {
		return keyOf(t, s, server.KeyRequest{Account: account})
	}
	dial := func(k toll.APIKey) *client.Client {
		return client.New(k.Key, client.WithURL(front.URL), client.WithRetries(0))
	}
	w.builder = dial(key("builder"))
	for i := range 2 {
		k := key("subscriber " + strconv.Itoa(i))
		w.subs = append(w.subs, dial(k))
		w.holders = append(w.holders, k.Address)
	}
	return w
}

// run is one sequence of calls, with plans and tokens of its own.
type wholeRun struct {
	*wholeService
	model modelService
	ids   []toll.PlanID
	name  string
	plays []int // plans that this run is about
	n     int   // steps
	lost  bool  // an answer, so that the books are not known any more; another run takes the place of this one
}

// loses reports whether the service could not answer, as in a standstill of its database.
func (r *wholeRun) loses(err error) bool {
	if !r.lost && err != nil && toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable {
		r.lost = true
		r.wholeService.lost++
	}
	return r.lost
}

// TestWholeService does whatever its operations allow in any order, and compares every answer with the books.
func TestWholeService(t *testing.T) {
	t.Parallel()
	for v, checks := range map[storetest.Variant]int{storetest.SQLite: rounds.Of(70, 1000), storetest.Postgres: rounds.Of(15, 200)} {
		t.Run(string(v), func(t *testing.T) {
			w := startWhole(t, v)
			// The gate of a change makes the same sequences every time; -rapid.seed=N makes others. A sequence ends early when an
			// answer is lost, so there may be too few steps: the next seed adds to them.
			for seed := 3; seed < 6 && w.steps.Load() < int64(checks)*95; seed++ {
				ok := t.Run("seed "+strconv.Itoa(seed), func(t *testing.T) {
					setRapid(t, "rapid.steps", "130")
					setRapid(t, "rapid.seed", strconv.Itoa(seed))
					setRapid(t, "rapid.checks", strconv.Itoa(checks))
					rapid.Check(t, func(rt *rapid.T) { w.run(rt) })
				})
				if !ok {
					return
				}
			}
			if n := w.steps.Load(); n < int64(checks)*95 {
				t.Errorf("only %d steps were made", n)
			}
			if w.uncut < checks*4/5 || w.lost > checks/5 {
				t.Errorf("of %d runs %d were complete, and %d ended with a lost answer", checks, w.uncut, w.lost)
			}
			t.Log(w.steps.Load(), "steps:", w.seen)
			for _, outcome := range wholeOutcomes {
				if w.seen[outcome] == 0 && v == storetest.SQLite { // the other run is too short to meet all of them
					t.Errorf("never seen: %s", outcome)
				}
			}
		})
	}
}

// wholeOutcomes are what a run must have met, so that it proves what it is there for.
var wholeOutcomes = []string{
	"verify ", "hold ", "hold " + x402.ReasonInsufficientFunds, "hold " + x402.ReasonRedemptionLimit, "hold " + x402.ReasonOrderLimit,
	"hold " + x402.ReasonPlanExpired, "hold " + x402.ReasonInFlight, "hold " + x402.ReasonDuplicate, "hold " + x402.Default.ReasonRevoked(),
	"hold " + x402.Default.ReasonExpired(),
	"verify " + x402.ReasonInsufficientFunds, "verify " + x402.ReasonPlanUnlisted,
	"settle ", "settle replay", "settle " + x402.ReasonConflict, "settle " + x402.ReasonInsufficientFunds, "settle " + x402.ReasonOrderLimit,
	"settle " + x402.ReasonHoldExpired, "settle " + x402.ReasonAmountOutOfRange, "verify " + x402.ReasonAmountOutOfRange,
	"hold " + x402.ReasonAmountOutOfRange,
	"settle with an order", "hold with an order", "release", "release " + string(toll.CodeReleaseOfSettled), "order",
	"order " + string(toll.CodePlanUnlisted), "order " + string(toll.CodePlanSoldOut), "order " + string(toll.CodeTrialUsed),
	"order " + string(toll.CodeDelegationInsufficient), "token", "token " + string(toll.CodeDelegationPlanMismatch),
}

// setRapid sets a flag of the library, which has no other way, unless the command line set it.
func setRapid(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	if f.Value.String() != f.DefValue {
		return
	}
	must.Do(t, flag.Set(name, value))
	t.Cleanup(func() { _ = flag.Set(name, f.DefValue) })
}

func wholePlans() []*modelPlan {
	return []*modelPlan{
		{grants: 10, min: 2, max: 5, cents: 100},
		{grants: 7, min: 3, max: 3},
		{grants: 6, min: 1, max: 4, cents: 50, life: 100 * time.Second},
		{grants: 1, min: 1, max: 1, cents: 200, life: 120 * time.Second, isTime: true},
		{grants: 5, min: 1, max: 2, isTrial: true},
		{grants: 1, min: 1, max: 6, cents: 3, payAsYouGo: true},
		{grants: 4, min: 1, max: 4, maxOrders: 2, cents: 100},
	}
}

func (w *wholeService) run(t *rapid.T) {
	r := &wholeRun{wholeService: w, name: toll.NewUUID()[:8]}
	r.model = modelService{now: w.now(), plans: wholePlans()}
	for i, p := range r.model.plans {
		for range w.subs {
			p.accounts = append(p.accounts, &modelAccount{requests: map[string]*modelUse{}})
		}
		r.ids = append(r.ids, r.register(t, i, p))
	}
	r.plays = rapid.SliceOfNDistinct(rapid.IntRange(0, len(r.ids)-1), 2, 3, rapid.ID[int]).Draw(t, "plans")
	for range 2 {
		r.delegate(t)
	}
	for range 3 {
		r.token(t)
	}
	t.Repeat(map[string]func(*rapid.T){
		"advance":           r.advance,
		"mint":              r.mint,
		"order":             r.order,
		"token":             r.token,
		"revoke":            r.revoke,
		"delegate":          r.delegate,
		"revoke delegation": r.revokeDelegation,
		"list":              r.list,
		"verify":            r.verify, "verify again": r.verify, "verify more": r.verify, "verify once more": r.verify,
		"settle": r.settle, "settle again": r.settle, "settle more": r.settle, "settle once more": r.settle,
		"release": r.release,
		"":        r.check,
	})
	w.uncut++
}

func (r *wholeRun) register(t *rapid.T, i int, p *modelPlan) toll.PlanID {
	params := client.PlanParams{
		Metadata: toll.Metadata{Name: "plan " + strconv.Itoa(i)}, Price: toll.Price{IsCrypto: true},
		Credits:   toll.CreditsConfig{Amount: p.grants, MinAmount: p.min, MaxAmount: p.max, DurationSecs: toll.UnitsOf(int64(p.life / time.Second))},
		MaxOrders: int64(p.maxOrders), IsTrial: p.isTrial, AccessLimit: toll.LimitCredits,
	}
	if p.isTime {
		params.AccessLimit = toll.LimitTime
	}
	if p.cents > 0 {
		params.Price.Amounts, params.Price.TokenAddress = []toll.Units{toll.UnitsOfCents(p.cents)}, toll.Sandbox.USDC()
	}
	if p.payAsYouGo {
		params.Price.TemplateAddress = toll.PayAsYouGoTemplate
	}
	reg, err := r.builder.RegisterPlan(context.Background(), params)
	if r.loses(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("register plan %d: %v", i, err)
	}
	return reg.PlanID
}

func (r *wholeRun) drawPlan(t *rapid.T) int { return rapid.SampledFrom(r.plays).Draw(t, "plan") }
func (r *wholeRun) drawSub(t *rapid.T) int {
	return rapid.IntRange(0, len(r.subs)-1).Draw(t, "subscriber")
}

// drawToken returns nil while there is none.
func (r *wholeRun) drawToken(t *rapid.T) *modelToken {
	if len(r.model.tokens) == 0 {
		return nil
	}
	return rapid.SampledFrom(r.model.tokens).Draw(t, "token")
}

func (r *wholeRun) drawID(t *rapid.T, tok *modelToken) string {
	return fmt.Sprintf("%s-%d-%d-%d", r.name, tok.plan, tok.subscriber, rapid.IntRange(0, 9).Draw(t, "request"))
}

func drawAsked(t *rapid.T) *toll.Credits {
	n := toll.Credits(rapid.IntRange(-1, 8).Draw(t, "asked"))
	if n < 0 {
		return nil
	}
	return &n
}

// expectCode compares an error with the code that the books give; it reports whether the call succeeded.
func (r *wholeRun) expectCode(t *rapid.T, what string, err error, want toll.Code) bool {
	if r.loses(err) {
		return false
	}
	r.seen[strings.TrimSpace(what+" "+string(want))]++
	var e *toll.Error
	switch {
	case err == nil && want == "":
		return true
	case err == nil:
		t.Fatalf("%s: succeeded, want %s", what, want)
	case !errors.As(err, &e) || e.Code != want:
		t.Fatalf("%s: %v, want %q", what, err, want)
	}
	return false
}

func (r *wholeRun) advance(t *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 1, 2, 2, 7, 7, 30, 61, 130}).Draw(t, "secs")) * time.Second
	r.clock.Add(int64(d / time.Microsecond))
	r.model.advance(d)
}

func (r *wholeRun) mint(t *rapid.T) {
	plan, sub := r.drawPlan(t), r.drawSub(t)
	n := toll.Credits(rapid.IntRange(0, 9).Draw(t, "credits"))
	life := time.Duration(rapid.SampledFrom([]int{0, 0, 40, 90}).Draw(t, "life")) * time.Second
	got, err := r.builder.Mint(context.Background(), r.ids[plan], r.holders[sub], n, life)
	if n == 0 {
		r.expectCode(t, "mint of nothing", err, toll.CodeMintNotPositive)
		return
	}
	if !r.expectCode(t, "mint", err, "") {
		return
	}
	a := r.model.plans[plan].accounts[sub]
	ends := time.Time{}
	if life > 0 {
		ends = r.model.now.Add(life)
	}
	a.mint(n, ends, r.model.now)
	if fmt.Sprint(got.Data["balance"]) != a.balance().String() {
		t.Fatalf("mint: balance %v, want %d", got.Data["balance"], a.balance())
	}
}

func (r *wholeRun) drawDelegation(t *rapid.T, sub int) *modelDelegation {
	mine := []*modelDelegation{nil}
	for _, d := range r.model.delegations {
		if d.subscriber == sub {
			mine = append(mine, d)
		}
	}
	if len(mine) == 1 {
		return nil
	}
	if i := rapid.IntRange(0, 4).Draw(t, "delegated"); i == 0 {
		return nil
	}
	return mine[len(mine)-rapid.IntRange(1, min(len(mine)-1, 3)).Draw(t, "delegation")] // one of the last
}

func (r *wholeRun) order(t *rapid.T) {
	plan, sub := r.drawPlan(t), r.drawSub(t)
	d := r.drawDelegation(t, sub)
	p := r.model.plans[plan]
	if p.cents == 0 || p.payAsYouGo {
		d = nil
	}
	var opts []client.OrderOption
	if d != nil {
		opts = append(opts, client.PaidBy(d.id))
	}
	want := r.model.order(plan, sub, d)
	got, err := r.subs[sub].OrderPlan(context.Background(), r.ids[plan], opts...)
	if !r.expectCode(t, "order", err, want) {
		return
	}
	a := p.accounts[sub]
	grants := p.grants
	if p.payAsYouGo {
		grants = 0
	}
	if !got.Success || got.Status != toll.OrderConfirmed || got.CreditsGranted != grants || got.Balance == nil || got.Balance.Balance != a.balance() {
		t.Fatalf("order: %+v, want %d credits and a balance of %d", got, grants, a.balance())
	}
}

func (r *wholeRun) token(t *rapid.T) {
	tok := &modelToken{
		plan: r.drawPlan(t), subscriber: r.drawSub(t), limit: toll.Credits(rapid.SampledFrom([]int{-1, -1, 5, 9, 14}).Draw(t, "limit")),
		orderLimit: rapid.SampledFrom([]int{-1, -1, 0, 1, 2}).Draw(t, "order limit"),
	}
	secs := rapid.SampledFrom([]int{150, 900, 7200}).Draw(t, "expiry")
	tok.expires = r.model.now.Add(time.Duration(secs) * time.Second)
	opts := []client.TokenOption{client.WithExpiry(time.Duration(secs) * time.Second)}
	if tok.limit >= 0 {
		opts = append(opts, client.WithRedemptionLimit(tok.limit))
	}
	if tok.orderLimit >= 0 {
		opts = append(opts, client.WithOrderLimit(int64(tok.orderLimit)))
	}
	p := r.model.plans[tok.plan]
	want := toll.Code("")
	if p.cents > 0 { // a free plan needs no delegation
		tok.delegation = r.drawDelegation(t, tok.subscriber)
	}
	if tok.delegation != nil {
		opts = append(opts, client.WithDelegation(tok.delegation.id))
		// What is left of it counts when something is to be bought.
		if want = tok.delegation.refusal(r.model.now, tok.plan, 0, 0); want == toll.CodeDelegationExhausted {
			want = ""
		}
	}
	got, err := r.subs[tok.subscriber].AccessToken(context.Background(), r.ids[tok.plan], opts...)
	if !r.expectCode(t, "token", err, want) {
		return
	}
	tok.text, tok.hash = got.AccessToken, got.PermissionHash
	r.model.tokens = append(r.model.tokens, tok)
}

// seldom keeps acts that end things from ending everything.
func seldom(t *rapid.T) bool { return rapid.IntRange(0, 4).Draw(t, "seldom") == 0 }

func (r *wholeRun) revoke(t *rapid.T) {
	tok := r.drawToken(t)
	if tok == nil || !seldom(t) {
		return
	}
	want := toll.Code("")
	if tok.revoked {
		want = toll.CodePermissionAlreadyRevoked
	}
	r.expectCode(t, "revoke", r.subs[tok.subscriber].RevokePermission(context.Background(), tok.hash), want)
	tok.revoked = true
}

func (r *wholeRun) delegate(t *rapid.T) {
	d := &modelDelegation{
		subscriber: r.drawSub(t), limit: int64(rapid.SampledFrom([]int{60, 150, 350, 1000}).Draw(t, "cents")),
		most: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "orders"), plan: rapid.SampledFrom(append([]int{-1, -1, -1}, r.plays...)).Draw(t, "plan of it"),
	}
	secs := rapid.SampledFrom([]int{200, 3600, 3600}).Draw(t, "duration")
	d.expires = r.model.now.Add(time.Duration(secs) * time.Second)
	p := client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: toll.Cents(d.limit), Lifetime: time.Duration(secs) * time.Second, Currency: "usdc",
		MaxTransactions: int64(d.most),
	}
	if d.plan >= 0 {
		p.PlanID = r.ids[d.plan]
	}
	got, err := r.subs[d.subscriber].CreateDelegation(context.Background(), p)
	if !r.expectCode(t, "delegate", err, "") {
		return
	}
	d.id = got.DelegationID
	r.model.delegations = append(r.model.delegations, d)
}

func (r *wholeRun) revokeDelegation(t *rapid.T) {
	if len(r.model.delegations) == 0 || !seldom(t) {
		return
	}
	d := rapid.SampledFrom(r.model.delegations).Draw(t, "delegation")
	_, err := r.subs[d.subscriber].RevokeDelegation(context.Background(), d.id)
	r.expectCode(t, "revoke delegation", err, "")
	d.revoked = true
	for _, tok := range r.model.tokens {
		if tok.delegation == d {
			tok.revoked = true
		}
	}
}

func (r *wholeRun) list(t *rapid.T) {
	if !seldom(t) {
		return
	}
	plan, listed := r.drawPlan(t), rapid.Bool().Draw(t, "listed")
	p := r.model.plans[plan]
	got, err := r.builder.SetPlanListed(context.Background(), r.ids[plan], listed)
	if !r.expectCode(t, "list", err, "") {
		return
	}
	if already := got.Code == toll.CodePlanListedAlready; !got.Success || already != (p.unlisted == !listed) {
		t.Fatalf("list %v: %+v, was unlisted %v", listed, got, p.unlisted)
	}
	p.unlisted = !listed
}

func (r *wholeRun) required(tok *modelToken) x402.PaymentRequired {
	p := r.model.plans[tok.plan]
	return *x402.NewPaymentRequired([]*x402.Terms{{
		PlanID: r.ids[tok.plan], Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), MinAmount: p.min, MaxAmount: p.max,
	}}, x402.Options{})
}

func (r *wholeRun) verify(t *rapid.T) {
	tok := r.drawToken(t)
	if tok == nil {
		return
	}
	id, asked, hold := r.drawID(t, tok), drawAsked(t), rapid.IntRange(0, 3).Draw(t, "hold") > 0
	life := rapid.SampledFrom([]int{1, 20, 60, 200}).Draw(t, "life")
	p, a := r.model.account(tok)
	n := p.effective(p.max)
	if asked != nil {
		n = p.effective(*asked)
	}
	want, use := r.model.verify(tok, id, asked, hold, time.Duration(life)*time.Second)
	if hold {
		r.seen["hold "+want]++
	} else {
		r.seen["verify "+want]++
	}
	v, err := r.builder.Verify(context.Background(), &x402.VerifyRequest{
		PaymentRequired: r.required(tok), AccessToken: tok.text, MaxAmount: asked, Hold: hold, HoldSecs: life, AgentRequestID: id,
	})
	if r.loses(err) {
		return
	}
	if err != nil {
		t.Fatalf("verify of %d (hold %v, plan %d): %v, want %q", n, hold, tok.plan, err, want)
	}
	if v.IsValid != (want == "") || v.InvalidReason != want {
		t.Fatalf("verify of %d (hold %v, plan %d): valid %v %q %s; want %q", n, hold, tok.plan, v.IsValid, v.InvalidReason, v.InvalidMessage, want)
	}
	if want != "" {
		return
	}
	if use != nil && use.orders {
		r.seen["hold with an order"]++
	}
	if *v.Amount != n || hold && *v.Extra.HeldAmount != n {
		t.Fatalf("verify of %d: %+v", n, v)
	}
	if hold {
		a.requests[id] = use
	}
}

func (r *wholeRun) settle(t *rapid.T) {
	tok := r.drawToken(t)
	if tok == nil {
		return
	}
	id, asked := r.drawID(t, tok), drawAsked(t)
	_, a := r.model.account(tok)
	n, want := r.model.settle(tok, id, asked)
	r.seen["settle "+want]++
	got, err := r.builder.Settle(context.Background(), &x402.SettleRequest{
		PaymentRequired: r.required(tok), AccessToken: tok.text, MaxAmount: asked, AgentRequestID: id,
	})
	switch {
	case r.loses(err):
		return
	case err != nil:
		t.Fatalf("settle (plan %d): %v, want %q", tok.plan, err, want)
	case want == "replay":
		if !got.Success || !got.Replayed || !bytes.Equal(got.Raw, a.requests[id].answer) {
			t.Fatalf("settle: not the stored answer: %s", got.Raw)
		}
	case want != "":
		if got.Success || got.ErrorReason != want {
			t.Fatalf("settle (plan %d): %s; want %q", tok.plan, got.Raw, want)
		}
	default:
		use := a.requests[id]
		if !got.Success || got.Replayed || *got.CreditsRedeemed != n || *got.RemainingBalance != a.balance() || (got.OrderTx != "") != use.orders {
			t.Fatalf("settle (plan %d): %s; want %d of it, balance %d, ordered %v", tok.plan, got.Raw, n, a.balance(), use.orders)
		}
		use.answer = got.Raw
		if use.orders {
			r.seen["settle with an order"]++
		}
	}
}

func (r *wholeRun) release(t *rapid.T) {
	tok := r.drawToken(t)
	if tok == nil {
		return
	}
	id := r.drawID(t, tok)
	_, a := r.model.account(tok)
	state, n, code := r.model.release(a, id)
	got, err := r.builder.Release(context.Background(), &x402.ReleaseRequest{AgentRequestID: id})
	if r.expectCode(t, "release", err, code) && (got.Status != state || got.Released != n) {
		t.Fatalf("release: %+v, want %s of %d", got, state, n)
	}
}

// check reads one balance, one permission and one delegation after every step.
func (r *wholeRun) check(t *rapid.T) {
	if r.lost {
		t.Skip("an answer was lost")
	}
	r.steps.Add(1)
	r.n++
	n, ctx := r.n, context.Background()
	plan, sub := r.plays[n%len(r.plays)], n/len(r.plays)%len(r.subs)
	a := r.model.plans[plan].accounts[sub]
	b, err := r.subs[sub].Balance(ctx, r.ids[plan])
	if r.loses(err) {
		t.Skip(err)
	}
	must.Do(t, err)
	held, _ := a.held(nil)
	if b.Balance != a.balance() || b.Held != held || b.Available != a.balance()-held || b.Total != a.minted || b.Used != a.burned ||
		b.IsSubscriber != a.subscribed(r.model.now) {
		t.Fatalf("balance of plan %d: %+v; want balance %d, held %d, minted %d, burned %d, subscribed %v", plan, b, a.balance(), held, a.minted,
			a.burned, a.subscribed(r.model.now))
	}
	if k := len(r.model.tokens); k > 0 {
		tok := r.model.tokens[n%k]
		p, err := r.subs[tok.subscriber].Permission(ctx, tok.hash)
		if r.loses(err) {
			t.Skip(err)
		}
		must.Do(t, err)
		if p.UsedCredits != tok.redeemed || p.UsedOrders != int64(tok.orders) || (p.Status == toll.StatusRevoked) != tok.revoked {
			t.Fatalf("permission: %+v; want %d redeemed, %d orders, revoked %v", p, tok.redeemed, tok.orders, tok.revoked)
		}
	}
	if k := len(r.model.delegations); k > 0 {
		d := r.model.delegations[n%k]
		got, err := r.subs[d.subscriber].Delegation(ctx, d.id)
		if r.loses(err) {
			t.Skip(err)
		}
		must.Do(t, err)
		if int64(got.AmountSpentCents) != d.spent || int64(got.RemainingBudgetCents) != d.limit-d.spent || string(got.Status) != d.status(r.model.now) {
			t.Fatalf("delegation: %+v; want %d of %d spent, %s", got, d.spent, d.limit, d.status(r.model.now))
		}
	}
}
