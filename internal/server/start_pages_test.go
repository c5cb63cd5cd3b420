package server_test

import (
	"crypto/sha256"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
)

var (
	keyShown   = regexp.MustCompile(`<span class="command"><code>((?:sandbox:|tk_sandbox_)[^<]+)</code>`)
	tokenShown = regexp.MustCompile(`payment-signature: ([A-Za-z0-9._=-]+)'`)
	codeShown  = regexp.MustCompile(`(?s)<summary>([^<]+)</summary>(?:<div><pre class="code"|<ol class="stages">)(.*?)</details>`)
)

// owns returns how many agents, plans, and API keys a person has.
func owns(t *testing.T, v *visitor) (agents, plans, keys int) {
	t.Helper()
	w := "/w/" + v.workspace()
	count := func(path, link string) int {
		return strings.Count(mainPart.FindString(v.get(w+path).body), `<a href="`+w+link)
	}
	return count("/agents", "/agents/"), count("/plans", "/plans/"), count("/keys", "/keys/")
}

// TestStartSelling: a person names a workspace and sends one form, which creates an agent, a plan, and an API key. The page that follows has
// code with every id, and a command that pays for one request. The same form again creates nothing more, also after a failure.
func TestStartSelling(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := newVisitor(t, o.address)
		signUp := formOf(t, alice.get("/sign-up")).with("name", "Alice").with("login", "alice").with("password", goodPassword)
		reads(t, alice.submit(signUp.with("workspace", "a\x01b")), http.StatusBadRequest, "printable characters")
		if res := alice.submit(signUp.with("workspace", " Acme ")); res.status != http.StatusSeeOther {
			t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
		}
		w := "/w/" + alice.workspace()
		reads(t, alice.get(w), http.StatusOK, "<b><bdi>Acme</bdi></b>", `href="`+w+`/start">Start selling`)

		var h http.Handler
		agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.ServeHTTP(rw, r) }))
		t.Cleanup(agent.Close)
		form := func() page { return formWith(t, alice.get(w+"/start"), "start").with("name", "Words") }
		longest := strings.Repeat("語", toll.MaxDescriptionBytes/len("語"))
		for what, bad := range map[string]page{
			"is required":                 form(),
			"must have a method":          form().with("endpoints", "NONE https://agent.example.com"),
			"must be a whole":             form().with("endpoints", agent.URL+"/ask").with("amount", "x"),
			"must be one of":              form().with("endpoints", agent.URL+"/ask").with("pay", "XXX"),
			"Endpoint ":                   form().with("endpoints", "POST nowhere"),
			"Description must be at most": form().with("endpoints", agent.URL+"/ask").with("description", longest+"語"),
		} {
			reads(t, alice.submit(bad), http.StatusBadRequest, what)
		}
		if a, p, k := owns(t, alice); a+p+k != 0 {
			t.Fatalf("a refused form made %d agents, %d plans, %d keys", a, p, k)
		}
		sent := form().with("endpoints", agent.URL+"/ask").with("pay", "free").with("least", "2").with("description", longest)
		s := &seller{alice, w, nil}
		path, made := s.done(sent, "Agent, plan, and API key created.")
		id := toll.AgentID(strings.TrimSuffix(strings.TrimPrefix(path, w+"/agents/"), "/start"))
		key := keyShown.FindStringSubmatch(made.body)
		if key == nil {
			t.Fatalf("no API key:\n%s", mainPart.FindString(made.body))
		}
		s.api = client.New(html.UnescapeString(key[1]), client.WithURL(o.address), client.WithRetries(0))
		sold := must.Get(s.api.Agent(t.Context(), id))(t)
		plan := must.Get(s.api.Plan(t.Context(), sold.Plans[0].PlanID))(t)
		if sold.Metadata.Description != longest {
			t.Errorf("the description has %d bytes, not %d", len(sold.Metadata.Description), len(longest))
		}
		if sold.Metadata.Name != "Words" || plan.Metadata.Name != "Words" || plan.Credits.Amount != 100 || plan.Credits.MinAmount != 2 {
			t.Errorf("%+v, %+v", sold.Metadata, plan.Credits)
		}
		names := ""
		for _, code := range codeShown.FindAllStringSubmatch(made.body, -1) {
			text := html.UnescapeString(code[2])
			if names += code[1] + " "; code[1] == "curl" {
				continue
			}
			if code[1] == "toll try" {
				if want := "toll login --url '" + o.s.PublicURL() + "'\ntoll try " + string(id); !strings.Contains(text, ">"+want+"</pre>") {
					t.Errorf("%q, want %q", text, want)
				}
				continue
			}
			for _, want := range []string{string(id), string(plan.ID), "2", "TOLL_API_KEY"} {
				if !strings.Contains(text, want) {
					t.Errorf("the code for %s has no %s:\n%s", code[1], want, text)
				}
			}
			if code[1] == "toll gate" && (!strings.Contains(text, "--listen "+strings.TrimPrefix(agent.URL, "http://")+" ") ||
				!strings.Contains(text, "'"+agent.URL+"'") || !strings.Contains(text, html.UnescapeString(key[1]))) {
				t.Errorf("the command does not stand in for %s:\n%s", agent.URL, text)
			}
		}
		if names != "Express Hono Next FastAPI Flask Go MCP toll gate gate.yaml curl toll try " {
			t.Errorf("the page has code for %s", names)
		}

		// The form again, and after a crash that lost its answer.
		form2 := sha256.Sum256([]byte(sent.values.Get("ticket")))
		for _, lost := range []bool{false, true} {
			if lost {
				must.Do(t, server.StoreOf(o.s).Tx(t.Context(), func(tx *store.Tx) error { return store.PutFormAnswer(t.Context(), tx, form2[:], nil) }))
			}
			res := alice.submit(sent)
			if at, _, _ := strings.Cut(res.header.Get("Location"), "?"); res.status != http.StatusSeeOther || at != path {
				t.Errorf("the same form: %d to %q", res.status, res.header.Get("Location"))
			}
			if a, p, k := owns(t, alice); a != 1 || p != 1 || k != 1 {
				t.Errorf("the same form made %d agents, %d plans, %d keys", a, p, k)
			}
			if again := keyShown.FindStringSubmatch(alice.get(res.header.Get("Location")).body); lost != (again != nil && again[1] == key[1]) {
				t.Errorf("lost %t: the key is shown again: %q", lost, again)
			}
		}

		// The command pays for one request, and the page shows its settlement.
		const share = "Give this link to buyers"
		waits := alice.get(path)
		reads(t, waits, http.StatusOK, "Waiting for the first settlement", `data-follow="`+w+`/live"`, "Your workspace has 2 free test credits.")
		if strings.Contains(waits.body, share) {
			t.Errorf("the page is shared before a request was settled:\n%s", mainPart.FindString(waits.body))
		}
		h = paid.Handler(s.api, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) }),
			paid.Plan(plan.ID), paid.Agent(id), paid.Credits(2), paid.PublicURL(agent.URL))
		token := tokenShown.FindStringSubmatch(html.UnescapeString(made.body))
		if token == nil {
			t.Fatalf("no test command:\n%s", mainPart.FindString(made.body))
		}
		for _, want := range []int{http.StatusOK, http.StatusPaymentRequired} {
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, agent.URL+"/ask", strings.NewReader("{}")))(t)
			req.Header.Set("Payment-Signature", token[1])
			res := must.Get(http.DefaultClient.Do(req))(t)
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("a request with the token: %d, want %d", res.StatusCode, want)
			}
		}
		eventually(t, "the first settlement", func() bool {
			body := alice.get(path).body
			return strings.Contains(body, agent.URL+"/ask") && !strings.Contains(body, "Waiting for the first settlement")
		})
		reads(t, alice.get(path), http.StatusOK, share, "/a/"+string(id)+"</code>")
		_, more := s.done(formWith(t, alice.get(path), "test"), "Test command created.")
		if next := tokenShown.FindStringSubmatch(html.UnescapeString(more.body)); next == nil || next[1] == token[1] {
			t.Errorf("no other test command:\n%s", mainPart.FindString(more.body))
		}
		// The seller's code comes first.
		body := alice.get(w + "/agents/" + string(id)).body
		sells, table, calls := strings.Index(body, "<h2>Take payments"), strings.Index(body, "<h2>Endpoints"), strings.Index(body, "<h2>Call it")
		if sells < 0 || table < sells || calls < table {
			t.Errorf("Take payments is at %d, Endpoints at %d, Call it at %d", sells, table, calls)
		}
		viewer := o.signUp("viewer", alice.invite(alice.workspace(), "viewer"))
		reads(t, viewer.get(path), http.StatusOK, "Take payments")
		// The page of the agent has a file for toll gate, to copy and to download.
		file := viewer.get(w + "/agents/" + string(id) + "/gate.yaml")
		c, err := gate.Parse([]byte(file.body))
		if err != nil || file.status != http.StatusOK || file.header.Get("Content-Disposition") != `attachment; filename="gate.yaml"` {
			t.Fatalf("%v: %d %v\n%s", err, file.status, file.header, file.body)
		}
		if err := c.CheckPlan(must.Get(s.api.Terms(t.Context(), plan.ID))(t)); err != nil || c.Plan != string(plan.ID) || c.Agent != string(id) || len(c.Routes) != 1 ||
			c.Routes[0].Match != "POST /ask" || *c.Routes[0].Credits != 2 || c.PublicURL != agent.URL || c.Listen != strings.TrimPrefix(agent.URL, "http://") {
			t.Errorf("%v\n%s", err, file.body)
		}
		if !strings.Contains(html.UnescapeString(body), `data-copy="`+file.body+`"`) || !strings.Contains(body, `href="`+w+"/agents/"+string(id)+`/gate.yaml"`) {
			t.Errorf("the page lacks the file or the link to it:\n%s", mainPart.FindString(body))
		}
		if res := o.seller("mallory").get(w + "/agents/" + string(id) + "/gate.yaml"); res.status != http.StatusNotFound {
			t.Errorf("the file for a stranger: %d", res.status)
		}
		if res := viewer.post(path, url.Values{"act": {"test"}, "ticket": {"x"}}); res.status != http.StatusForbidden {
			t.Errorf("a test command for a viewer: %d", res.status)
		}
	})
}

// TestStartSelling_MCP: the tools of an MCP server are sold with its address, under the name in its code.
func TestStartSelling_MCP(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.seller("alice")
	form := formWith(t, alice.get(alice.w+"/start"), "start").with("name", "My Tools!").with("endpoints", "https://agent.example.com/mcp")
	path, res := alice.done(form, "created")
	reads(t, res, http.StatusOK, "serverName: &#34;my-tools&#34;")
	if strings.Contains(res.body, "First, add the endpoint") {
		t.Error("the code asks for an endpoint that exists")
	}
	a := must.Get(alice.api.Agent(t.Context(), toll.AgentID(strings.Split(path, "/")[4])))(t)
	if len(a.API.Endpoints) != 2 || a.API.Endpoints[1].URL != "mcp://my-tools/tools/*" {
		t.Errorf("%+v", a.API.Endpoints)
	}
}

// TestPlanWithoutAgent: a plan that no agent accepts says so on its page and on the overview, until it is attached. It is not in the catalog.
func TestPlanWithoutAgent(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.seller("alice")
	made := must.Get(alice.api.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Lonely"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
	}))(t)
	const says = "No agent accepts it yet."
	at := alice.w + "/plans/" + string(made.PlanID)
	reads(t, alice.get(alice.w), http.StatusOK, says, `<a href="`+at+`">Attach<`)
	reads(t, alice.get(at), http.StatusOK, says)
	agent := must.Get(alice.api.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}))(t)
	if body := alice.get("/explore").body; strings.Contains(body, "Ask") || strings.Contains(body, "Lonely") {
		t.Errorf("the catalog has the plan:\n%s", mainPart.FindString(body))
	}
	form := formWith(t, alice.get(at), "attach")
	if res := alice.submit(form.with("agent", "1")); res.status != http.StatusNotFound {
		t.Errorf("another agent: %d", res.status)
	}
	alice.done(formWith(t, alice.get(at), "attach").with("agent", string(agent.AgentID)), "Plan attached.")
	for _, path := range []string{alice.w, at} {
		if body := alice.get(path).body; strings.Contains(body, says) || strings.Contains(body, `value="attach"`) {
			t.Errorf("%s after the plan is attached:\n%s", path, mainPart.FindString(body))
		}
	}
}

// TestHomes: a new workspace is offered both sides, a buyer sees plans, credits, spending, receipts, and tokens, and a seller sees sales. A
// workspace that does both sees both.
func TestHomes(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	s := o.sold("alice", "bob")
	s.settle("one", 7)
	const sales, spent, receipts, bought = "<h2>Recent orders", "<h2>Spending", "<h2>Receipts", "<h2>Plans you bought"
	home := func(v *seller, has, hasNot []string) {
		t.Helper()
		body := mainPart.FindString(v.get(v.w).body)
		for _, text := range has {
			if !strings.Contains(body, text) {
				t.Errorf("no %q:\n%s", text, body)
			}
		}
		for _, text := range hasNot {
			if strings.Contains(body, text) {
				t.Errorf("%q:\n%s", text, body)
			}
		}
	}
	eventually(t, "the receipt", func() bool { return strings.Contains(s.buyer.get(s.buyer.w).body, "/requests/one") })
	home(s.buyer, []string{bought, spent, receipts, "Credits left", `num">4,993<`, "Active access tokens"}, []string{sales, "Revenue</a></h2>", "Latest paid requests", "Start selling</a>"})
	home(s.seller, []string{sales, "Latest paid requests"}, []string{bought, spent, receipts, "Active access tokens"})
	home(o.seller("nora"), []string{"<h2>Sell", "<h2>Buy", "Start selling</a>"}, []string{sales, spent, bought, "Credits burned"})
	must.Get(s.buyer.api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Own"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Own"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
	}))(t)
	home(s.buyer, []string{bought, sales}, []string{"<h2>Sell"})
}

// TestCallsLoopback: test calls of pages reach this machine only in a sandbox that listens on this machine alone.
// T104
func TestCallsLoopback(t *testing.T) {
	const local = "http://localhost:8402"
	for _, c := range []struct {
		env            toll.Environment
		listen, public string
		want           bool
	}{
		{toll.Sandbox, "127.0.0.1:8402", local, true},
		{toll.Sandbox, "[::1]:8402", local, true},
		{toll.Sandbox, "localhost:8402", local, true},
		{toll.Live, "127.0.0.1:8402", local, false},
		{toll.Sandbox, "0.0.0.0:8402", local, false},
		{toll.Sandbox, ":8402", local, false},
		{toll.Sandbox, "192.0.2.1:8402", "http://192.0.2.1:8402", false},
		{toll.Sandbox, "127.0.0.1:8402", "https://pay.example.com", false}, // behind a proxy
		{toll.Sandbox, "127.0.0.1", local, false},
	} {
		if got := server.CallsLoopback(c.env, c.listen, c.public); got != c.want {
			t.Errorf("%s on %s at %s: %t", c.env, c.listen, c.public, got)
		}
	}
}
