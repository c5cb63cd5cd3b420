package pay_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// stockCall is a call as the server of another maker sends it: what it says is its requirements and the payment it got.
type stockCall struct {
	*call
	amount string // "": none is named
}

// stock is the call with this amount.
func (c *call) stock(amount string) *stockCall {
	d := *c
	return &stockCall{&d, amount}
}

func (c *stockCall) payment() *x402.StockPayment {
	r := c.required.Accepts[0]
	r.Amount, r.PlanID = c.amount, ""
	return &x402.StockPayment{Payload: c.token, Requirements: r}
}

// at is the call with the url that its client says it asks.
func (c *stockCall) at(url string) *stockCall {
	d := *c
	e := *c.call
	e.token = rewrite(c.s, c.token, func(o *outer) { o.Resource.URL = url })
	d.call = &e
	return &d
}

func (c *stockCall) verify(i *instance) (*x402.VerifyResponse, error) {
	return i.Verify(c.s.ctx, c.caller, &x402.VerifyRequest{Stock: c.payment()})
}

func (c *stockCall) settle(i *instance) (*x402.SettleResponse, error) {
	return i.Settle(c.s.ctx, c.caller, &x402.SettleRequest{Stock: c.payment()})
}

func (c *stockCall) hold() *x402.VerifyResponse {
	c.s.Helper()
	v, err := c.verify(c.s.one())
	c.s.valid(v, err)
	return v
}

func (c *stockCall) burn() *x402.SettleResponse {
	c.s.Helper()
	r := must.Get(c.settle(c.s.at(1)))(c.s)
	if !r.Success {
		c.s.Fatalf("refused: %s (%s)", r.ErrorReason, r.ErrorMessage)
	}
	return r
}

// no checks that a settle was refused with this word, as a standard server reads it.
func (s *scene) no(r *x402.SettleResponse, err error, reason string) {
	s.Helper()
	must.Do(s, err)
	if r.Success || r.ErrorReason != reason || r.ErrorMessage == "" || r.Transaction != "" || r.Network == "" {
		s.Fatalf("success %v, %q (%s), transaction %q, network %q; want the refusal %s", r.Success, r.ErrorReason, r.ErrorMessage, r.Transaction, r.Network, reason)
	}
}

func TestStockPaidCall(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		c := s.call(p, a, s.token(p, s1, nil)).nonce("n-1").stock("5").at(askURL)
		v := c.hold()
		if *v.Extra.HeldAmount != 5 || !v.Extra.HoldExpiresAt.Equal(start.Add(75*time.Second)) || v.URLMatching != askURL || v.Extra.AgentRequestID == "" {
			t.Fatalf("%+v %+v", v, v.Extra)
		}
		s.balance(p, s1, 100, 5)
		c.amount = "3"
		r := c.burn()
		if *r.Amount != 3 || *r.RemainingBalance != 97 || r.Extra.AgentRequestID != v.AgentRequestID || r.Network != "eip155:84532" || r.Payer != s1.String() {
			t.Fatalf("%+v", r)
		}
		again := c.burn()
		if !again.Replayed || !bytes.Equal(again.Raw, r.Raw) {
			t.Fatalf("%s, then %s", r.Raw, again.Raw)
		}
		// One settlement, whichever body asks for it.
		spec, err := c.call.settle(s.one(), v.AgentRequestID, amount(3))
		if err != nil || !bytes.Equal(spec.Raw, r.Raw) {
			t.Fatalf("%v %s", err, spec.Raw)
		}
		s.balance(p, s1, 97, 0)
	})
}

func TestStockHoldLife(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		base := s.call(p, nil, s.token(p, s1, nil))
		for secs, want := range map[toll.Int]time.Duration{0: 75, 1: 16, 60: 75, 900: 915, 901: 915, 1 << 62: 915} {
			c := base.nonce(fmt.Sprint("life-", secs)).stock("5")
			c.required.Accepts[0].MaxTimeoutSeconds = secs
			if v := c.hold(); !v.Extra.HoldExpiresAt.Equal(start.Add(want * time.Second)) {
				t.Errorf("%d: %v", secs, v.Extra.HoldExpiresAt)
			}
		}
	})
}

// T21
func TestStockNonceRaced(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		c := s.call(p, nil, s.token(p, s1, nil)).nonce("one").stock("5")
		var valid, burned atomic.Int64
		atOnce(200, func(i int) {
			v, err := c.verify(s.at(i))
			switch {
			case err != nil:
				s.Error(err)
			case v.IsValid:
				valid.Add(1)
				if r, err := c.settle(s.at(i + 1)); err != nil || !r.Success {
					s.Errorf("%v %+v", err, r)
				} else {
					burned.Add(1)
				}
			case v.InvalidReason != x402.ReasonInFlight && v.InvalidReason != x402.ReasonDuplicate:
				s.Errorf("refused with %s", v.InvalidReason)
			}
		})
		if valid.Load() != 1 || burned.Load() != 1 {
			t.Fatalf("%d valid, %d burned", valid.Load(), burned.Load())
		}
		s.balance(p, s1, 995, 0)
	})
}

// T22
func TestStockReplayInEveryState(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		base := s.call(p, nil, s.token(p, s1, nil))
		used := func(c *stockCall, reasons ...string) {
			t.Helper()
			for i := range 3 {
				v, err := c.verify(s.at(i))
				s.invalid(v, err, reasons...)
			}
		}
		settled, released, lapsed, direct := base.nonce("settled").stock("5"), base.nonce("released").stock("5"), base.nonce("lapsed").stock("5"), base.nonce("direct").stock("5")
		settled.hold()
		used(settled, x402.ReasonInFlight)
		settled.burn()
		used(settled, x402.ReasonDuplicate)
		released.hold()
		out, err := s.at(1).Release(s.ctx, b1, &x402.ReleaseRequest{Stock: released.payment()})
		if err != nil || out.Status != "released" || out.Released != 5 {
			t.Fatalf("%v %+v", err, out)
		}
		again, err := s.one().Release(s.ctx, b1, &x402.ReleaseRequest{Stock: released.payment()})
		if err != nil || *again != *out {
			t.Fatalf("%v %+v", err, again)
		}
		used(released, x402.ReasonDuplicate)
		r, err := released.settle(s.one())
		s.no(r, err, x402.ReasonConflict)
		_, err = s.one().Release(s.ctx, b1, &x402.ReleaseRequest{Stock: settled.payment()})
		s.code(err, toll.CodeReleaseOfSettled)
		lapsed.hold()
		direct.burn()
		used(direct, x402.ReasonDuplicate)
		s.clock.add(2 * time.Minute)
		used(lapsed, x402.ReasonDuplicate)
		lapsed.burn() // the credits are there
		s.clock.add(23 * time.Hour)
		for _, c := range []*stockCall{settled, released, lapsed, direct} {
			used(c, x402.ReasonDuplicate)
		}
		s.balance(p, s1, 985, 0)
	})
}

// Without a nonce and without a payment identifier an access token pays for one request of a stock server.
func TestStockTokenNamesOneRequest(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		for _, format := range []string{"jwt", "x402"} {
			c := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { r.TokenFormat = format })).stock("5")
			c.hold()
			v, err := c.verify(s.at(1))
			s.invalid(v, err, x402.ReasonInFlight)
			c.burn()
			v, err = c.verify(s.at(1))
			s.invalid(v, err, x402.ReasonDuplicate)
			other := c.nonce("fresh-" + format).stock("5")
			other.hold()
			other.burn()
			// Our own servers name their requests by id, so the token goes on there.
			c.call.burn("", nil)
		}
		s.balance(p, s1, 70, 0)
	})
}

// A server that settles before it works gets one success for one payment, however it asks.
// T24
func TestSettleBeforeServe(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		base := s.call(p, nil, s.token(p, s1, nil))
		up := base.nonce("upfront").stock("5")
		for _, flow := range []string{"upfront", "escrow", "Authorization"} {
			up.required.Accepts[0].Extra.PaymentFlow = flow
			for i := range 5 {
				r, err := up.settle(s.at(i))
				s.no(r, err, x402.ReasonInvalidRequirements)
				v, err := up.verify(s.at(i))
				s.invalid(v, err, x402.ReasonInvalidRequirements)
				spec, err := up.call.settle(s.one(), "", nil)
				s.refused(spec, err, toll.CodeBadRequirements)
			}
		}
		up.required.Accepts[0].Extra.PaymentFlow = "authorization"

		var mine atomic.Pointer[x402.SettleResponse]
		atOnce(50, func(i int) {
			r, err := up.settle(s.at(i))
			switch {
			case err != nil:
				s.Error(err)
			case r.Success && !mine.CompareAndSwap(nil, r):
				s.Error("two successes")
			case !r.Success && (r.ErrorReason != x402.ReasonDuplicate || r.Transaction != ""):
				s.Errorf("%+v", r)
			}
		})
		first := mine.Load()
		for i := range 4 {
			r, err := up.settle(s.at(i))
			s.no(r, err, x402.ReasonDuplicate)
			if r.Extra == nil || r.Extra.OriginalTransaction != first.Transaction {
				t.Fatalf("%+v", r.Extra)
			}
		}
		v, err := up.verify(s.one())
		s.invalid(v, err, x402.ReasonDuplicate)
		s.balance(p, s1, 995, 0)
	})
}

// T25
func TestStockOtherContent(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(dynamic(1, 10)), s.plan(dynamic(1, 10))
		a, b := s.agent(nil, p, q), s.agent(nil, p, q)
		s.mint(p, s1, 100)
		s.mint(q, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, a, tok).nonce("n").stock("5").at(askURL)
		c.hold()
		first := c.burn()
		less := *c
		less.amount = "3"
		r, err := less.settle(s.at(1))
		s.no(r, err, x402.ReasonConflict)
		r, err = s.call(p, b, tok).nonce("n").stock("5").at(askURL).settle(s.at(1))
		s.no(r, err, x402.ReasonConflict)
		r, err = c.at("/other").settle(s.at(1))
		s.no(r, err, x402.ReasonConflict)
		r, err = s.call(p, a, s.token(p, s1, nil)).nonce("n").stock("5").at(askURL).settle(s.at(1))
		s.no(r, err, x402.ReasonConflict)
		r, err = s.call(q, a, tok).nonce("n").stock("5").settle(s.at(1))
		s.no(r, err, "invalid_svc_plan_mismatch")
		stranger := *c.call
		stranger.caller = b2
		r, err = (&stockCall{&stranger, "5"}).settle(s.at(1))
		s.no(r, err, x402.ReasonUnauthorizedServer)
		if again := c.burn(); !bytes.Equal(again.Raw, first.Raw) {
			t.Errorf("%s", again.Raw)
		}
		s.balance(p, s1, 95, 0)
		s.balance(q, s1, 100, 0)
	})
}

// T27
func TestStockForeignPayments(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(nil)
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil)).nonce("n").stock("5")
		c.hold()
		for name, row := range map[string]struct {
			caller  toll.Address
			payment *x402.StockPayment
			code    toll.Code
		}{
			"another builder": {b2, c.payment(), toll.CodeSettlementNotFound},
			"the subscriber":  {s1, c.payment(), toll.CodeSettlementNotFound},
			"an unused nonce": {b1, c.nonce("m").stock("5").payment(), toll.CodeSettlementNotFound},
			"another plan":    {b1, &x402.StockPayment{Payload: c.token, Requirements: s.call(q, nil, s.token(q, s1, nil)).stock("5").payment().Requirements}, toll.CodePlanMismatch},
			"junk":            {b1, &x402.StockPayment{Payload: "junk", Requirements: c.payment().Requirements}, toll.CodeTokenUndecodable},
		} {
			if _, err := s.at(1).Release(s.ctx, row.caller, &x402.ReleaseRequest{Stock: row.payment}); !errors.Is(err, toll.NewError(row.code)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.balance(p, s1, 100, 5)
	})
}

// T28
func TestStockVerifyAgain(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		base := s.call(p, nil, s.token(p, s1, nil))
		// A nonce that our own server has used is used for every server, and the other way round.
		c := base.nonce("crossed")
		c.hold(nil)
		v, err := c.stock("5").verify(s.at(1))
		s.invalid(v, err, x402.ReasonInFlight)
		d := base.nonce("back").stock("5")
		d.hold()
		v, err = d.call.verify(s.at(1), nil)
		s.invalid(v, err, x402.ReasonInFlight)
		d.burn()
		v, err = d.call.verify(s.at(1), held)
		s.invalid(v, err, x402.ReasonDuplicate)
	})
}

// T35
func TestStockPlanSwap(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(nil)
		plans := []*toll.Plan{p, q}
		for _, plan := range plans {
			s.mint(plan, s1, 100)
		}
		n := 0
		for i, token := range plans {
			tok := s.token(token, s1, func(r *tokens.PermissionRequest) { r.TokenFormat = "x402" })
			for j, require := range plans {
				for k, accepted := range plans {
					n++
					c := s.call(require, nil, tok).nonce(nonceOf(n)).stock("5")
					c.token = rewrite(s, c.token, func(o *outer) {
						o.Accepted.PlanID, o.Accepted.Extra.PlanID = "", string(accepted.ID)
					})
					v, err := c.verify(s.one())
					r, serr := c.settle(s.one())
					must.Do(s, serr)
					if i == j && j == k {
						s.valid(v, err)
						if !r.Success {
							t.Fatalf("%+v", r)
						}
						continue
					}
					s.invalid(v, err, "invalid_svc_plan_mismatch")
					s.no(r, serr, "invalid_svc_plan_mismatch")
				}
			}
		}
		s.balance(p, s1, 95, 0)
		s.balance(q, s1, 95, 0)
	})
}

// T36
func TestPaymentIdentifier(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 100)
		base := s.call(p, nil, s.token(p, s1, nil))
		n := 0
		// Every try has a fresh nonce, as clients make it.
		paid := func(amount string) *stockCall {
			n++
			c := base.nonce(nonceOf(n)).stock(amount)
			c.token = rewrite(s, c.token, func(o *outer) {
				o.Extensions = map[string]any{"payment-identifier": map[string]any{"info": map[string]any{"required": true, "id": "pay_0123456789abcdef"}}}
			})
			return c
		}
		paid("5").hold()
		v, err := paid("5").verify(s.at(1))
		s.invalid(v, err, x402.ReasonInFlight)
		v, err = paid("6").verify(s.at(1))
		s.invalid(v, err, x402.ReasonIdentifierConflict)
		first := paid("4").burn()
		if again := paid("4").burn(); !bytes.Equal(again.Raw, first.Raw) {
			t.Errorf("%s", again.Raw)
		}
		r, err := paid("3").settle(s.at(1))
		s.no(r, err, x402.ReasonIdentifierConflict)
		v, err = paid("5").verify(s.at(1))
		s.invalid(v, err, x402.ReasonDuplicate)
		v, err = paid("7").verify(s.at(1))
		s.invalid(v, err, x402.ReasonIdentifierConflict)
		// With our own body it is a verdict as well, not a conflict of ids.
		v, err = paid("").call.verify(s.one(), heldFor(7))
		s.invalid(v, err, x402.ReasonIdentifierConflict)
		s.balance(p, s1, 96, 0)
	})
}

// T45
func TestStockBounds(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(2, 10))
		s.mint(p, s1, 100)
		base := s.call(p, nil, s.token(p, s1, nil))
		for _, n := range []string{"1", "11", "9223372036854775808", "115792089237316195423570985008687907853269984665640564039457584007913129639935"} {
			v, err := base.nonce("v" + n[:1]).stock(n).verify(s.one())
			s.invalid(v, err, x402.ReasonAmountOutOfRange)
			r, err := base.nonce("s" + n[:1]).stock(n).settle(s.one())
			s.no(r, err, x402.ReasonAmountOutOfRange)
		}
		c := base.nonce("above").stock("5")
		c.hold()
		for n, reason := range map[string]string{"6": x402.ReasonExceedsAmount, "10": x402.ReasonExceedsAmount, "11": x402.ReasonExceedsAmount, "1": x402.ReasonAmountOutOfRange} {
			c.amount = n
			r, err := c.settle(s.at(1))
			s.no(r, err, reason)
		}
		s.balance(p, s1, 100, 5)
		c.amount = "2"
		c.burn()
		// No amount is the maximum of the plan, and then what is held.
		c = base.nonce("none").stock("")
		if v := c.hold(); *v.Extra.HeldAmount != 10 {
			t.Errorf("%+v", v.Extra)
		}
		if r := c.burn(); *r.Amount != 10 {
			t.Errorf("%+v", r)
		}
		// Zero releases.
		c = base.nonce("zero").stock("5")
		c.hold()
		c.amount = "0"
		if r := c.burn(); *r.Amount != 0 || r.Transaction == "" || !r.Success {
			t.Errorf("%+v", r)
		}
		s.balance(p, s1, 88, 0)
	})
}

// Whatever is wrong with a payment is a verdict; only faults are errors.
func TestStockRefusalsAreVerdicts(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		tok := s.token(p, s1, nil)
		good := s.call(p, a, tok).nonce("n").stock("5")
		revoked := s.token(p, s1, nil)
		must.Do(s, s.one().Tokens.Revoke(s.ctx, s1, revoked.PermissionHash))
		for reason, f := range map[string]func(c *stockCall){
			x402.ReasonInvalidPayload:       func(c *stockCall) { c.token = "junk" },
			"invalid_x402_version":          func(c *stockCall) { c.token = rewrite(s, c.token, func(o *outer) { o.X402Version = 1 }) },
			x402.ReasonUnauthorizedServer:   func(c *stockCall) { c.caller = b2 },
			x402.ReasonUnsupportedScheme:    func(c *stockCall) { c.required.Accepts[0].Scheme = "exact" },
			x402.ReasonInvalidNetwork:       func(c *stockCall) { c.required.Accepts[0].Network = "eip155:8453" },
			x402.ReasonInvalidRequirements:  func(c *stockCall) { c.required.Accepts[0].Asset = toll.USDCSandbox.String() },
			"invalid_svc_resource_mismatch": func(c *stockCall) { c.call = c.at("https://a.example/other").call },
			"invalid_svc_payload_signature": func(c *stockCall) {
				c.token = rewrite(s, c.token, func(o *outer) { o.Payload.Signature = o.Payload.Signature[:len(o.Payload.Signature)-4] + "AAAA" })
			},
			"invalid_svc_payload_revoked": func(c *stockCall) { c.token = revoked.AccessToken },
			x402.ReasonInsufficientFunds:  func(c *stockCall) { c.token = s.token(p, s2, nil).AccessToken },
		} {
			c := s.call(p, a, tok).nonce("n").stock("5")
			f(c)
			v, err := c.verify(s.one())
			s.invalid(v, err, reason)
			r, err := c.settle(s.at(1))
			s.no(r, err, reason)
		}
		unknown := s.call(p, a, tok).nonce("n").stock("5")
		unknown.required.Accepts[0].Extra.AgentID = string(toll.NewAgentID())
		v, err := unknown.verify(s.one())
		s.invalid(v, err, x402.ReasonInvalidRequirements)
		// A bad agent id, an empty payload, and the own network of the requirements in the refusal.
		unknown.required.Accepts[0].Extra.AgentID = "07"
		v, err = unknown.verify(s.one())
		s.invalid(v, err, x402.ReasonInvalidPayload)
		unknown.token, unknown.required.Accepts[0].Network = "", "stripe"
		r, err := unknown.settle(s.one())
		s.no(r, err, x402.ReasonInvalidPayload)
		if r.Network != "stripe" {
			t.Error(r.Network)
		}
		good.hold()
		for range 63 { // 64 open holds of one access token
			s.call(p, a, tok).nonce(toll.NewUUID()).stock("0").hold()
		}
		v, err = s.call(p, a, tok).nonce("more").stock("0").verify(s.one())
		s.invalid(v, err, x402.ReasonTooManyHolds)
	})
}

func TestStockTimePlan(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(func(p *toll.Plan) {
			p.AccessLimit, p.Credits = toll.LimitTime, toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1, DurationSecs: toll.UnitsOf(3600)}
			p.Price = toll.Price{IsCrypto: true}
		})
		c := s.call(p, nil, s.token(p, s1, nil)).nonce("n").stock("5")
		if v := c.hold(); *v.Amount != 0 {
			t.Errorf("%+v", v)
		}
		if r := c.burn(); *r.Amount != 0 || r.Transaction == "" {
			t.Errorf("%+v", r)
		}
		if again := c.burn(); !again.Replayed {
			t.Errorf("%+v", again)
		}
	})
}

func TestSupported(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	b := must.Get(x402.Encode(s.one().Supported()))(s)
	const want = `{"kinds":[{"x402Version":2,"scheme":"svc:erc4337","network":"eip155:84532","extra":{"version":"1","creditsAsset":"svc:credits"}}],` +
		`"extensions":["bazaar","payment-identifier"],"signers":{}}`
	if string(b) != want {
		t.Errorf("%s", b)
	}
}

// What the client accepted is what is asked for, in both bodies: another plan, resource, amount, asset or receiver is refused, and
// no settle burns more than was accepted, with a verify before it or without.
// T10
func TestSwappedTerms(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		q := s.plan(dynamic(1, 10))
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		base := s.call(p, a, s.token(p, s1, nil)).nonce("n")
		base.required.Accepts[0].Amount = "5"
		accepted := func(nonce string, f func(r *x402.Requirements)) *call {
			c := *base
			c.token = rewrite(s, base.token, func(o *outer) {
				o.Payload.Nonce, o.Resource.URL = nonce, askURL
				r := base.required.Accepts[0]
				f(&r)
				o.Accepted = &r
			})
			return &c
		}
		for reason, f := range map[string]func(r *x402.Requirements){
			"invalid_svc_plan_mismatch": func(r *x402.Requirements) { r.PlanID, r.Extra.PlanID = string(q.ID), string(q.ID) },
			"unsupported_scheme":        func(r *x402.Requirements) { r.Scheme = "exact" },
			"amount":                    func(r *x402.Requirements) { r.Amount = "4" },
			"more":                      func(r *x402.Requirements) { r.Amount = "6" },
			"asset":                     func(r *x402.Requirements) { r.Asset = toll.USDCSandbox.String() },
			"receiver":                  func(r *x402.Requirements) { r.PayTo = b2.String() },
		} {
			want := reason
			if len(reason) < 10 {
				want = x402.ReasonInvalidRequirements
			}
			c := accepted("n-"+reason, f)
			v, err := c.stock("5").verify(s.at(1))
			s.invalid(v, err, want)
			v, err = c.verify(s.one(), heldFor(5))
			s.invalid(v, err, want)
		}
		c := accepted("n-url", func(*x402.Requirements) {}).stock("5")
		c.token = rewrite(s, c.token, func(o *outer) { o.Resource.URL = "https://a.example/other" })
		v, err := c.verify(s.one())
		s.invalid(v, err, "invalid_svc_resource_mismatch")

		ok := accepted("n-ok", func(r *x402.Requirements) { r.PayTo = strings.ToLower(r.PayTo) }).stock("5")
		ok.hold()
		for n, reason := range map[string]string{"6": x402.ReasonExceedsAmount, "50": x402.ReasonExceedsAmount} {
			ok.amount = n
			r, err := ok.settle(s.at(1))
			s.no(r, err, reason)
		}
		ok.amount = "3"
		ok.burn()
		// Nothing was verified.
		direct := accepted("n-direct", func(*x402.Requirements) {}).stock("6")
		r, err := direct.settle(s.one())
		s.no(r, err, x402.ReasonExceedsAmount)
		direct.amount = "4"
		direct.burn()
		s.balance(p, s1, 93, 0)
	})
}
