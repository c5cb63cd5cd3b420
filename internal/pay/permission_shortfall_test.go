package pay_test

import (
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// A delegation whose money cannot buy the plan is recorded, and the access token spends credits that exist. Only a request
// that needs an order is refused.
func TestPermission_DelegationThatCannotPay(t *testing.T) {
	native := func(p *toll.Plan) { p.Price.TokenAddress = toll.Address{} }
	euros := func(p *toll.Plan) { p.Price.TokenAddress = toll.EURCSandbox }
	each(t, func(s *scene) {
		plain, usedUp := s.delegation(10_000, nil), s.delegation(100, nil)
		pinned := s.delegation(100, func(in *toll.DelegationInput) { in.AllowedRecipients = []toll.Address{b2} })
		first := s.plan(ten)
		s.call(first, nil, s.token(first, s1, with(usedUp))).hold(nil)
		for name, row := range map[string]struct {
			plan       func(*toll.Plan)
			delegation string
			inline     *toll.DelegationInput
			code       toll.Code // of the warning and of a refused purchase
			reason     string
		}{
			"native token":   {native, plain, nil, toll.CodeUnsupportedScheme, x402.ReasonInsufficientFunds},
			"other currency": {euros, plain, nil, toll.CodeUnsupportedScheme, x402.ReasonInsufficientFunds},
			"too small":      {nil, s.delegation(99, nil), nil, toll.CodeDelegationInsufficient, x402.ReasonDelegationShort},
			"used up":        {nil, usedUp, nil, toll.CodeDelegationExhausted, x402.ReasonDelegationExhausted},
			"other receiver": {nil, pinned, nil, toll.CodeDelegationPlanMismatch, x402.ReasonDelegationNotFound},
			"native token, made on the fly": {
				native, "", &toll.DelegationInput{MaxTransactions: new(toll.Int(1))}, toll.CodeUnsupportedScheme, x402.ReasonInsufficientFunds,
			},
			"other currency, made on the fly": {
				nil, "", &toll.DelegationInput{Currency: new("eurc")}, toll.CodeUnsupportedScheme, x402.ReasonInsufficientFunds,
			},
			"too small, made on the fly": {
				nil, "", &toll.DelegationInput{SpendingLimitCents: new(toll.Cents(1))}, toll.CodeDelegationInsufficient, x402.ReasonDelegationShort,
			},
		} {
			p := s.plan(row.plan)
			req := &tokens.PermissionRequest{PlanID: p.ID, Delegation: &tokens.DelegationConfig{ID: row.delegation, New: row.inline}}
			if row.inline != nil {
				row.inline.PlanID = &p.ID
			}
			tok, err := s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1}, req, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if n := len(tok.Warnings); tok.DelegationID == nil || n == 0 || tok.Warnings[n-1].Code != row.code {
				t.Errorf("%s: delegation %v, warnings %+v", name, tok.DelegationID, tok.Warnings)
			}
			c := s.call(p, nil, tok)
			for _, hold := range []func(*x402.VerifyRequest){nil, held} {
				v, err := c.verify(s.one(), hold)
				s.invalid(v, err, row.reason)
				if v.Code != row.code {
					t.Errorf("%s: refused with %s, want %s", name, v.Code, row.code)
				}
			}
			s.mint(p, s1, 10)
			s.valid(c.verify(s.one(), nil))
			c.burn(c.hold(nil).AgentRequestID, nil)
			s.balance(p, s1, 5, 0)
		}
		s.spent(usedUp, 100, 1)

		// Nothing is bought for a free plan, so its delegation is not measured.
		for name, free := range map[string]func(*toll.Plan){"free": free, "trial": func(p *toll.Plan) { free(p); p.IsTrial = true }} {
			p := s.plan(free)
			tok, err := s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1}, &tokens.PermissionRequest{
				PlanID: p.ID, Delegation: &tokens.DelegationConfig{ID: usedUp},
			}, nil)
			if err != nil || tok.DelegationID == nil || tok.Warnings != nil {
				t.Errorf("%s: %v %+v", name, err, tok)
				continue
			}
			c := s.call(p, nil, tok)
			s.valid(c.verify(s.one(), nil))
			c.burn(c.hold(nil).AgentRequestID, nil)
			s.balance(p, s1, 95, 0)
		}
	})
}

// What ends the authority of a delegation refuses the access token, whatever the plan costs.
func TestPermission_DelegationWithoutAuthority(t *testing.T) {
	each(t, func(s *scene) {
		p, other := s.plan(free), s.plan(nil).ID
		revoked, key := s.delegation(100, nil), toll.NewHash()
		must.Get(s.one().checkout.Delegations.Revoke(s.ctx, s1, revoked))(s)
		for code, d := range map[toll.Code]string{
			toll.CodeDelegationRevoked:      revoked,
			toll.CodeDelegationNotFound:     toll.NewUUID(),
			toll.CodeDelegationPlanMismatch: s.delegation(100, func(in *toll.DelegationInput) { in.PlanID = &other }),
		} {
			_, err := s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1, KeyID: key}, &tokens.PermissionRequest{
				PlanID: p.ID, Delegation: &tokens.DelegationConfig{ID: d},
			}, nil)
			if !errors.Is(err, toll.NewError(code)) {
				t.Errorf("%v, want %s", err, code)
			}
		}
	})
}

// The currency of a delegation defaults to that of its provider.
func TestDelegation_DefaultCurrency(t *testing.T) {
	each(t, func(s *scene) {
		d, err := s.one().checkout.Delegations.Read(s.ctx, s1, s.delegation(100, func(in *toll.DelegationInput) { in.Currency = nil }))
		if err != nil || d.Currency != "usdc" {
			t.Errorf("%v %+v", err, d)
		}
		card := "pm_1"
		_, err = s.one().checkout.Delegations.Create(s.ctx, checkout.Owner{Address: s1}, toll.DelegationInput{
			Provider: new("stripe"), SpendingLimitCents: new(toll.Cents(1)), DurationSecs: new(toll.Int(60)), ProviderPaymentMethodID: &card,
		}, nil)
		if !errors.Is(err, toll.NewError(toll.CodePaymentMethodNotFound)) {
			t.Errorf("a card delegation without currency: %v", err) // in usdc it would be another refusal
		}
	})
}
