package server_test

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// TestBuyingOnPages: a workspace orders a free plan again, makes an access token within limits, sees it once and revokes it. Pages
// show what the API answers.
func TestBuyingOnPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		shop, w := alice.workspace(), bob.workspace()
		seller := client.New(alice.keyOf(shop), client.WithURL(o.address), client.WithRetries(0))
		r := must.Get(seller.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}, client.PlanParams{
			Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(100, 1),
		}))(t)
		buyer := client.New(bob.keyOf(w), client.WithURL(o.address), client.WithRetries(0))
		plan := "/w/" + w + "/holdings/" + string(r.PlanID)
		form := formOf(t, bob.get(plan))
		first, second := bob.submit(form), bob.submit(form) // a double click
		page := bob.follow(first)
		if !strings.Contains(page.body, "Plan ordered.") || first.header.Get("Location") != second.header.Get("Location") {
			t.Errorf("after the order: %s, %s\n%s", first.header, second.header, mainPart.FindString(page.body))
		}
		b, err := buyer.Balance(t.Context(), r.PlanID)
		if err != nil || b.Available != 100 {
			t.Fatalf("%v %v", b, err)
		}
		try := html.EscapeString("/w/" + w + "/try?" + url.Values{"agent": {string(r.AgentID)}, "plan": {string(r.PlanID)}}.Encode())
		reads(t, bob.get(plan), http.StatusOK, `<a href="/a/`+string(r.AgentID)+`"><bdi>Ask</bdi></a>`, `<a href="`+try+`"><bdi>Try it</bdi></a>`)
		if body := bob.get(plan).body; !strings.Contains(body, `<p class="value num">100 `) {
			t.Errorf("the page of the plan:\n%s", mainPart.FindString(body))
		}

		form = formOf(t, bob.get("/w/"+w+"/tokens/new?plan="+string(r.PlanID))).with("limit", "7").with("ends", "3600").with("agent", string(r.AgentID))
		if res := bob.submit(form.with("limit", "-1")); res.status != http.StatusBadRequest || !strings.Contains(res.body, `aria-invalid="true"`) {
			t.Errorf("a wrong limit: %d\n%s", res.status, mainPart.FindString(res.body))
		}
		form = formOf(t, bob.get("/w/"+w+"/tokens/new?plan="+string(r.PlanID))).with("limit", "7").with("ends", "3600").with("agent", string(r.AgentID))
		res := bob.submit(form)
		page = bob.follow(res)
		m := tokenIn.FindStringSubmatch(page.body)
		if m == nil || tokenIn.MatchString(bob.follow(res).body) {
			t.Fatalf("the token is not shown once:\n%s", mainPart.FindString(page.body))
		}
		reads(t, page, http.StatusOK, "Copy Access token", "Call Ask with curl", html.EscapeString("-H 'payment-signature: "), `href="`+try+`">Try it</a>`)
		tokens := 0
		var made *toll.Permission
		for p, err := range buyer.Permissions(t.Context()) {
			must.Do(t, err)
			tokens++
			made = p
		}
		if tokens != 1 || *made.MaxCredits != 7 || made.AgentID == nil || *made.AgentID != r.AgentID {
			t.Fatalf("%d tokens, %+v", tokens, made)
		}
		at, _, _ := strings.Cut(res.header.Get("Location"), "?")
		if page = bob.follow(bob.act(at, "act", "end")); !strings.Contains(page.body, "revoked") {
			t.Errorf("after the end:\n%s", mainPart.FindString(page.body))
		}
		if p, err := buyer.Permission(t.Context(), made.PermissionHash); err != nil || p.Status != toll.StatusRevoked {
			t.Errorf("%v %v", p, err)
		}
		file := bob.get("/w/" + w + "/export/holdings")
		if !strings.HasPrefix(file.header.Get("Content-Type"), "text/csv") || !strings.Contains(file.body, string(r.PlanID)) {
			t.Errorf("the export: %s\n%s", file.header, file.body)
		}

		// Others.
		viewer := o.signUp("viewer", bob.invite(w, "viewer"))
		stolen := url.Values{"act": {"end"}, "ticket": {"x"}}
		for what, of := range map[string]struct {
			got  shown
			want int
		}{
			"the seller opens the token":     {alice.get(at), http.StatusNotFound},
			"in its own workspace":           {alice.get(strings.Replace(at, w, shop, 1)), http.StatusNotFound},
			"a viewer opens it":              {viewer.get(at), http.StatusOK},
			"a viewer ends it":               {viewer.post(at, stolen), http.StatusForbidden},
			"a viewer opens the form":        {viewer.get("/w/" + w + "/tokens/new"), http.StatusForbidden},
			"a viewer orders":                {viewer.post(plan, stolen), http.StatusForbidden},
			"a viewer exports orders":        {viewer.get("/w/" + w + "/export/orders"), http.StatusForbidden},
			"an unknown list":                {bob.get("/w/" + w + "/export/users"), http.StatusNotFound},
			"an unknown act":                 {bob.act(plan, "act", "x"), http.StatusBadRequest},
			"an unknown plan":                {bob.get("/w/" + w + "/holdings/1"), http.StatusNotFound},
			"a filter that is none":          {bob.get("/w/" + w + "/orders?planId=x"), http.StatusBadRequest},
			"a delegation that is not there": {bob.get("/w/" + w + "/delegations/x"), http.StatusNotFound},
		} {
			if of.got.status != of.want {
				t.Errorf("%s: %d, want %d\n%s", what, of.got.status, of.want, mainPart.FindString(of.got.body))
			}
		}
	})
}

// TestSearchOnPages: every id leads to its page, a name and a page are found by their beginning, and nothing of others is.
func TestSearchOnPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		w, other := alice.workspace(), bob.workspace()
		key := alice.keyOf(w)
		c := client.New(key, client.WithURL(o.address), client.WithRetries(0))
		r := must.Get(c.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Weather"}}, client.PlanParams{
			Metadata: toll.Metadata{Name: "Sunny"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(5, 1),
		}))(t)
		order := must.Get(c.OrderPlan(t.Context(), r.PlanID))(t)
		token := must.Get(c.AccessToken(t.Context(), r.PlanID))(t)
		at := func(path string) string { return "/w/" + w + path }
		for id, want := range map[string]string{
			string(r.PlanID): at("/plans/" + string(r.PlanID)), string(r.AgentID): at("/agents/" + string(r.AgentID)),
			order.OrderID: at("/orders/" + order.OrderID), token.PermissionHash.String(): at("/tokens/" + token.PermissionHash.String()),
			keysOf(t, o, key)[0].ID.String(): at("/keys/" + keysOf(t, o, key)[0].ID.String()),
		} {
			if res := alice.get(at("/search?q=") + url.QueryEscape(id)); res.header.Get("Location") != want {
				t.Errorf("%s leads to %q, want %q", id, res.header.Get("Location"), want)
			} else if res := alice.get(want); res.status != http.StatusOK {
				t.Errorf("%s: %d", want, res.status)
			}
			if res := bob.get("/w/" + other + "/search?q=" + url.QueryEscape(id)); res.header.Get("Location") != "" || strings.Contains(res.body, "data-found") {
				t.Errorf("%s is found by somebody else", id)
			}
		}
		for text, want := range map[string]string{"weath": "Weather", "SUN": "Sunny", "audit": at("/audit"), "alic": "ALICE", "create api": at("/keys/new"), "create ag": at("/agents/new"), "your acc": "/account/security", "docu": `href="/docs"`} {
			if res := alice.get(at("/search?q=") + url.QueryEscape(text)); !strings.Contains(res.body, want) {
				t.Errorf("%s: no %s in\n%s", text, want, mainPart.FindString(res.body))
			}
		}
		for _, text := range []string{"no such thing", "<script>", strings.Repeat("x", 500)} {
			if res := alice.get(at("/search?q=") + url.QueryEscape(text)); res.status >= 500 || strings.Contains(res.body, "data-found") || strings.Contains(res.body, "<script>x") {
				t.Errorf("%.20s: %d", text, res.status)
			}
		}
	})
}

// TestServicePage: who runs the service sees how it does, on any database, and nobody else does.
func TestServicePage(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		link := must.Get(o.s.FirstLink(t.Context()))(t)
		operator, bob := o.signUp("operator", link[strings.LastIndex(link, "=")+1:]), o.signUp("bob", "")
		w := operator.workspace()
		page := operator.get("/w/" + w + "/operator")
		for _, want := range []string{"<h1>Service</h1>", "ledger.follow", "public address", "API keys and access tokens"} {
			if page.status != http.StatusOK || !strings.Contains(page.body, want) {
				t.Errorf("%d, no %q:\n%s", page.status, want, mainPart.FindString(page.body))
			}
		}
		if strings.Contains(page.body, "Alarm ") {
			t.Errorf("an alarm that nobody raised:\n%s", mainPart.FindString(page.body))
		}
		server.Alarm(o.s, alarm.RelayerLow)
		server.Alarm(o.s, alarm.RelayerLow)
		reads(t, operator.get("/w/"+w+"/operator"), http.StatusOK, "Alarm relayer-low", "Raised 2 times, last just now")
		if nav := operator.get("/w/" + w).body; !strings.Contains(nav, `/operator"`) {
			t.Error("the navigation of the operator lacks the page")
		}
		reads(t, operator.get("/w/"+w+"/operator/accounts"), http.StatusOK, "<h1>Workspaces</h1>", w, bob.workspace(), "service")
		own := "/w/" + bob.workspace()
		if res := bob.get(own + "/operator/accounts"); res.status != http.StatusForbidden || strings.Contains(res.body, w) {
			t.Errorf("another person reads the accounts: %d", res.status)
		}
		if res := bob.get(own + "/operator"); res.status != http.StatusForbidden || strings.Contains(res.body, "ledger.follow") {
			t.Errorf("another person: %d", res.status)
		}
		if strings.Contains(bob.get(own).body, `/operator"`) || strings.Contains(bob.get(own+"/search?q=service").body, `/operator"`) {
			t.Error("another person is led there")
		}
	})
}

// TestBackupsOnPages: who runs the service sees its backups, reads one back, and is told what went wrong with them.
// F28
func TestBackupsOnPages(t *testing.T) {
	dir := t.TempDir()
	o := newTown(t, "sqlite", func(c *server.Config) { c.Backups = backup.Schedule{Dir: dir, Every: 24 * time.Hour, Keep: 3} })
	link, err := o.s.FirstLink(t.Context())
	must.Do(t, err)
	operator := o.signUp("operator", link[strings.LastIndex(link, "=")+1:])
	page := "/w/" + operator.workspace() + "/operator"
	var made []string
	eventually(t, "a backup is made", func() bool {
		made, err = filepath.Glob(filepath.Join(dir, "*.backup"))
		return o.s.BackUp(t.Context()) == nil && err == nil && len(made) == 1
	})
	name := filepath.Base(made[0])
	reads(t, operator.get(page), http.StatusOK, name, "every day; the newest 3 are kept", "Last backup", ">Verify<")
	if body := operator.get(page).body; strings.Contains(body, "verified ") || strings.Contains(body, "A backup failed") {
		t.Errorf("before anything was verified:\n%s", mainPart.FindString(body))
	}
	res := operator.act(page, "act", "verify", "backup", name)
	reads(t, operator.follow(res), http.StatusOK, "The backup is intact", "verified ")
	// Another one is made when somebody asks for it, but not at once after the one before: it would push out old ones.
	backups := func() []string {
		return must.Get(filepath.Glob(filepath.Join(dir, "*.backup")))(t)
	}
	older := func(by time.Duration) {
		const form = "toll-20060102T150405Z.backup"
		at := must.Get(time.Parse(form, name))(t)
		name = at.Add(-by).Format(form)
		must.Do(t, os.Rename(made[0], filepath.Join(dir, name)))
		made[0] = filepath.Join(dir, name)
	}
	older(30 * time.Minute)
	reads(t, operator.follow(operator.act(page, "act", "backup")), http.StatusOK, "The backup starts if the newest backup is at least an hour old")
	if err := o.s.BackUp(t.Context()); err != nil || len(backups()) != 1 {
		t.Errorf("a backup half an hour after another: %v, %v", backups(), err)
	}
	older(30 * time.Minute)
	operator.act(page, "act", "backup")
	eventually(t, "the second backup", func() bool { return len(backups()) == 2 })
	for _, bad := range []string{"../" + name, "toll-notes.txt", ""} {
		if res := operator.act(page, "act", "verify", "backup", bad); res.status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, res.status)
		}
	}
	must.Do(t, os.WriteFile(made[0], []byte("nothing of a backup"), 0o600))
	res = operator.act(page, "act", "verify", "backup", name)
	reads(t, operator.follow(res), http.StatusOK, "The backup cannot be read", "A backup cannot be read")
	must.Do(t, errors.Join(os.Rename(dir, dir+"-away"), o.s.BackUp(t.Context())))
	reads(t, operator.get(page), http.StatusOK, "A backup failed")
	bob := o.signUp("bob", "")
	if res := bob.post("/w/"+bob.workspace()+"/operator", url.Values{"act": {"verify"}, "backup": {name}, "ticket": {"x"}}); res.status != http.StatusForbidden {
		t.Errorf("another person: %d", res.status)
	}
}

// TestMemberPage: a member's sessions are ended and the person is removed, by who manages people.
func TestMemberPage(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		members := "/w/" + w + "/members"
		dev, viewer := o.signUp("dev", alice.invite(w, "developer")), o.signUp("viewer", alice.invite(w, "viewer"))
		at, own := members+"/"+userOf(dev, members), members+"/"+userOf(alice, members)
		key := client.New(dev.keyOf(w), client.WithURL(o.address), client.WithRetries(0))
		for what, of := range map[string]struct {
			got  shown
			want int
		}{
			"a viewer opens":   {viewer.get(at), http.StatusForbidden},
			"a viewer acts":    {viewer.post(at, url.Values{"act": {"remove"}}), http.StatusForbidden},
			"without a ticket": {alice.post(at, url.Values{"act": {"remove"}}), http.StatusForbidden},
			"an unknown act":   {alice.act(at, "act", "x"), http.StatusBadRequest},
			"a role above all": {alice.act(at, "act", "role", "role", "king"), http.StatusBadRequest},
			"nobody":           {alice.get(members + "/x"), http.StatusNotFound},
		} {
			if of.got.status != of.want {
				t.Errorf("%s: %d, want %d", what, of.got.status, of.want)
			}
		}
		if body := mainPart.FindString(alice.get(own).body); strings.Contains(body, "<form") {
			t.Errorf("the last owner can change the own membership:\n%s", body)
		}
		if page := alice.follow(alice.act(at, "act", "role", "role", "billing")); !strings.Contains(page.body, "Role changed.") || !strings.Contains(page.body, "billing") {
			t.Errorf("after the change:\n%s", mainPart.FindString(page.body))
		}
		if page := alice.follow(alice.act(at, "act", "sessions")); !strings.Contains(page.body, "session ended.") {
			t.Errorf("after the end of the sessions:\n%s", mainPart.FindString(page.body))
		}
		if strings.Contains(dev.get(members).body, "DEV") {
			t.Error("the session goes on")
		}
		if page := alice.follow(alice.act(at, "act", "remove")); !strings.Contains(page.body, "DEV was removed.") || strings.Contains(page.body, at) {
			t.Errorf("after the removal:\n%s", mainPart.FindString(page.body))
		}
		o.ahead.Add(int64(2 * time.Second)) // keys are looked at once a second
		if _, err := key.Wallet(t.Context()); toll.AsError(err).Code != toll.CodeNotAuthenticated {
			t.Errorf("the key of who was removed: %v", err)
		}
	})
}

// TestCardOnPages: a subscriber orders by card from the page of a plan, and the seller refunds it, each once however often the
// form is sent.
// T161
func TestCardOnPages(t *testing.T) {
	c := newCardShop(t)
	at := func(k toll.APIKey, path string) string { return "/w/" + k.Address.String() + path }
	buyer, seller := newVisitor(t, c.url), newVisitor(t, c.url)
	buyer.signIn(buyer.get("/sign-in"), c.holder.Key)
	seller.signIn(seller.get("/sign-in"), c.owner.Key)
	form := formOf(t, buyer.get(at(c.holder, "/holdings/"+string(c.plan))))
	first, second := buyer.submit(form), buyer.submit(form)
	page := strings.TrimPrefix(first.header.Get("Location"), c.s.PublicURL())
	if first.status != http.StatusSeeOther || !strings.HasPrefix(page, "/checkout/") || second.header.Get("Location") != first.header.Get("Location") {
		t.Fatalf("%d to %q, then to %q", first.status, first.header.Get("Location"), second.header.Get("Location"))
	}
	id := strings.Split(page, "/")[2]
	id, _, _ = strings.Cut(id, "?")
	// A plan with nothing but an unpaid order is not bought.
	holdings := at(c.holder, "/holdings")
	reads(t, buyer.get(holdings), http.StatusOK, "No plans yet")
	if subscribers := seller.get(at(c.owner, "/subscribers")); strings.Contains(subscribers.body, c.holder.Address.String()) {
		t.Errorf("an unpaid order makes a subscriber:\n%s", mainPart.FindString(subscribers.body))
	}
	reads(t, seller.get(at(c.owner, "/orders?planId="+string(c.plan))), http.StatusOK, "Awaiting payment", `<option value="`+string(c.plan)+`" selected>Five &lt;b&gt;dollars&lt;/b&gt;</option>`,
		`<td data-label="Plan"><a href="`+at(c.owner, "/plans/"+string(c.plan))+`"><bdi>Five &lt;b&gt;dollars&lt;/b&gt;</bdi></a>`)
	buyer.follow(buyer.submit(formOf(t, buyer.get(page)))) // pays on the processor's page
	to, _ := linkOf(t, buyer.get(page))
	// The payment ends on the page of the order, which leads to an access token.
	reads(t, buyer.get(c.fill(to, goodCard)), http.StatusOK, "<h1>Order paid</h1>", id, "<dt>Credits granted</dt>\n<dd>100 credits</dd>", "Five &lt;b&gt;dollars&lt;/b&gt;",
		`<a class="button" href="`+at(c.holder, "/tokens/new?plan="+string(c.plan))+`">Create access token</a>`, at(c.holder, "/orders/"+id))
	if body := seller.get(page).body; strings.Contains(body, "Next step") || strings.Contains(body, c.holder.Address.String()) {
		t.Errorf("another workspace reads:\n%s", mainPart.FindString(body))
	}
	if c.status(id) != toll.OrderConfirmed {
		t.Fatalf("the order is %s", c.status(id))
	}
	reads(t, buyer.get(holdings), http.StatusOK, at(c.holder, "/holdings/"+string(c.plan)))
	reads(t, buyer.get(at(c.holder, "/orders?role=buyer")), http.StatusOK, ">Paid<", `<option value="`+string(c.plan)+`">`, `href="`+at(c.holder, "/holdings/"+string(c.plan))+`"`)
	reads(t, buyer.get(at(c.holder, "/orders/"+id)), http.StatusOK, "Paid by card", "Credits granted", "5.00")
	if body := buyer.get(at(c.holder, "/orders/"+id)).body; strings.Contains(body, `value="refund"`) {
		t.Error("the subscriber can refund")
	}
	order := at(c.owner, "/orders/"+id)
	for amount, want := range map[string]int{"x": http.StatusBadRequest, "-1": http.StatusBadRequest, "5.01": http.StatusConflict, "0.001": http.StatusBadRequest} {
		if res := seller.act(order, "act", "refund", "amount", amount); res.status != want {
			t.Errorf("a refund of %s: %d, want %d\n%s", amount, res.status, want, mainPart.FindString(res.body))
		} else if want == http.StatusConflict && !strings.Contains(res.body, "At most 5.00 USD of the payment can be refunded.") {
			t.Errorf("a refund of %s:\n%s", amount, mainPart.FindString(res.body))
		}
	}
	granted := regexp.MustCompile(`<b>Credits granted</b> <time datetime="([^"]+)"`)
	before := granted.FindString(seller.get(order).body)
	c.ahead.Add(int64(time.Hour))
	form = formOf(t, seller.get(order)).with("amount", "2.00")
	first, second = seller.submit(form), seller.submit(form)
	if second.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("%q, then %q", first.header.Get("Location"), second.header.Get("Location"))
	}
	reads(t, seller.follow(first), http.StatusOK, "refund")
	eventually(t, "the refund is there", func() bool {
		o, err := c.seller.Order(t.Context(), id)
		return err == nil && o.RefundedCents == 200
	})
	reads(t, seller.get(order), http.StatusOK, "2.00 USD", "40 credits taken back", ">Partially refunded<")
	refund := regexp.MustCompile(`<b>Refunded</b> <time datetime="([^"]+)"`).FindStringSubmatch(seller.get(order).body)
	if after := granted.FindStringSubmatch(seller.get(order).body); after == nil || refund == nil || after[0] != before || after[1] >= refund[1] {
		t.Errorf("after the refund at %v the credits were granted at %v, before at %v", refund, after, before)
	}
	eventually(t, "the revenue is counted", func() bool {
		return strings.Contains(seller.get(at(c.owner, "/revenue")).body, `<p class="value num">3.00 <small>USD</small></p>`)
	})
	reads(t, seller.get(at(c.owner, "/revenue")), http.StatusOK, `Gross revenue</h2><p class="value num">5.00 <small>USD</small>`, `Refunds</h2><p class="value num">2.00 <small>USD</small>`, "Net revenue",
		`<td data-label="Gross" class="right"><span class="num">5.00`, `<td data-label="Refunds" class="right"><span class="num">2.00`, `<td data-label="Net" class="right"><span class="num">3.00`)
	// The form proposes the remaining amount. After the full refund, every page shows it.
	form, late := formOf(t, seller.get(order)), formOf(t, seller.get(order)).with("amount", "1.00")
	if form.values.Get("amount") != "3.00" {
		t.Errorf("the form proposes %q", form.values.Get("amount"))
	}
	seller.follow(seller.submit(form))
	eventually(t, "the second refund is there", func() bool {
		o, err := c.seller.Order(t.Context(), id)
		return err == nil && o.RefundedCents == 500
	})
	full := seller.get(order)
	reads(t, full, http.StatusOK, ">Refunded<")
	if strings.Contains(full.body, `value="refund"`) {
		t.Error("a refunded order can be refunded")
	}
	if res := seller.submit(late); !strings.Contains(res.body, "This payment is already fully refunded.") {
		t.Errorf("a refund of a refunded order: %d\n%s", res.status, mainPart.FindString(res.body))
	}
	if holding := buyer.get(holdings + "/" + string(c.plan)).body; !strings.Contains(holding, `Refunded</h2><p class="value num">100</p>`) || strings.Contains(holding, "<dt>Expires</dt>") {
		t.Errorf("the plan of the buyer:\n%s", mainPart.FindString(holding))
	}
	eventually(t, "the overview has the net revenue", func() bool {
		return strings.Contains(seller.get(at(c.owner, "")).body, `Net revenue</a></h2><p class="value num">0.00 <small>USD</small>`)
	})
	if res := buyer.post(at(c.holder, "/orders/"+id), url.Values{"act": {"refund"}}); res.status != http.StatusForbidden {
		t.Errorf("the subscriber refunds: %d", res.status)
	}
}
