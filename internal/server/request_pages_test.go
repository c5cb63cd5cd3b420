package server_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// sold is an agent of a seller with a free plan, and a buyer of it.
type sold struct {
	o        *town
	seller   *seller
	buyer    *seller
	agent    toll.AgentID
	plan     toll.PlanID
	required x402.PaymentRequired
	token    string
}

func (o *town) sold(seller, buyer string) *sold {
	t := o.t
	t.Helper()
	s := &sold{o: o, seller: o.seller(seller), buyer: o.seller(buyer)}
	made, err := s.seller.api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Basic"}, Price: toll.PriceFree(), Credits: toll.CreditsDynamic(5000, 1, 2000),
	})
	must.Do(t, err)
	s.agent, s.plan = made.AgentID, made.PlanID
	s.pays(s.buyer.api)
	s.required = *x402.NewPaymentRequired([]*x402.Terms{{
		PlanID: s.plan, Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PayTo: strings.TrimPrefix(s.seller.w, "/w/"),
		MinAmount: 1, MaxAmount: 2000,
	}}, x402.Options{AgentID: s.agent})
	return s
}

// pays orders the plan for a subscriber, whose access token pays the requests that follow.
func (s *sold) pays(subscriber *client.Client) {
	s.o.t.Helper()
	must.Get(subscriber.OrderPlan(s.o.t.Context(), s.plan))(s.o.t)
	token := must.Get(subscriber.AccessToken(s.o.t.Context(), s.plan))(s.o.t)
	s.token = token.AccessToken
}

// hold sets credits aside for a request.
func (s *sold) hold(id string, n toll.Credits) {
	s.o.t.Helper()
	r, err := s.seller.api.Verify(s.o.t.Context(), &x402.VerifyRequest{
		PaymentRequired: s.required, AccessToken: s.token, AgentRequestID: id, MaxAmount: n.Ptr(), Hold: true,
	})
	if err != nil || !r.IsValid {
		s.o.t.Fatalf("hold: %+v %v", r, err)
	}
}

// settle burns credits for a request.
func (s *sold) settle(id string, n toll.Credits) *x402.SettleResponse {
	s.o.t.Helper()
	r, err := s.seller.api.Settle(s.o.t.Context(), &x402.SettleRequest{
		PaymentRequired: s.required, AccessToken: s.token, AgentRequestID: id, MaxAmount: n.Ptr(),
	})
	if err != nil || !r.Success {
		s.o.t.Fatalf("settle: %+v %v", r, err)
	}
	return r
}

// TestRequestPages: requests are listed with their outcome for both sides, narrowed as the API narrows them, and one is shown with
// all that happened to it. The file has the same requests.
func TestRequestPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.sold("alice", "bob")
		alice, bob := s.seller, s.buyer
		s.hold("settled-one", 1500)
		s.settle("settled-one", 1234)
		s.hold("released-one", 77)
		must.Get(alice.api.Release(t.Context(), &x402.ReleaseRequest{AgentRequestID: "released-one"}))(t)
		s.hold("held-one", 55)
		list := alice.w + "/requests"
		eventually(t, "the settlement is listed", func() bool { return strings.Contains(alice.get(list).body, "/requests/settled-one") })
		day := time.Now().UTC().Format(time.DateOnly)
		subscriber := strings.TrimPrefix(bob.w, "/w/")
		for query, want := range map[string]string{ // which requests there are: settled, released, held
			"": "sr", "?status=settled": "s", "?status=released": "r", "?status=held": "h", "?status=lapsed": "",
			"?planId=" + string(s.plan): "sr", "?agentId=" + string(s.agent): "sr", "?since=" + day: "sr", "?until=" + day: "",
			"?planId=" + string(s.plan) + "&subscriber=" + subscriber: "sr", "?planId=" + string(s.plan) + "&subscriber=" + strings.TrimPrefix(alice.w, "/w/"): "",
			"?role=buyer": "",
		} {
			body := alice.get(list + query).body
			for letter, id := range map[string]string{"s": "settled-one", "r": "released-one", "h": "held-one"} {
				if got := strings.Contains(body, "/requests/"+id+`"`); got != strings.Contains(want, letter) {
					t.Errorf("%q: %s listed: %v", query, id, got)
				}
			}
		}
		reads(t, bob.get(bob.w+"/requests?role=buyer"), http.StatusOK, "<h1>Receipts</h1>", bob.w+"/requests/settled-one", "/holdings/"+string(s.plan),
			`<option value="`+string(s.plan)+`">Basic</option>`)
		for query, status := range map[string]int{
			"?planId=x": http.StatusBadRequest, "?subscriber=" + subscriber: http.StatusBadRequest, "?since=x": http.StatusBadRequest,
			"?since=2020-01-01": http.StatusBadRequest, "?status=x": http.StatusBadRequest,
		} {
			if res := alice.get(list + query); res.status != status {
				t.Errorf("%s: %d\n%s", query, res.status, mainPart.FindString(res.body))
			}
		}
		r := must.Get(alice.api.Request(t.Context(), "settled-one"))(t)
		for _, v := range []*seller{alice, bob} {
			reads(t, v.get(v.w+"/requests/settled-one"), http.StatusOK, "1,500 credits held", "1,234 credits burned", r.Transaction.String(),
				"Receipt", "/receipts#"+r.Transaction.String(), subscriber)
		}
		reads(t, alice.get(list+"/released-one"), http.StatusOK, "77 credits released")
		reads(t, alice.get(list+"/held-one"), http.StatusOK, "55 credits held", "Settled, released, or lapsed")
		if res := alice.get(alice.w + "/search?q=" + r.Transaction.String()); !strings.Contains(res.body, "/requests/settled-one") {
			t.Errorf("the search by transaction:\n%s", mainPart.FindString(res.body))
		}
		eve := o.seller("eve")
		for _, path := range []string{"/settled-one", "/none"} {
			if res := eve.get(eve.w + "/requests" + path); res.status != http.StatusNotFound {
				t.Errorf("%s of others: %d", path, res.status)
			}
		}
		file := alice.get(alice.w + "/export/requests?status=settled")
		rows, err := csv.NewReader(strings.NewReader(file.body)).ReadAll()
		if err != nil || len(rows) != 2 || !strings.Contains(strings.Join(rows[1], ","), "settled-one") {
			t.Errorf("the file: %v %v", rows, err)
		}
		if body := alice.get(list + "?status=settled").body; !strings.Contains(body, `/export/requests?status=settled"`) {
			t.Errorf("no link to the file:\n%s", mainPart.FindString(body))
		}
		viewer := o.signUp("viewer", alice.invite(strings.TrimPrefix(alice.w, "/w/"), "viewer"))
		if body := viewer.get(list).body; strings.Contains(body, "/export/") {
			t.Error("who has no right to the file is led to it")
		}
	})
}

// TestFilesOfLists: each list that the API hands out as a file has a link to it on its page.
func TestFilesOfLists(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	s := o.sold("alice", "bob")
	s.settle("one", 10)
	w := s.seller.w
	for page, of := range map[string]string{
		"/agents": string(s.agent), "/plans": string(s.plan), "/orders": string(s.plan), "/plans/" + string(s.plan): strings.TrimPrefix(s.buyer.w, "/w/"),
		"/usage": "settled", "/revenue": "currency", "/requests": "agentRequestId", "/tokens": "permissionHash", "/holdings": "planId",
		"/events?type=plan.created": "plan.created", "/audit": "workspace.created",
	} {
		body := s.seller.get(w + page).body
		_, rest, ok := strings.Cut(body, `href="`+w+"/export/")
		to, _, _ := strings.Cut(rest, `"`)
		if !ok {
			t.Errorf("%s has no link:\n%s", page, mainPart.FindString(body))
			continue
		}
		to = strings.ReplaceAll(to, "&amp;", "&")
		if res := s.seller.get(w + "/export/" + to); res.status != http.StatusOK || !strings.HasPrefix(res.header.Get("Content-Type"), "text/csv") || !strings.Contains(strings.ToLower(res.body), strings.ToLower(of)) {
			t.Errorf("%s leads to %s: %d %s\n%.300s", page, to, res.status, res.header.Get("Content-Type"), res.body)
		}
	}
	for path, status := range map[string]int{
		"/export/subscribers": http.StatusBadRequest, "/export/subscribers?plan=..%2F..%2Fx": http.StatusBadRequest,
		"/export/refusals": http.StatusOK, "/export/delegation-payments?delegation=x": http.StatusBadRequest,
	} {
		if res := s.seller.get(w + path); res.status != status {
			t.Errorf("%s: %d %s", path, res.status, res.body)
		}
	}
}

// TestUsage_ByLabel: the seller sees the credits of each upstream, route, and model, and the buyer the credits of each route and model.
func TestUsage_ByLabel(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	s := o.sold("alice", "bob")
	if body := s.seller.get(s.seller.w + "/usage").body; strings.Contains(body, "<h2>By model") {
		t.Errorf("no label is used:\n%s", mainPart.FindString(body))
	}
	for id, labels := range map[string]toll.UsageLabels{
		"one": {Upstream: "gpu-9", Route: "POST /chat", Model: "small<1>"}, "two": {Upstream: "gpu-9", Route: "GET /search"}, "three": {},
	} {
		r, err := s.seller.api.Settle(t.Context(), &x402.SettleRequest{
			PaymentRequired: s.required, AccessToken: s.token, AgentRequestID: id, MaxAmount: toll.Credits(len(id) * 100).Ptr(), Labels: labels,
		})
		if err != nil || !r.Success {
			t.Fatalf("%+v %v", r, err)
		}
	}
	eventually(t, "the count of usage", func() bool {
		return strings.Contains(s.seller.get(s.seller.w+"/usage").body, `<p class="value num">1,100</p>`)
	})
	sells := s.seller.get(s.seller.w + "/usage?range=7d").body
	for _, want := range []string{"<h2>By upstream", "gpu-9", "600", "<h2>By route", "POST /chat", "GET /search", "<h2>By model", "small&lt;1&gt;", "no model"} {
		if !strings.Contains(sells, want) {
			t.Errorf("the seller does not see %q:\n%s", want, mainPart.FindString(sells))
		}
	}
	buys := s.buyer.get(s.buyer.w + "/holdings/" + string(s.plan)).body
	for want, there := range map[string]bool{"<h2>By model, in 30 days": true, "small&lt;1&gt;": true, "<h2>By route, in 30 days": true, "GET /search": true, "gpu-9": false} {
		if strings.Contains(buys, want) != there {
			t.Errorf("the buyer sees %q: %t:\n%s", want, !there, mainPart.FindString(buys))
		}
	}
}

// TestOwnRanges: figures are of the days that somebody chose, with the time before of the same length.
func TestOwnRanges(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.sold("alice", "bob")
		s.settle("one", 1234)
		now := time.Now().UTC()
		day := func(n int) string { return now.AddDate(0, 0, n).Format(time.DateOnly) }
		eventually(t, "the count of usage", func() bool {
			return strings.Contains(s.seller.get(s.seller.w+"/usage").body, `<p class="value num">1,234</p>`)
		})
		between := func(since, until string) string { return "?" + url.Values{"since": {since}, "until": {until}}.Encode() }
		for query, want := range map[string]struct {
			figure string
			steps  int
		}{
			between(day(0), day(1)): {"1,234", 24}, between(day(-1), day(1)): {"1,234", 48}, between(day(-9), day(1)): {"1,234", 10},
			between(day(-9), day(0)): {"0", 9}, between(day(-365), day(1)): {"1,234", 366}, between("", day(1)): {"1,234", 30},
			between(day(-2), ""): {"1,234", 3}, between(day(-9), day(1)) + "&plan=" + string(s.plan): {"1,234", 10},
		} {
			body := s.seller.get(s.seller.w + "/usage" + query).body
			if !strings.Contains(body, `<p class="value num">`+want.figure+`</p>`) {
				t.Errorf("%s: no figure %s:\n%s", query, want.figure, mainPart.FindString(body))
			}
			if want.figure != "0" && !strings.Contains(body, fmt.Sprintf(`<svg viewBox="0 0 %d 100"`, 10*want.steps)) {
				t.Errorf("%s: not %d steps", query, want.steps)
			}
			if strings.Contains(body, `aria-current="true"`) {
				t.Errorf("%s: a usual range is marked", query)
			}
		}
		for _, query := range []string{between(day(1), day(0)), between(day(0), day(0)), between(day(-400), day(1)), between("x", day(1)), between(day(0), "y")} {
			for _, path := range []string{"/usage", "/revenue"} {
				if res := s.seller.get(s.seller.w + path + query); res.status != http.StatusBadRequest || !strings.Contains(res.body, "1 to 366 days after the start") {
					t.Errorf("%s%s: %d", path, query, res.status)
				}
			}
		}
		// Subscribers who paid: of whole days alone.
		for path, want := range map[string]bool{"": true, "/usage?range=7d": true, "/usage?plan=" + string(s.plan): true, "?range=24h": false} {
			body := s.seller.get(s.seller.w + path).body
			_, after, ok := strings.Cut(body, "Paying subscribers")
			if ok != want || ok && !strings.Contains(after[:120], `<p class="value num">1</p>`) {
				t.Errorf("%s: subscribers: %v %.120s", path, ok, after)
			}
		}
		// They are counted once in a minute, however often a page reads itself: each count reads a row of each subscriber and day.
		s.pays(o.seller("carol").api)
		s.settle("two", 1)
		eventually(t, "the count of the second", func() bool {
			return strings.Contains(s.seller.get(s.seller.w+"/usage").body, `<p class="value num">1,235</p>`)
		})
		_, after, _ := strings.Cut(s.seller.get(s.seller.w).body, "Paying subscribers")
		_, fresh, _ := strings.Cut(s.seller.get(s.seller.w+"/usage"+between(day(-3), day(1))).body, "Paying subscribers")
		if !strings.Contains(after[:120], `<p class="value num">1</p>`) || !strings.Contains(fresh[:120], `<p class="value num">2</p>`) {
			t.Errorf("subscribers within the minute: %.120s, of another range %.120s", after, fresh)
		}
	})
}

// TestRecentCallsOnPages: a person sees the last calls of a key, the refused ones alone if wanted, and nobody else's.
func TestRecentCallsOnPages(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice, eve := o.seller("alice"), o.seller("eve")
	made := must.Get(alice.api.CreateKey(t.Context(), client.KeyParams{Name: "shop"}))(t)
	c := client.New(made.Key, client.WithURL(o.address), client.WithRetries(0))
	must.Get(c.Wallet(t.Context()))(t)
	if _, err := c.Plan(t.Context(), "1"); err == nil {
		t.Fatal("there is a plan 1")
	}
	at := alice.w + "/keys/" + made.ID.String()
	reads(t, alice.get(at), http.StatusOK, at+"/calls")
	reads(t, alice.get(at+"/calls"), http.StatusOK, "readWallet", ">200<", ">404<", string(toll.CodePlanNotFound))
	if body := alice.get(at + "/calls?show=refused").body; strings.Contains(body, "readWallet") || !strings.Contains(body, string(toll.CodePlanNotFound)) {
		t.Errorf("the refused ones:\n%s", mainPart.FindString(body))
	}
	if res := eve.get(eve.w + "/keys/" + made.ID.String() + "/calls"); res.status != http.StatusNotFound {
		t.Errorf("the calls of others: %d", res.status)
	}
}
