package server_test

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// areas are the pages of a workspace without a record in their path, by path below it, each with its heading.
var areas = map[string]string{
	"": "Overview", "/agents": "Agents", "/plans": "Plans", "/subscribers": "Subscribers", "/usage": "Usage", "/revenue": "Revenue",
	"/requests": "Requests", "/webhooks": "Webhooks", "/events": "Events", "/orders": "Orders", "/holdings": "My plans", "/members": "Members",
	"/keys": "API keys", "/tokens": "Access tokens", "/delegations": "Delegations", "/cards": "Cards", "/wallet": "Wallet",
	"/programs": "Connected apps", "/settings": "Workspace", "/search": "Search", "/clock": "Test clock",
	"/components": "Components",
}

// guarded are the other pages without a record, with the right that each takes; "" for one that no member of a new workspace opens.
var guarded = map[string]toll.Right{
	"/start": toll.RightManage, "/agents/new": toll.RightManage, "/plans/new": toll.RightManage, "/webhooks/new": toll.RightManage, "/keys/new": toll.RightKeys,
	"/tokens/new": toll.RightSpend, "/delegations/new": toll.RightSpend, "/audit": toll.RightMembers, "/notifications": toll.RightRead,
	"/operator": "", "/operator/accounts": "",
}

const policyOfWorkspaces = "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data:; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"

// TestPagesOfWorkspaces: each page opens for each role of its workspace, and does not exist for people outside. The
// right is checked on every request: who is removed sees nothing from then on.
// T154
func TestPagesOfWorkspaces(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		owner := o.signUp("owner", "")
		w := owner.workspace()
		members := map[string]*visitor{"owner": owner}
		for _, role := range []string{"admin", "developer", "billing", "viewer"} {
			members[role] = o.signUp(role, owner.invite(w, role))
		}
		outside, nobody := o.signUp("outside", ""), newVisitor(t, o.address)
		byKey := newVisitor(t, o.address) // of another workspace
		byKey.signIn(byKey.get("/sign-in"), outside.keyOf(outside.workspace()))
		for path, heading := range areas {
			path = "/w/" + w + path
			for role, v := range members {
				res := v.get(path)
				if res.status != http.StatusOK || !strings.Contains(res.body, "<h1>"+heading+"</h1>") {
					t.Errorf("%s as %s: %d\n%s", path, role, res.status, mainPart.FindString(res.body))
				}
				if p := res.header.Get("Content-Security-Policy"); p != policyOfWorkspaces {
					t.Errorf("%s as %s: policy %s", path, role, p)
				}
				if m := regexp.MustCompile(`(?i)<style| style=| on[a-z]+=|hx-on|javascript:|<script[^>]*>[^<]`).FindString(res.body); m != "" {
					t.Errorf("%s has %q in it", path, m)
				}
			}
			if res := members["viewer"].get(path[:len("/w/0x1234")] + path[len("/w/")+42:]); res.status != http.StatusOK {
				t.Errorf("%s by the beginning of its address: %d", path, res.status)
			}
			for who, v := range map[string]*visitor{"a person": outside, "an API key": byKey} {
				if res := v.get(path); res.status != http.StatusNotFound || strings.Contains(res.body, heading+"</h1>") {
					t.Errorf("%s for %s outside: %d", path, who, res.status)
				}
			}
			if res := nobody.get(path); !strings.Contains(res.body, `action="/sign-in"`) || strings.Contains(res.body, "<nav") {
				t.Errorf("%s for nobody: %d", path, res.status)
			}
			if res := outside.post(path, url.Values{"ticket": {"x"}}); res.status != http.StatusNotFound && res.status != http.StatusMethodNotAllowed {
				t.Errorf("a form to %s of a person outside: %d", path, res.status)
			}
		}
		all := must.Get(server.PeoplePages(o.s))(t)
		for _, p := range all {
			path, ok := strings.CutPrefix(p.Path, "/w/{workspace}")
			if !ok || p.Method != http.MethodGet || strings.Contains(path, "{") || areas[path] != "" {
				continue
			}
			if path == "/live" || path == "/try" {
				continue // they need more than a path: TestSellerFigures, TestTryIt
			}
			right, ok := guarded[path]
			if !ok {
				t.Errorf("%s is a page that this test does not know", path)
			}
			for role, v := range members {
				want := http.StatusForbidden
				if toll.Role(role).Rights().Has(right) {
					want = http.StatusOK
				}
				if res := v.get("/w/" + w + path); res.status != want {
					t.Errorf("%s as %s: %d, want %d", path, role, res.status, want)
				}
			}
			if res := outside.get("/w/" + w + path); res.status != http.StatusNotFound {
				t.Errorf("%s for a person outside: %d", path, res.status)
			}
			if res := nobody.get("/w/" + w + path); strings.Contains(res.body, "<nav") {
				t.Errorf("%s for nobody: %d", path, res.status)
			}
		}
		viewer := userOf(members["viewer"], "/w/"+w+"/members")
		owner.act("/w/"+w+"/members", "act", "remove", "user", viewer)
		for path := range areas {
			if res := members["viewer"].get("/w/" + w + path); res.status != http.StatusNotFound {
				t.Errorf("%s after the person was removed: %d", path, res.status)
			}
		}
	})
}

// publicRecords are pages below a workspace whose part in the path names no record of that workspace.
var publicRecords = map[string]string{
	"/holdings/{plan}": "every plan can be bought", "/export/{list}": "a list has the records of the workspace that asks",
	"/events/{event}": "each workspace numbers its own",
}

// pageOf returns the row of the pages of workspaces to which a path below a workspace leads, and the number of the part of the path that names
// a record; -1 for none.
func pageOf(rows []string, path string) (row string, record int) {
	have, best := strings.Split(path, "/"), ""
	for _, row := range rows {
		want := strings.Split(row, "/")
		fits := len(want) == len(have)
		for i := range want {
			fits = fits && (want[i] == have[i] || strings.HasPrefix(want[i], "{") && have[i] != "")
		}
		if fits && (best == "" || strings.Count(row, "{") < strings.Count(best, "{")) {
			best = row
		}
	}
	return best, slices.IndexFunc(strings.Split(best, "/"), func(part string) bool { return strings.HasPrefix(part, "{") })
}

// records gives the seller and the buyer a record of each kind that has a page.
func (s *sold) records() {
	t, now := s.o.t, time.Now()
	t.Helper()
	s.settle("paid-one", 7)
	hook, err := s.seller.api.CreateWebhook(t.Context(), client.WebhookParams{URL: "https://hooks.example.com/"})
	if err == nil {
		err = s.seller.api.TestWebhook(t.Context(), hook.ID)
	}
	must.Do(t, err)
	order := ""
	for one, err := range s.buyer.api.Orders(t.Context()) {
		must.Do(t, err)
		order = one.OrderID
	}
	if err := server.StoreOf(s.o.s).Tx(t.Context(), func(tx *store.Tx) error {
		at, id := toll.MustAddress(strings.TrimPrefix(s.buyer.w, "/w/")), toll.NewUUID()
		return errors.Join(
			store.InsertDelegation(t.Context(), tx, &store.Delegation{
				ID: id, Owner: at, Provider: toll.ProviderCard, PaymentMethod: "pm_1", Currency: "usd", Limit: 100, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
			}),
			store.InsertDelegationTransaction(t.Context(), tx, &toll.DelegationTransaction{
				ID: toll.NewUUID(), DelegationID: id, AmountCents: 5, Currency: "usd", Status: toll.TransactionFailed,
				OrderID: order, CreatedAt: toll.At(now),
			}),
			store.PutPaymentMethod(t.Context(), tx, &store.PaymentMethod{
				Owner: at, ID: "pm_1", Provider: toll.ProviderCard, Brand: "visa", Last4: "4242", ExpMonth: 12, ExpYear: int64(now.Year()) + 5, CreatedAt: now,
			}))
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the settlement is listed", func() bool { return strings.Contains(s.seller.get(s.seller.w+"/requests").body, "/requests/paid-one") })
}

// TestRecordsOfOthers: no record of a workspace is found below another one, and it is not told from one that does not exist. The
// records are those to which the pages of two workspaces lead; a page of a record to which none leads fails the test.
// T154
func TestRecordsOfOthers(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	s := o.sold("alice", "bob")
	alice, bob, mallory := s.seller, s.buyer, o.seller("mallory")
	o.signUp("dan", alice.invite(strings.TrimPrefix(alice.w, "/w/"), "viewer"))
	s.records()

	all := must.Get(server.PeoplePages(o.s))(t)
	var rows []string
	missing := map[string]bool{}
	for _, p := range all {
		if row, ok := strings.CutPrefix(p.Path, "/w/{workspace}"); ok && p.Method == http.MethodGet {
			rows = append(rows, row)
			if strings.Contains(row, "{") && publicRecords[row] == "" {
				missing[row] = true
			}
		}
	}
	for _, who := range []*seller{alice, bob} {
		for path, page := range who.pages(slices.Sorted(maps.Keys(areas))) {
			row, record := pageOf(rows, path)
			if record < 0 || publicRecords[row] != "" {
				continue
			}
			if page.status != http.StatusOK {
				t.Errorf("%s for its owner: %d", path, page.status)
			}
			delete(missing, row)
			parts := strings.Split(path, "/")
			id := parts[record]
			parts[record] = id[:len(id)-1] + map[bool]string{true: "1", false: "2"}[id[len(id)-1] == '2']
			theirs, none := mallory.get(mallory.w+path), mallory.get(mallory.w+strings.Join(parts, "/"))
			same := strings.ReplaceAll(withoutID(mainPart.FindString(theirs.body)), id, parts[record]) == withoutID(mainPart.FindString(none.body))
			if theirs.status != http.StatusNotFound || none.status != http.StatusNotFound || !same {
				t.Errorf("%s in another workspace: %d, one that does not exist: %d\n%s", row, theirs.status, none.status, mainPart.FindString(theirs.body))
			}
			for _, res := range []shown{mallory.get(who.w + path), mallory.post(who.w+path, url.Values{"ticket": {"x"}}), mallory.post(mallory.w+path, url.Values{"ticket": {"x"}})} {
				if res.status < 400 || res.status >= 500 {
					t.Errorf("%s of a stranger: %d", row, res.status)
				}
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("no record of these pages: %v", slices.Sorted(maps.Keys(missing)))
	}
}

// TestPagesOfRecords: pages show the records of their workspace, with names that strangers chose as text, and no others.
func TestPagesOfRecords(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		w, other := "/w/"+alice.workspace(), "/w/"+bob.workspace()
		const evil = `<script>alert(1)</script>"><img src=x>`
		api := client.New(alice.keyOf(strings.TrimPrefix(w, "/w/")), client.WithURL(o.address), client.WithRetries(0))
		r := must.Get(api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: evil}}, client.PlanParams{
			Metadata: toll.Metadata{Name: evil}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1234, 1),
		}))(t)
		buyer := client.New(bob.keyOf(strings.TrimPrefix(other, "/w/")), client.WithURL(o.address), client.WithRetries(0))
		order := must.Get(buyer.OrderPlan(t.Context(), r.PlanID))(t)
		agent, plan := string(r.AgentID), string(r.PlanID)
		if body := bob.get(other + "/holdings").body; !strings.Contains(body, plan) || !strings.Contains(body, "1,234") {
			t.Errorf("the buyer sees:\n%s", mainPart.FindString(body))
		}
		for path, want := range map[string]string{
			"": order.OrderID, "/agents": agent, "/agents/" + agent: agent, "/plans": plan, "/plans/" + plan: strings.TrimPrefix(other, "/w/"),
			"/orders": order.OrderID, "/orders/" + order.OrderID: plan,
		} {
			res := alice.get(w + path)
			if res.status != http.StatusOK || !strings.Contains(res.body, want) {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
			if strings.Contains(res.body, "<script>") || strings.Contains(res.body, "<img") {
				t.Errorf("%s has markup of a stranger", path)
			}
		}
		for _, path := range []string{
			other + "/agents/" + agent, other + "/plans/" + plan, other + "/orders/x", other + "/agents/x", other + "/plans/1",
			other + "/orders/00000000-0000-4000-8000-000000000000", other + "/agents/" + url.PathEscape(evil), other + "/plans?cursor=x",
		} {
			if res := bob.get(path); res.status != http.StatusNotFound || strings.Contains(res.body, "alert(1)") {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
		}
	})
}

// TestAssets: files have names with their hash, stay in browsers, and come compressed. A first page takes at most 120 KB.
func TestAssets(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	v := o.signUp("alice", "")
	res := v.get("/w/" + v.workspace())
	seen := map[string]bool{}
	sum := len(res.body) // without compression: more than what goes over the wire
	for _, m := range regexp.MustCompile(`/assets/([a-z0-9-]+\.[0-9a-f]{12}\.[a-z0-9]+)`).FindAllStringSubmatch(res.body, -1) {
		if seen[m[0]] {
			continue
		}
		seen[m[0]] = true
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, o.address+m[0], nil))(t)
		req.Header.Set("Accept-Encoding", "gzip")
		got := must.Get(http.DefaultTransport.RoundTrip(req))(t)
		got.Body.Close()
		if got.StatusCode != http.StatusOK || got.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || got.ContentLength <= 0 {
			t.Errorf("%s: %d %v", m[0], got.StatusCode, got.Header)
		}
		sum += int(got.ContentLength)
	}
	if len(seen) < 4 || sum > 120<<10 {
		t.Errorf("a first page takes %d bytes, in %v", sum, seen)
	}
	for _, path := range []string{"/assets/style.css", "/assets/style.000000000000.css", "/assets/..%2fweb.go"} {
		if res := v.get(path); res.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.status)
		}
	}
	t.Logf("a first page takes %d bytes", sum)
}

// navPart is the list of pages beside a page of a workspace.
var navPart = regexp.MustCompile(`(?s)<nav class="nav".*?</nav>`)

// TestNavigation_Sides: a workspace that only sells or only buys sees the pages of that side first and one way to the other side. A page of
// the other side, a record there, and a new workspace show both sides.
func TestNavigation_Sides(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s, eve := o.sold("alice", "bob"), o.seller("eve")
		alice, bob := s.seller, s.buyer
		sell, buy := []string{"/agents", "/revenue", "/orders", "/requests"}, []string{"/holdings", "/orders?role=buyer", "/requests?role=buyer", "/tokens"}
		has := func(v *visitor, path, link string) bool {
			t.Helper()
			return strings.Contains(navPart.FindString(v.get(path).body), `href="`+link+`"`)
		}
		shows := func(what string, v *visitor, path, w string, want map[string]bool) {
			t.Helper()
			for link, want := range want {
				to := w + link
				if link == "/explore" {
					to = link
				}
				if got := has(v, path, to); got != want {
					t.Errorf("%s: the navigation has %s: %v", what, link, got)
				}
			}
		}
		all := map[string]bool{"/explore": false, "/start": false}
		sells, buys := map[string]bool{"/explore": true, "/start": false}, map[string]bool{"/explore": false, "/start": true}
		for _, link := range sell {
			all[link], sells[link], buys[link] = true, true, false
		}
		for _, link := range buy {
			all[link], sells[link], buys[link] = true, false, true
		}
		for _, link := range buy {
			all[link] = !strings.Contains(link, "?") // which are empty
		}
		shows("new", eve.visitor, eve.w, eve.w, all)
		for _, link := range buy {
			all[link] = true
		}
		eventually(t, "the sides are known", func() bool {
			return has(alice.visitor, alice.w, "/explore") && has(bob.visitor, bob.w, bob.w+"/start")
		})
		shows("only sells", alice.visitor, alice.w, alice.w, sells)
		shows("only buys", bob.visitor, bob.w, bob.w, buys)
		nav := navPart.FindString(bob.get(bob.w + "/requests").body)
		if buy, sell := strings.Index(nav, "<p>Buy"), strings.Index(nav, "<p>Sell"); buy < 0 || sell < buy {
			t.Errorf("a buyer sees Buy at %d, Sell at %d", buy, sell)
		}
		if !strings.Contains(nav, `href="`+bob.w+`/requests?role=buyer" aria-current="page" data-key="q"`) {
			t.Errorf("the page of receipts is not marked:\n%s", nav)
		}
		reads(t, bob.get(bob.w+"/requests"), http.StatusOK, "<h1>Receipts</h1>")
		reads(t, bob.get(bob.w+"/orders"), http.StatusOK, "<h1>Spending</h1>")
		reads(t, bob.get(bob.w+"/orders?role=seller"), http.StatusOK, "<h1>Orders</h1>")
		all["/start"], all["/explore"] = false, false
		shows("a page of the other side", bob.visitor, bob.w+"/agents", bob.w, all)
		viewer := o.signUp("viewer", bob.invite(strings.TrimPrefix(bob.w, "/w/"), "viewer"))
		shows("may not start selling", viewer, bob.w, bob.w, all)
		alice.follow(alice.submit(formOf(t, alice.get(alice.w+"/holdings/"+string(s.plan)))))
		shows("bought with a form", alice.visitor, alice.w, alice.w, all)
	})
}
