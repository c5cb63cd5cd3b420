package server_test

import (
	"encoding/json"
	"fmt"
	"html"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

var formsOf = regexp.MustCompile(`(?s)<form method="post".*?</form>`)

// formWith reads the form of a page whose hidden field act has a value.
func formWith(t *testing.T, s shown, act string) page {
	t.Helper()
	labelled(t, s.body)
	for _, one := range formsOf.FindAllString(mainPart.FindString(s.body), -1) {
		if strings.Contains(one, `name="act" value="`+act+`"`) {
			body := `<html lang="en"><main><h1></h1>` + strings.Replace(one, " data-live", "", 1) + `</main>`
			return formOf(t, shown{s.status, s.header, strings.Replace(body, "<h1></h1>", "<h1>x</h1>", 1)})
		}
	}
	t.Fatalf("%d, no form to %s:\n%s", s.status, act, mainPart.FindString(s.body))
	return page{}
}

// seller is a person in a browser with a workspace, and the same through the API.
type seller struct {
	*visitor
	w   string // path of the workspace
	api *client.Client
}

var ownLinks = regexp.MustCompile(`href="(/w/0x[0-9a-fA-F]{40})(/[^"?#]+)`)

// pages opens the pages at paths below the workspace, and those of the workspace that any of them links to, each once.
func (s *seller) pages(paths []string) iter.Seq2[string, shown] {
	return func(yield func(string, shown) bool) {
		queue := slices.Clone(paths)
		for i := 0; i < len(queue); i++ {
			page := s.get(s.w + queue[i])
			for _, m := range ownLinks.FindAllStringSubmatch(page.body, -1) {
				if m[1] == s.w && !slices.Contains(queue, m[2]) {
					queue = append(queue, m[2])
				}
			}
			if !yield(queue[i], page) {
				return
			}
		}
	}
}

func (o *town) seller(login string) *seller {
	o.t.Helper()
	v := o.signUp(login, "")
	at := v.workspace()
	return &seller{v, "/w/" + at, client.New(v.keyOf(at), client.WithURL(o.address), client.WithRetries(0))}
}

// done sends a form, which has to lead to a page that says something.
func (s *seller) done(p page, says string) (path string, res shown) {
	s.t.Helper()
	res = s.submit(p)
	to := res.header.Get("Location")
	if res.status != http.StatusSeeOther || to == "" {
		s.t.Fatalf("%s %v: %d %s", p.action, p.values, res.status, mainPart.FindString(res.body))
	}
	path, _, _ = strings.Cut(to, "?")
	if res = s.get(to); res.status != http.StatusOK || !strings.Contains(html.UnescapeString(res.body), says) {
		s.t.Fatalf("%s does not say %q: %d %s", to, says, res.status, mainPart.FindString(res.body))
	}
	return path, res
}

func (s *seller) plans() (all []*toll.Plan) {
	s.t.Helper()
	for p, err := range s.api.Plans(s.t.Context(), client.Ascending()) {
		must.Do(s.t, err)
		all = append(all, p)
	}
	return all
}

// TestPlanPages: a person makes a plan of every kind, sees before what buyers will see, and what they see is what is made. What the
// API refuses stands beside its field, and nothing is made.
func TestPlanPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.seller("alice")
		form := func() page { return formWith(t, alice.get(alice.w+"/plans/new"), "make").with("name", "Basic") }
		set := func(pairs ...string) page {
			p := form()
			for i := 0; i < len(pairs); i += 2 {
				p = p.with(pairs[i], pairs[i+1])
			}
			return p
		}
		env := toll.Sandbox
		me := toll.MustAddress(strings.TrimPrefix(alice.w, "/w/"))
		usdc := func(units int64, template toll.Address) toll.Price {
			return toll.Price{
				TokenAddress: env.USDC(), Amounts: []toll.Units{toll.UnitsOf(units)}, Receivers: []toll.Address{me}, IsCrypto: true, Currency: "USDC",
				TemplateAddress: template,
			}
		}
		for name, c := range map[string]struct {
			form    page
			shows   []string // the preview
			price   toll.Price
			credits toll.CreditsConfig
			limit   toll.AccessLimit
			trial   bool
			orders  int64
		}{
			"credits in USDC": {
				set("maxOrders", "7"), []string{"1.00 <small>USDC · 100 credits", "10.00 USDC (10 orders)", "Limited to 7 orders"}, usdc(1_000_000, toll.Address{}),
				toll.CreditsFixed(100, 1), toll.LimitCredits, false, 7,
			},
			"credits in USDC, one order for 1,000 requests": {
				set("amount", "1000"), []string{"1.00 <small>USDC · 1,000 credits", "1.00 USDC (1 order)</p>"}, usdc(1_000_000, toll.Address{}),
				toll.CreditsFixed(1000, 1), toll.LimitCredits, false, 0,
			},
			"dynamic credits that end, by card": {
				set("pay", "EUR", "price", "12.50", "least", "1", "most", "5", "life", "30"),
				[]string{"12.50 <small>EUR", "125.00 to 625.00 EUR (10 to 50 orders)", "expire after 30 days"},
				toll.Price{Amounts: []toll.Units{toll.UnitsOf(12_500_000)}, Receivers: []toll.Address{me}, Currency: "EUR"},
				func() toll.CreditsConfig {
					c := toll.CreditsDynamic(100, 1, 5)
					c.DurationSecs = toll.UnitsOf(30 * toll.DaySecs)
					return c
				}(),
				toll.LimitCredits, false, 0,
			},
			"time": {
				set("kind", "time", "length", "2", "unit", "604800"), []string{"USDC · 2 weeks", "included in the price"}, usdc(1_000_000, toll.Address{}),
				toll.CreditsExpirable(toll.UnitsOf(2 * toll.WeekSecs)), toll.LimitTime, false, 0,
			},
			"a free trial": {
				set("pay", "free", "trial", "yes", "amount", "3"), []string{"Free", "you can order the plan once"}, toll.PriceFree(),
				toll.CreditsFixed(3, 1), toll.LimitCredits, true, 0,
			},
			"pay as you go": {
				set("kind", "as-you-go", "price", "0.002", "most", "10"), []string{"0.002 <small>USDC · each credit", "2.00 to 20.00 USDC"},
				usdc(2000, toll.PayAsYouGoTemplate), toll.CreditsDynamic(1, 1, 10), toll.LimitCredits, false, 0,
			},
		} {
			before := len(alice.plans())
			preview := alice.submit(c.form.with("preview", "yes"))
			for _, text := range c.shows {
				if preview.status != http.StatusOK || !strings.Contains(preview.body, text) {
					t.Errorf("%s: %d, the preview does not say %q:\n%s", name, preview.status, text, mainPart.FindString(preview.body))
				}
			}
			if n := len(alice.plans()); n != before {
				t.Errorf("%s: a preview made a plan", name)
			}
			path, _ := alice.done(c.form, "Plan created.")
			if res := alice.submit(c.form); res.status != http.StatusSeeOther { // a double click
				t.Errorf("%s: again %d", name, res.status)
			}
			all := alice.plans()
			if len(all) != before+1 {
				t.Fatalf("%s: %d plans", name, len(all))
			}
			got := all[before]
			want := *got
			want.Price, want.Credits, want.AccessLimit, want.IsTrial, want.MaxOrders = c.price, c.credits, c.limit, c.trial, c.orders
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(&want)
			if string(a) != string(b) || path != alice.w+"/plans/"+string(got.ID) || got.Metadata.Name != "Basic" {
				t.Errorf("%s:\n got %s\nwant %s", name, a, b)
			}
		}
		count := len(alice.plans())
		for name, c := range map[string]struct {
			form page
			says string
		}{
			"no name":            {set("name", ""), "Name is required."},
			"no amount":          {set("price", "a lot"), `must be an amount such as 1.00; got "a lot"`},
			"below a card":       {set("pay", "USD", "price", "0.50"), toll.CodeFiatPriceTooLow.Info().Message},
			"too few":            {set("amount", "0"), "must be a whole number of at least 1"},
			"two faults":         {set("amount", "x", "least", "y"), "Correct the other marked fields"},
			"most below least":   {set("least", "5", "most", "2"), "The maximum amount must be at least the minimum amount."},
			"as you go by card":  {set("kind", "as-you-go", "pay", "USD"), "must be a wallet"},
			"as you go for free": {set("kind", "as-you-go", "pay", "free"), "must not be free"},
			"no address":         {set("receiver", "me"), "Payout wallet must be 0x"},
			"no kind":            {form().with("kind"), "Plan type must be one of the options."},
			"no period":          {set("kind", "time", "length", ""), "duration above 0"},
			"a long name":        {set("name", strings.Repeat("n", toll.MaxNameRunes+1)), "Name must be at most"},
		} {
			for _, p := range []page{c.form, c.form.with("preview", "yes")} {
				if name == "no name" && p.values.Has("preview") {
					continue // it has one for show
				}
				res := alice.submit(p)
				if res.status != http.StatusBadRequest || !strings.Contains(html.UnescapeString(res.body), c.says) || !strings.Contains(res.body, `aria-invalid="true"`) {
					t.Errorf("%s: %d\n%s", name, res.status, mainPart.FindString(res.body))
				}
				if live := alice.submit(p.with("preview", "live")); name != "no name" && (live.status != http.StatusOK || !strings.Contains(live.body, `aria-invalid="true"`)) {
					t.Errorf("%s, while a person types: %d", name, live.status)
				}
				if back := formWith(t, res, "make"); back.values.Get("price") != p.values.Get("price") {
					t.Errorf("%s: what was typed is gone: %v", name, back.values)
				}
			}
		}
		if n := len(alice.plans()); n != count {
			t.Errorf("%d plans after refusals, want %d", n, count)
		}
	})
}

// TestPlanActs: a plan is edited, unlisted, its credits are minted and taken back; a change by another person meanwhile is kept.
func TestPlanActs(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.seller("alice"), o.seller("bob")
		made, err := alice.api.RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(100, 1)})
		must.Do(t, err)
		id := made.PlanID
		path := alice.w + "/plans/" + string(id)
		plan := func() *toll.Plan {
			return must.Get(alice.api.Plan(t.Context(), id))(t)
		}
		stale := formWith(t, alice.get(path+"/edit"), "edit").with("name", "Stale")
		alice.done(formWith(t, alice.get(path+"/edit"), "edit").with("name", "Better").with("tags", "one, two").with("maxOrders", "9"), "Plan saved.")
		if p := plan(); p.Metadata.Name != "Better" || fmt.Sprint(p.Metadata.Tags) != "[one two]" || p.MaxOrders != 9 {
			t.Errorf("%+v", p)
		}
		if res := alice.submit(stale); res.status != toll.CodeRecordChanged.Info().Status || plan().Metadata.Name != "Better" {
			t.Errorf("a stale form: %d, %s", res.status, plan().Metadata.Name)
		}
		if res := alice.submit(formWith(t, alice.get(path+"/edit"), "edit").with("version").with("name", "Unguarded")); res.status < 400 || plan().Metadata.Name != "Better" {
			t.Errorf("a form without a version: %d", res.status)
		}
		alice.done(formWith(t, alice.get(path+"/edit"), "edit").with("maxOrders", ""), "Plan saved.")
		alice.done(formWith(t, alice.get(path), "unlist"), "accepts no new orders")
		if p := plan(); p.MaxOrders != 0 || p.IsListed {
			t.Errorf("%+v", p)
		}
		alice.done(formWith(t, alice.get(path), "list"), "Plan listed.")

		holder := strings.TrimPrefix(bob.w, "/w/")
		balance := func() *toll.Balance {
			return must.Get(alice.api.BalanceOf(t.Context(), id, toll.MustAddress(holder)))(t)
		}
		mint := formWith(t, alice.get(path), "mint").with("holder", holder).with("credits", "50").with("days", "30")
		_, res := alice.done(mint, "50 credits minted to")
		alice.submit(mint) // a double click
		if b := balance(); b.Available != 50 || b.ExpiresAt == nil || !strings.Contains(res.body, holder) {
			t.Errorf("%+v", b)
		}
		alice.done(formWith(t, alice.get(path), "take").with("holder", holder).with("credits", "20"), "20 credits taken back from")
		for name, p := range map[string]page{
			"too many":   formWith(t, alice.get(path), "take").with("holder", holder).with("credits", "31"),
			"no address": formWith(t, alice.get(path), "mint").with("holder", "bob").with("credits", "1"),
			"nothing":    formWith(t, alice.get(path), "mint").with("holder", holder),
			"for long":   formWith(t, alice.get(path), "mint").with("holder", holder).with("credits", "1").with("days", "99999999"),
			"no act":     formWith(t, alice.get(path), "mint").with("act", "give"),
		} {
			if res := alice.submit(p); res.status < 400 || res.status >= 500 || !strings.Contains(res.body, `role="alert"`) && name != "no act" {
				t.Errorf("%s: %d %s", name, res.status, mainPart.FindString(res.body))
			}
		}
		if b := balance(); b.Available != 30 {
			t.Errorf("%+v", b)
		}
	})
}

// TestAgentPages: an agent is registered, edited, attached to plans and unlisted; secrets are never shown.
func TestAgentPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.seller("alice")
		made, err := alice.api.RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(100, 1)})
		must.Do(t, err)
		agents := func() (all []*toll.Agent) {
			for a, err := range alice.api.Agents(t.Context()) {
				must.Do(t, err)
				all = append(all, a)
			}
			return all
		}
		form := formWith(t, alice.get(alice.w+"/agents/new"), "register").with("name", "Ask").with("plans", string(made.PlanID)).
			with("endpoints", "https://agent.example.com/ask\nget https://agent.example.com/stats/:id").with("openEndpoints", "/health").
			with("authType", "bearer").with("token", "upstream-secret").with("tags", "text, english")
		path, res := alice.done(form, "Agent created.")
		alice.submit(form)
		all := agents()
		if len(all) != 1 {
			t.Fatalf("%d agents", len(all))
		}
		a := all[0]
		want := toll.EndpointList{{Verb: "POST", URL: "https://agent.example.com/ask"}, {Verb: "GET", URL: "https://agent.example.com/stats/:id"}}
		if fmt.Sprint(a.API.Endpoints) != fmt.Sprint(want) || !a.HasPlan(made.PlanID) || a.API.AuthType != "bearer" || !a.API.HasCredentials || path != alice.w+"/agents/"+string(a.ID) {
			t.Errorf("%+v", a)
		}
		for _, text := range []string{"curl -i -X POST 'https://agent.example.com/ask' \\\n  -H", "toll gate", "HTTPXPayer", "@tollhq/toll", "mcpServers", "client.NewTransport", string(made.PlanID)} {
			if !strings.Contains(html.UnescapeString(res.body), text) {
				t.Errorf("the page does not say %q", text)
			}
		}
		for _, at := range []string{path, path + "/edit"} {
			if body := alice.get(at).body; strings.Contains(body, "upstream-secret") {
				t.Errorf("%s shows the secret", at)
			}
		}
		edit, stale := formWith(t, alice.get(path+"/edit"), "edit"), formWith(t, alice.get(path+"/edit"), "edit")
		if edit.values.Get("name") != "Ask" {
			t.Errorf("%v", edit.values)
		}
		// A text area is no input: its fields are written anew.
		full := func(p page) page {
			return p.with("endpoints", "https://agent.example.com/ask").with("openEndpoints", "").with("description", "It answers.")
		}
		alice.done(full(edit.with("name", "Ask more").with("strictEndpoints", "yes")), "Agent saved.")
		a = agents()[0]
		if a.Metadata.Name != "Ask more" || !bool(a.API.StrictEndpoints) || !a.API.HasCredentials || len(a.API.Endpoints) != 1 || a.Metadata.Description != "It answers." {
			t.Errorf("%+v", a)
		}
		if res := alice.submit(full(stale)); res.status != toll.CodeRecordChanged.Info().Status {
			t.Errorf("a stale form: %d", res.status)
		}
		for name, c := range map[string]struct{ field, value, says string }{
			"verb": {"endpoints", "FETCH https://agent.example.com", "must have a method and a URL"}, "url": {"endpoints", "POST ftp://x", "Paid endpoints must be an absolute"},
			"open": {"openEndpoints", "nowhere", "Open endpoints must be an absolute"}, "name": {"name", "", "Name is required"},
			"definition": {"agentDefinitionUrl", "x", "Definition URL must be"}, "kind": {"authType", "magic", "must be none, basic, oauth, or bearer"},
		} {
			res := alice.submit(full(formWith(t, alice.get(path+"/edit"), "edit")).with(c.field, c.value))
			if res.status != http.StatusBadRequest || !strings.Contains(html.UnescapeString(res.body), c.says) || !strings.Contains(res.body, `aria-invalid="true"`) {
				t.Errorf("%s: %d %s", name, res.status, mainPart.FindString(res.body))
			}
		}
		alice.done(formWith(t, alice.get(path), "detach"), "Plan detached.")
		if agents()[0].HasPlan(made.PlanID) {
			t.Error("the plan is still attached")
		}
		alice.done(formWith(t, alice.get(path), "attach"), "Plan attached.")
		alice.done(formWith(t, alice.get(path), "unlist"), "Agent unlisted.")
		if a := agents()[0]; !a.HasPlan(made.PlanID) || a.IsListed {
			t.Errorf("%+v", a)
		}
		alice.done(formWith(t, alice.get(path), "list"), "Agent listed.")
	})
}

// TestSellingPagesByRole: forms act with the rights of the role, never for a stranger, and not without their ticket.
// T154
func TestSellingPagesByRole(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice, mallory := o.seller("alice"), o.seller("mallory")
	viewer := o.signUp("viewer", alice.invite(strings.TrimPrefix(alice.w, "/w/"), "viewer"))
	made := must.Get(alice.api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(100, 1),
	}))(t)
	hook := must.Get(alice.api.CreateWebhook(t.Context(), client.WebhookParams{URL: "https://hooks.example.com/"}))(t)
	plan, agent, hooks := "/plans/"+string(made.PlanID), "/agents/"+string(made.AgentID), "/webhooks/"+hook.ID
	for path, acts := range map[string][]string{
		"/plans/new": {"make"}, plan: {"mint", "take", "unlist"}, plan + "/edit": {"edit"}, "/agents/new": {"register"}, agent: {"detach", "unlist"},
		agent + "/edit": {"edit"}, "/webhooks/new": {"make"}, hooks: {"test", "pause", "rotate", "delete"}, hooks + "/edit": {"edit"},
	} {
		page := alice.get(alice.w + path)
		for _, act := range acts {
			form := formWith(t, page, act)
			for name, ticket := range map[string][]string{"no ticket": nil, "another ticket": {"a.b"}} {
				if res := alice.submit(form.with("ticket", ticket...)); res.status != http.StatusForbidden {
					t.Errorf("%s %s with %s: %d", path, act, name, res.status)
				}
			}
			if res := viewer.submit(form); res.status != http.StatusForbidden {
				t.Errorf("%s %s of a viewer: %d", path, act, res.status)
			}
			if res := mallory.submit(form); res.status != http.StatusNotFound {
				t.Errorf("%s %s of a stranger: %d", path, act, res.status)
			}
			other := form
			other.action = strings.Replace(form.action, alice.w, mallory.w, 1)
			if res := mallory.submit(other); res.status < 400 {
				t.Errorf("%s %s in another workspace: %d", path, act, res.status)
			}
		}
		if strings.HasSuffix(path, "/new") || strings.HasSuffix(path, "/edit") {
			if res := viewer.get(alice.w + path); res.status != http.StatusForbidden {
				t.Errorf("%s of a viewer: %d", path, res.status)
			}
		} else if res := viewer.get(alice.w + path); res.status != http.StatusOK || strings.Contains(res.body, `popover role="dialog"`) {
			t.Errorf("%s shows acts to a viewer: %d", path, res.status)
		}
		if res := mallory.get(mallory.w + path); !strings.HasSuffix(path, "/new") && res.status != http.StatusNotFound {
			t.Errorf("%s in another workspace: %d", path, res.status)
		}
	}
	p, err := alice.api.Plan(t.Context(), made.PlanID)
	if err != nil || !p.IsListed || len(alice.plans()) != 1 {
		t.Errorf("%+v %v", p, err)
	}
}

// TestSellerFigures: what the pages of a seller say of usage, revenue and refusals is what the API says, and a page that waits learns
// of a settlement.
func TestSellerFigures(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.seller("alice"), o.seller("bob")
		made := must.Get(alice.api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}, client.PlanParams{
			Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsDynamic(5000, 1, 2000),
		}))(t)
		must.Get(bob.api.OrderPlan(t.Context(), made.PlanID))(t)
		token := must.Get(bob.api.AccessToken(t.Context(), made.PlanID))(t)
		required := *x402.NewPaymentRequired([]*x402.Terms{{
			PlanID: made.PlanID, Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PayTo: strings.TrimPrefix(alice.w, "/w/"),
			MinAmount: 1, MaxAmount: 2000,
		}}, x402.Options{AgentID: made.AgentID})
		settle := func(id string, n toll.Credits) bool {
			r, err := alice.api.Settle(t.Context(), &x402.SettleRequest{
				PaymentRequired: required, AccessToken: token.AccessToken, AgentRequestID: id, MaxAmount: n.Ptr(),
			})
			return err == nil && r.Success
		}
		follow := regexp.MustCompile(`data-follow="([^"]*)" data-after="([0-9]+)"`)
		m := follow.FindStringSubmatch(alice.get(alice.w).body)
		if m == nil {
			t.Fatal("the overview does not follow")
		}
		var waiting sync.WaitGroup
		waiting.Add(1)
		var news shown
		go func() {
			defer waiting.Done()
			for after := m[2]; ; after = news.body {
				if news = alice.get(m[1] + "?after=" + after); news.status != http.StatusOK {
					return
				}
				if strings.Contains(alice.get(alice.w).body, "1,234") {
					return
				}
			}
		}()
		if !settle("one", 1234) {
			t.Fatal("not settled")
		}
		waiting.Wait()
		if news.status != http.StatusOK || news.body == m[2] {
			t.Fatalf("the page that waited: %d %q", news.status, news.body)
		}
		if !settle("two", 1000) || !settle("three", 2000) || settle("four", 2000) { // 766 were left
			t.Fatal("not settled as the balance allows")
		}
		eventually(t, "the count of usage", func() bool {
			for u, err := range alice.api.Usage(t.Context()) {
				if err == nil && u.Credits.String() >= "4234" {
					return true
				}
			}
			return false
		})
		var credits, requests string
		for u, err := range alice.api.Usage(t.Context(), client.By("plan")) {
			must.Do(t, err)
			credits, requests = u.Credits.String(), fmt.Sprint(u.Settled)
		}
		grouped := credits[:1] + "," + credits[1:]
		for _, path := range []string{"", "/usage", "/usage?plan=" + string(made.PlanID), "/plans/" + string(made.PlanID), "/agents/" + string(made.AgentID), "?range=24h", "?range=90d"} {
			res := alice.get(alice.w + path)
			for _, figure := range []string{grouped, requests} {
				if !strings.Contains(res.body, `<p class="value num">`+figure+`</p>`) {
					t.Errorf("%s: %d, no figure %s:\n%s", path, res.status, figure, mainPart.FindString(res.body))
				}
			}
		}
		for path, want := range map[string]string{
			"/subscribers": strings.TrimPrefix(bob.w, "/w/"), "/revenue": "no payments yet", "/usage": `<svg viewBox="0 0 300 100"`,
			"/usage?range=24h": `<svg viewBox="0 0 240 100"`, "/events?type=settlement.settled": "settlement.settled",
			"/events?since=2020-01-01": "settlement.settled", "/events?since=2100-01-01": "No events yet",
		} {
			if res := alice.get(alice.w + path); res.status != http.StatusOK || !strings.Contains(res.body, want) {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
		}
		// The overview of the buyer has the settlement among its receipts, not among sales.
		if body := bob.get(bob.w).body; strings.Contains(body, `id="latest"`) || strings.Contains(body, `id="sales"`) || !strings.Contains(body, `id="receipts"`) {
			t.Error("the buyer sees the settlement as a sale")
		}
		for path, status := range map[string]int{
			"/usage?plan=1": http.StatusNotFound, "/usage?plan=x": http.StatusNotFound, "/events?type=x": http.StatusNotFound, "/events?since=x": http.StatusNotFound, "/events/0": http.StatusNotFound,
			"/events/99999": http.StatusNotFound, "/events/1": http.StatusOK, "/live?after=x": http.StatusBadRequest,
		} {
			if res := alice.get(alice.w + path); res.status != status {
				t.Errorf("%s: %d", path, res.status)
			}
		}
		if res := bob.get(alice.w + "/live?after=0"); res.status != http.StatusNotFound {
			t.Errorf("a stranger waits: %d", res.status)
		}
		if res := newVisitor(t, o.address).get(alice.w + "/live?after=0"); res.status != http.StatusUnauthorized {
			t.Errorf("nobody waits: %d", res.status)
		}
	})
}

// TestWebhookPages: a webhook is added with its secret shown once, tested, paused, edited, deleted, and a message is sent again.
func TestWebhookPages(t *testing.T) {
	var mu sync.Mutex
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("Webhook-Id"))
	}))
	defer receiver.Close()
	received := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	o := newTown(t, storetest.SQLite, func(c *server.Config) { c.LoopbackWebhooks = true })
	alice := o.seller("alice")
	form := formWith(t, alice.get(alice.w+"/webhooks/new"), "make").with("url", receiver.URL+"/a").with("types", "order.paid", "plan.created")
	path, res := alice.done(form, "Webhook created.")
	secret := regexp.MustCompile(`whsec_[\w+/=&#;]+`).FindString(res.body)
	if secret == "" {
		t.Fatalf("no secret:\n%s", mainPart.FindString(res.body))
	}
	again := alice.submit(form) // a double click
	if body := alice.get(again.header.Get("Location")).body; strings.Contains(body, secret) {
		t.Error("the secret is shown twice")
	}
	hooks := func() (all []*toll.Webhook) {
		for h, err := range alice.api.Webhooks(t.Context()) {
			must.Do(t, err)
			all = append(all, h)
		}
		return all
	}
	if all := hooks(); len(all) != 1 || len(all[0].Types) != 2 {
		t.Fatalf("%+v", all)
	}
	alice.done(formWith(t, alice.get(path), "test"), "Test event queued.")
	eventually(t, "the webhook", func() bool { return received() == 1 })
	eventually(t, "the webhook", func() bool { return strings.Contains(alice.get(path).body, `name="act" value="resend"`) })
	alice.done(formWith(t, alice.get(path), "resend"), "queued again")
	eventually(t, "the webhook", func() bool { return received() == 2 })
	if _, res := alice.done(formWith(t, alice.get(path), "rotate"), "signed with both"); !strings.Contains(res.body, "whsec_") || strings.Contains(res.body, secret) {
		t.Error("no new secret")
	}
	alice.done(formWith(t, alice.get(path), "pause"), "paused")
	if hooks()[0].Status != toll.WebhookPaused {
		t.Error("not paused")
	}
	alice.done(formWith(t, alice.get(path), "resume"), "active")
	alice.done(formWith(t, alice.get(path+"/edit"), "edit").with("types").with("url", receiver.URL+"/b"), "saved")
	if h := hooks()[0]; h.URL != receiver.URL+"/b" || len(h.Types) != 0 {
		t.Errorf("%+v", h)
	}
	for _, bad := range []url.Values{{"url": {"ftp://x"}}, {"types": {"webhook.test"}}} {
		p := formWith(t, alice.get(path+"/edit"), "edit")
		for name, values := range bad {
			p = p.with(name, values...)
		}
		if res := alice.submit(p); res.status != http.StatusBadRequest || !strings.Contains(res.body, `class="fault-line"`) {
			t.Errorf("%v: %d %s", bad, res.status, mainPart.FindString(res.body))
		}
	}
	alice.done(formWith(t, alice.get(path), "delete"), "deleted")
	if len(hooks()) != 0 || alice.get(path).status != http.StatusNotFound {
		t.Error("the webhook is still there")
	}
}

// TestPageNamesTheSetting: the page of a form keeps the hint of the API, which names the setting of the operator.
func TestPageNamesTheSetting(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.seller("alice")
	for address, want := range map[string]string{
		"http://127.0.0.1:9999/hook": "--loopback-webhooks (TOLL_LOOPBACK_WEBHOOKS=true)", "http://hooks.example.com/": "Send an https URL whose host has a public address.",
	} {
		res := alice.submit(formWith(t, alice.get(alice.w+"/webhooks/new"), "make").with("url", address))
		reads(t, res, http.StatusBadRequest, `<p class="fault" id="fault" role="alert">The webhook URL is not allowed. `, want)
	}
}
