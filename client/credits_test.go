package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// planService has one plan, and keeps the last access token that was asked for.
func planService(t *testing.T, made *string) *service {
	return serve(t, func(_ int, s sent) (int, map[string]string, string) {
		switch {
		case s.target == "/":
			return 200, nil, `{"name":"toll","environment":"sandbox","network":"eip155:84532"}`
		case s.method == "POST":
			*made = s.body
			return 201, nil, `{"accessToken":"eyJhIjoxfQ.eyJhIjoxfQ.c2ln"}`
		}
		b, err := x402.Encode(toll.Plan{
			ID: plan, Owner: toll.Address{9}, Price: toll.Price{IsCrypto: true}, AccessLimit: toll.LimitCredits,
			Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 5}, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
		})
		if err != nil {
			t.Error(err)
		}
		return 200, nil, string(b)
	})
}

// TestReview5_NothingIsNotALimit: an entry that asks for no credits gets no access token, as that would have no limit.
func TestReview5_NothingIsNotALimit(t *testing.T) {
	made := ""
	s := planService(t, &made)
	p := s.client().Payer()
	for amount, limit := range map[string]string{"0": "", "3": "3", "": "5"} {
		made = ""
		e := &x402.Entry{Scheme: "svc:erc4337", Network: "eip155:84532", Amount: amount, PlanID: string(plan)}
		q, err := p.Quote(context.Background(), e)
		if err != nil {
			if limit != "" {
				t.Errorf("%q: %v", amount, err)
			}
			continue
		}
		if _, err := p.Pay(context.Background(), e, q); err != nil {
			t.Errorf("%q: %v", amount, err)
		}
		if want := `"redemptionLimit":"` + limit + `"`; q.Amount.String() != limit || !strings.Contains(made, want) {
			t.Errorf("%q is %s credits, and the access token %s", amount, q.Amount, made)
		}
	}
}

// TestReview5_DelegationsBuyNamedPlans: a server that asks for credits of a plan of its own does not get it bought.
func TestReview5_DelegationsBuyNamedPlans(t *testing.T) {
	made := ""
	c := planService(t, &made).client()
	e := &x402.Entry{Scheme: "svc:erc4337", Network: "eip155:84532", Amount: "1", PlanID: string(plan)}
	if _, err := c.Payer().Topped("purse").Quote(context.Background(), e); err == nil {
		t.Error("a delegation buys whatever plan a server names")
	}
	p := c.Payer(plan).Topped("purse")
	q, err := p.Quote(context.Background(), e)
	if err == nil {
		_, err = p.Pay(context.Background(), e, q)
	}
	if err != nil || !strings.Contains(made, `"delegationConfig":{"delegationId":"purse"}`) {
		t.Errorf("%s, %v", made, err)
	}
}
