package paid_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// freePlan is a plan that every account can order without money.
var freePlan = tolltest.WithPlan(client.PlanParams{
	Metadata: toll.Metadata{Name: "Free"}, Credits: toll.CreditsDynamic(100, 1, 5),
})

// What a 402 says of buying and signing in can be followed as it stands, whether the terms came over HTTP or not.
func TestAddressesOfAService(t *testing.T) {
	svc := tolltest.New(t, freePlan)
	key := must.Get(svc.NewKey("sue"))(t)
	for name, f := range map[string]x402.Facilitator{"client": svc.Client(), "in process": svc.Facilitator()} {
		s := serve(t, paid.Handler(f, &work{t: t}, paid.Plan(svc.Plan()), paid.Agent(svc.Agent())))
		r := send(t, "POST", s.URL+"/ask")
		var p x402.PaymentRequired
		must.Do(t, x402.DecodeHeader(r.header.Get(x402.HeaderRequired), &p))
		e := p.Accepts[0].Extra
		for _, c := range []struct{ method, url, want string }{
			{"GET", e.PlanURL, `"id":"` + string(svc.Plan()) + `"`},
			{"POST", e.OrderURL, `"success":true`},
			{"GET", e.SignInURL, "<form"},
		} {
			req, err := http.NewRequest(c.method, c.url, nil)
			if err != nil || !strings.HasPrefix(c.url, svc.URL()+"/") {
				t.Fatalf("%s: %q, %v", name, c.url, err)
			}
			if c.method == "POST" {
				req.Header.Set("Authorization", "Bearer "+key.Key)
			}
			res := must.Get(http.DefaultClient.Do(req))(t)
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != 200 || !strings.Contains(string(body), c.want) {
				t.Errorf("%s: %s %s: %d %.300s, %v", name, c.method, c.url, res.StatusCode, body, err)
			}
		}
		var body toll.ErrorBody
		if err := json.Unmarshal([]byte(r.body), &body); err != nil || !strings.Contains(body.Hint, "POST "+svc.URL()+"/api/v1/x402/permissions") ||
			!strings.Contains(body.Hint, " "+svc.URL()+"/p/"+string(e.PlanID)+".") {
			t.Errorf("%s: hint %q, %v", name, body.Hint, err)
		}
	}
}

// The program in the README and in docs/GO.md names the address under which docs/GO.md registers its agent.
func TestReadmeNamesAnAbsoluteResource(t *testing.T) {
	readme := must.Get(os.ReadFile("../README.md"))(t)
	guide := must.Get(os.ReadFile("../docs/GO.md"))(t)
	inProgram := regexp.MustCompile(`http\.Handle\("POST (/\w+)", paid\.Handler\(f, ask, ([^\n]*)\)\)\n`)
	program := inProgram.FindStringSubmatch(string(readme))
	registered := regexp.MustCompile(`\{"POST":"([^"]+)"\}`).FindStringSubmatch(string(guide))
	if program == nil || registered == nil {
		t.Fatal("the README has no program, or docs/GO.md registers no endpoint")
	}
	if same := inProgram.FindStringSubmatch(string(guide)); !slices.Equal(same, program) {
		t.Errorf("the README has %q, and docs/GO.md %q", program, same)
	}
	var opts []paid.Option
	for _, o := range regexp.MustCompile(`paid\.(\w+)\(([^()]*)\)`).FindAllStringSubmatch(program[2], -1) {
		switch o[1] {
		case "Plan":
			opts = append(opts, paid.Plan(plan))
		case "Agent":
			opts = append(opts, paid.Agent(agent))
		case "Credits":
			opts = append(opts, paid.Credits(2))
		case "PublicURL":
			opts = append(opts, paid.PublicURL(strings.Trim(o[2], `"`)))
		default:
			t.Fatalf("say here what paid.%s is", o[1])
		}
	}
	s := serve(t, paid.Handler(newDesk(1), &work{t: t}, opts...))
	var p x402.PaymentRequired
	if err := x402.DecodeHeader(send(t, "POST", s.URL+program[1]).header.Get(x402.HeaderRequired), &p); err != nil || p.Resource.URL != registered[1] {
		t.Errorf("the 402 names %q and the agent is registered at %q, %v", p.Resource.URL, registered[1], err)
	}
}

// Without a public address a 402 can name a path only, which no client can follow: the builder is told, once.
func TestNoPublicURL(t *testing.T) {
	log, lines := logs(t)
	s := serve(t, paid.Handler(newDesk(1), &work{t: t}, paid.Plan(plan), log))
	for range 2 {
		send(t, "GET", s.URL)
	}
	if n := strings.Count(lines.String(), "PublicURL"); n != 1 {
		t.Errorf("told %d times: %s", n, lines)
	}
	named := paidServer(t, newDesk(1), &work{t: t}, paid.PublicURL("https://agent.example.com"), paid.Log(slog.New(slog.NewTextHandler(lines, nil))))
	send(t, "GET", named.URL)
	if n := strings.Count(lines.String(), "PublicURL"); n != 1 {
		t.Errorf("a builder who has named it is told: %s", lines)
	}
}

// TestSellerFindsReason: a seller whose API key does not work finds the reason in its log. The caller does not see it. For a wrong
// receiver see TestWalletsPayPerCall in internal/server.
func TestSellerFindsReason(t *testing.T) {
	svc := tolltest.New(t)
	sub := svc.Subscriber(5)
	other := must.Get(svc.NewKey("other"))(t)
	good := must.Get(svc.NewKey("more"))(t)
	for name, c := range map[string]struct {
		key  string
		says string
	}{
		"another workspace": {other.Key, "You do not own this plan"},
		"a broken key":      {good.Key[:len(good.Key)-8] + "AAAAAAAA", "not an API key of this service"},
	} {
		log, lines := logs(t)
		h := &work{t: t}
		front := serve(t, paid.Handler(client.New(c.key, client.WithURL(svc.URL())), h, paid.Plan(svc.Plan()), log))
		r := send(t, "POST", front.URL+"/ask", sig, sub.AccessToken)
		if r.status != 503 || !strings.Contains(lines.String(), c.says) || strings.Contains(lines.String(), c.key) {
			t.Errorf("%s: %d %s\nlog %s", name, r.status, r.body, lines)
		}
		if strings.Contains(r.body, c.says) {
			t.Errorf("%s: the caller sees %s", name, r.body)
		}
	}
}
