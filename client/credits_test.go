package client_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
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
		case strings.Contains(s.target, "/agents"):
			b, err := x402.Encode(map[string]any{"agents": []any{agentAt("7", "https://a.example/ask")}, "total": 1})
			must.Check(t, err)
			return 200, nil, string(b)
		}
		b, err := x402.Encode(toll.Plan{
			ID: plan, Owner: toll.Address{9}, Price: toll.Price{IsCrypto: true}, AccessLimit: toll.LimitCredits,
			Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 5}, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
		})
		must.Check(t, err)
		return 200, nil, string(b)
	})
}

// called is the url of a paid request.
var called = &url.URL{Scheme: "https", Host: "a.example", Path: "/ask"}

func agentAt(id toll.AgentID, urls ...string) toll.Agent {
	a := toll.Agent{ID: id, Owner: toll.Address{9}, IsListed: true, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0)}
	for _, u := range urls {
		a.API.Endpoints = append(a.API.Endpoints, toll.Endpoint{Verb: "POST", URL: u})
	}
	return a
}

// TestReview5_NothingIsNotALimit: an entry that asks for no credits gets no access token, as that would have no limit.
func TestReview5_NothingIsNotALimit(t *testing.T) {
	made := ""
	s := planService(t, &made)
	p := s.client().Payer()
	for amount, limit := range map[string]string{"0": "", "3": "3", "": "5"} {
		made = ""
		e := &x402.Entry{Scheme: "svc:erc4337", Network: "eip155:84532", Amount: amount, PlanID: string(plan)}
		q, err := p.Quote(context.Background(), called, e)
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
	if _, err := c.Payer().Topped("purse").Quote(context.Background(), called, e); err == nil {
		t.Error("a delegation buys whatever plan a server names")
	}
	p := c.Payer(plan).Topped("purse")
	q, err := p.Quote(context.Background(), called, e)
	if err == nil {
		_, err = p.Pay(context.Background(), e, q)
	}
	if err != nil || !strings.Contains(made, `"delegationConfig":{"delegationId":"purse"}`) {
		t.Errorf("%s, %v", made, err)
	}
}

// TestCreditsPayer_OlderService: a service that does not say whether a permission is closed is not
// taken to say that it is.
func TestCreditsPayer_OlderService(t *testing.T) {
	made := ""
	s := planService(t, &made)
	rest := s.reply
	s.reply = func(n int, c sent) (int, map[string]string, string) {
		if strings.Contains(c.target, "/x402/permissions/") {
			return 200, nil, `{"permissionHash":"` + toll.Hash{1}.String() + `","status":"Revoked","usedCredits":"0"}`
		}
		return rest(n, c)
	}
	p := s.client().Payer()
	e := &x402.Entry{Scheme: "svc:erc4337", Network: "eip155:84532", Amount: "3", PlanID: string(plan)}
	q := must.Get(p.Quote(t.Context(), called, e))(t)
	paid := must.Get(p.Pay(t.Context(), e, q))(t)
	if spent, sure := paid.Spent(t.Context(), new(x402.Settlement)); sure {
		t.Errorf("%s credits are taken for all that was spent", spent)
	}
}
