package interop

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// statements has the service sign what it offers and what it took, and other software verify both.
func statements(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.O(paid.Offers(true))
	r := c.C(o)
	c.paid(r, 5)
	req := must.Get(http.NewRequestWithContext(t.Context(), "GET", s.url+"/.well-known/did.json", nil))(t)
	did := must.Get(read(req))(t)
	var faults []string
	must.Do(t, a.oracle.do("statements", map[string]any{
		"required": r.Trips[0].Headers["payment-required"], "response": r.Headers["payment-response"],
		"did": json.RawMessage(did.body), "payer": c.subscriber.Address, "resource": resource,
	}, &faults))
	for _, f := range faults {
		t.Error(f)
	}
	c.ends(1, []int{5}, 95)
}

func changedEcho(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(func(a *serverArgs) {
		a.Extensions = map[string]any{x402.ExtensionPaymentIdentifier: map[string]any{"info": map[string]any{"required": false}, "schema": map[string]any{"type": "object"}}}
	}), c.O()
	for _, p := range []*party{e, o} {
		r := c.send(p, edited(t, c.pay(p), func(p map[string]any) {
			member(member(member(p, "extensions"), x402.ExtensionPaymentIdentifier), "info")["required"] = true
		}))
		if r.status != 402 {
			t.Errorf("%d %s", r.status, r.body)
			continue
		}
		c.begins(r.error(), x402.ReasonEchoMismatch)
	}
	c.ends(0, nil, 100)
}

func catalogue(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	_, hidden := c.register("https://hidden.example.com/ask")
	must.Get(s.client(s.builder).SetAgentListed(t.Context(), hidden, false))(t)
	for _, query := range []string{"", c.Name()} {
		var items []struct {
			Resource string
			Type     string
			Accepts  []x402.Requirements
		}
		must.Do(t, a.oracle.do("catalogue", map[string]any{"service": s.url, "payTo": s.builder.Address, "query": query}, &items))
		found := false
		for _, item := range items {
			if item.Resource == "https://hidden.example.com/ask" {
				t.Errorf("an agent that is not listed is in the catalogue: %+v", item)
			}
			for _, entry := range item.Accepts {
				found = found || item.Resource == resource && item.Type == "http" && entry.Extra.PlanID == string(c.plan) && entry.Extra.AgentID == string(c.agent)
			}
		}
		if !found {
			t.Errorf("%q finds %+v", query, items)
		}
	}
}
