package interop

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

func everyPair(t *testing.T, s *service, a *actors) {
	servers := map[string]func(*scene) *party{
		"express": func(c *scene) *party { return c.E() }, "paid": func(c *scene) *party { return c.O() }, "go": (*scene).G,
	}
	clients := map[string]func(*scene, *party) *outcome{
		"fetch": func(c *scene, p *party) *outcome { return c.C(p) }, "axios": func(c *scene, p *party) *outcome { return c.axios(p) },
		"go": (*scene).goClient,
	}
	for server, open := range servers {
		for client, ask := range clients {
			t.Run(client+" at "+server, func(t *testing.T) {
				c := newScene(t, s, a)
				p := open(c)
				c.paid(ask(c, p), 5)
				if verify := p.of("verify"); len(verify) != 1 || verify[0].status != 200 || verify[0].text("isValid") != "true" {
					t.Errorf("%d calls of verify", len(verify))
				}
				if settle := p.of("settle"); len(settle) != 1 || settle[0].status != 200 {
					t.Errorf("%d calls of settle", len(settle))
				}
				c.ends(1, []int{5}, 95)
			})
		}
	}
}

func withoutDefaultAsset(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.C(c.E(), func(a *clientArgs) { a.NoDefaultAsset = true })
	if !strings.Contains(o.Thrown, "spendControls") || len(o.Trips) != 1 || o.Trips[0].Status != 402 {
		t.Errorf("%+v", o)
	}
	c.ends(0, nil, 100)
}

func spendCap(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.credits, s.max = 3_000_000, 2_000_000 })
	e := c.E(func(a *serverArgs) { a.Price = 2_000_000 })
	if o := c.C(e); !strings.Contains(o.Thrown, "maxAmountPerPayment ($1, including credits)") {
		t.Errorf("%+v", o)
	}
	c.paid(c.C(e, func(a *clientArgs) { a.SpendControls = map[string]string{"maxAmountPerPayment": "$10"} }), 2_000_000)
	c.ends(1, []int{2_000_000}, 1_000_000)
}

func topLevelPlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E(func(a *serverArgs) { a.TopLevelPlan = true })
	c.paid(c.C(e), 5)
	if text := c.refused(c.goClient(e)); text != "No matching payment requirements" {
		t.Errorf("402 says %q", text)
	}
	c.ends(1, []int{5}, 95)
}

func superset(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.O()
	entry := required(c.send(o).header.Get("Payment-Required")).Accepts[0]
	if entry.PlanID != string(c.plan) || entry.Extra.PlanID != string(c.plan) || entry.Amount != "5" || entry.PayTo != c.builder.Address.String() {
		t.Errorf("%+v", entry)
	}
	c.paid(c.C(o), 5)
	c.paid(c.goClient(o), 5)
	c.ends(2, []int{5, 5}, 90)
}

func smallestEntry(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.ours(minimal)
	var failed outcome
	if err := c.clients.do("fetch", c.args(o, nil), &failed); err != nil || failed.Thrown == "" {
		t.Errorf("%+v %v", failed, err)
	}
	var done outcome
	must.Do(t, c.clients.do("fetch", c.args(o, []func(*clientArgs){func(a *clientArgs) { a.SpendControls = false }}), &done))
	c.paid(&done, 5)
	c.paid(c.goClient(o), 5)
	c.ends(2, []int{5, 5}, 90)
}

func bareJWS(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	if r := c.send(e, c.token); r.status != 402 || len(e.of("verify")) != 0 {
		t.Errorf("Express: %d, %d calls of verify", r.status, len(e.of("verify")))
	}
	if r := c.send(o, c.token); r.status != 200 {
		t.Errorf("ours: %d %s", r.status, r.body)
	}
	c.ends(1, []int{5}, 95)
}

// edited returns a payment with changes.
func edited(t *testing.T, payment string, change func(map[string]any)) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(editedJSON(t, payment, change))
}

func editedJSON(t *testing.T, payment string, change func(map[string]any)) []byte {
	t.Helper()
	b := must.Get(base64.StdEncoding.DecodeString(payment))(t)
	var object map[string]any
	must.Do(t, json.Unmarshal(b, &object))
	change(object)
	b = must.Get(json.Marshal(object))(t)
	return b
}

func member(object map[string]any, name string) map[string]any { return object[name].(map[string]any) }

func otherEncodings(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	for what, encode := range map[string]func([]byte) string{
		"URL alphabet": base64.URLEncoding.EncodeToString, "JSON": func(b []byte) string { return string(b) },
	} {
		for _, p := range []*party{e, o} {
			text := editedJSON(t, c.pay(p), func(p map[string]any) { p["note"] = "<<<???>>>~~~" })
			value := encode(text)
			if what == "URL alphabet" && !(strings.Contains(value, "-") && strings.Contains(value, "_")) {
				t.Fatalf("%s has no other letters", value)
			}
			want := 200
			if p == e {
				want = 402
			}
			if r := c.send(p, value); r.status != want {
				t.Errorf("%s: %d %s", what, r.status, r.body)
			}
		}
	}
	if n := len(e.of("verify")); n != 0 {
		t.Errorf("%d calls of verify", n)
	}
	c.ends(2, []int{5, 5}, 90)
}

func shortOfCredits(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.credits = 3 })
	e := c.E()
	c.begins(c.refused(c.C(e)), "insufficient_funds")
	if v := e.of("verify"); len(v) != 1 || v[0].status != 200 || v[0].text("invalidReason") != "insufficient_funds" {
		t.Errorf("%s", v[0].answer)
	}
	c.ends(0, nil, 3)
}

func revokedKey(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	b := s.client(s.builder)
	key := must.Get(b.CreateKey(t.Context(), client.KeyParams{Name: "revoked"}))(t)
	must.Get(b.RevokeKey(t.Context(), key.ID))(t)
	e := c.E(func(a *serverArgs) { a.Key = key.Key })
	text := c.refused(c.C(e))
	c.begins(text, "unauthorized_server")
	if strings.Contains(text, key.Key) || strings.Contains(text, "BCK") {
		t.Errorf("402 says %q", text)
	}
	if v := e.of("verify"); len(v) != 1 || v[0].status != 401 || v[0].text("isValid") != "false" {
		t.Errorf("%+v", v)
	}
	c.ends(0, nil, 100)
}
