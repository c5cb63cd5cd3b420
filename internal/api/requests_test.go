package api_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// followed works off what the follower of the service would.
func (s *stack) followed() {
	s.t.Helper()
	for must.Get(s.ledger.Follow(s.t.Context(), s.built.Events.Consumer()))(s.t) {
	}
}

// requests returns the requests of every page of a list.
func (s *stack) requests(who actor, query string) (all []*toll.Settlement) {
	s.t.Helper()
	for next := ""; ; {
		a := s.do(who, "GET", base+"/protocol/requests?"+query+next, "")
		var page requestList
		must.Do(s.t, json.Unmarshal(a.body, &page))
		if a.status != 200 {
			s.t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		all = append(all, page.Requests...)
		if page.NextCursor == nil {
			return all
		}
		next = "&cursor=" + *page.NextCursor
	}
}

// called is what the test knows of a request.
type called struct {
	toll.Settlement
	seller, buyer toll.Address
	at            time.Time // by which it is listed
}

// TestRequests_Model compares the lists of requests with what is known of each of them, for each party, filter, order and size of
// a page, after requests of several plans, agents and subscribers were settled, released, lapsed, or are open.
func TestRequests_Model(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		r := rand.New(rand.NewPCG(17, 85))
		type offer struct {
			seller      actor
			plan, agent string
		}
		const big = `{"name":"Free","priceConfig":{"priceType":"FREE"},"creditsConfig":{"creditsType":"FIXED","amount":100000,"minAmount":5}}`
		var offers []offer
		for _, seller := range []actor{s.b1, s.b1, s.b2} {
			plan := s.plan(seller, big)
			offers = append(offers, offer{seller, plan, s.agent(seller, plan)})
		}
		buyers := []actor{s.s1, s.b2, s.b1} // a seller buys, too, and of its own plans
		tokens := map[string]string{}
		for _, o := range offers {
			for _, b := range buyers {
				s.do(b, "POST", base+"/protocol/plans/"+o.plan+"/order", "")
				tokens[o.plan+b.key], _ = s.token(b, o.plan)
			}
		}
		began := s.clock.now()
		var all []*called
		for i := range 150 {
			o, b := offers[r.IntN(len(offers))], buyers[r.IntN(len(buyers))]
			s.clock.advance(time.Duration(r.IntN(40)) * time.Second)
			body := paymentBody(o.plan, tokens[o.plan+b.key], `,"hold":true,"holdSecs":60`)
			if r.IntN(2) == 0 {
				body = agentBody(o.plan, o.agent, tokens[o.plan+b.key], `,"hold":true,"holdSecs":60`)
			}
			held := s.do(o.seller, "POST", base+"/x402/verify", body)
			if held.status != 200 {
				t.Fatalf("%d: %d %s", i, held.status, held.body)
			}
			id := held.text(t, "agentRequestId")
			c := &called{seller: o.seller.address, buyer: b.address}
			c.AgentRequestID = id
			all = append(all, c)
			s.clock.advance(time.Duration(r.IntN(20)) * time.Second)
			body = strings.Replace(body, `,"hold":true,"holdSecs":60`, `,"agentRequestId":"`+id+`"`, 1)
			switch r.IntN(4) {
			case 0:
				s.do(o.seller, "POST", base+"/x402/release", `{"agentRequestId":"`+id+`"}`)
			case 1: // lapses
			case 2:
				if r.IntN(2) == 0 { // as a claim
					s.clock.advance(2 * time.Minute)
				}
				fallthrough
			default:
				if a := s.do(o.seller, "POST", base+"/x402/settle", body); a.status != 200 {
					t.Fatalf("%d: %d %s", i, a.status, a.body)
				}
			}
		}
		for must.Get(s.ledger.Sweep(t.Context()))(t) > 0 {
		}
		s.followed()
		byState := map[string]int{}
		for _, c := range all {
			var got toll.RequestRecord
			must.Do(t, json.Unmarshal(s.do(actor{key: s.b1.key}, "GET", base+"/protocol/requests/"+c.AgentRequestID, "").body, &got))
			if c.seller != s.b1.address && c.buyer != s.b1.address {
				must.Do(t, json.Unmarshal(s.do(s.b2, "GET", base+"/protocol/requests/"+c.AgentRequestID, "").body, &got))
			}
			c.Settlement = got.Settlement
			byState[got.Status]++
			if c.at = got.CreatedAt.Time; got.Status != "held" {
				c.at = got.EndedAt.Time
			}
			last := got.Steps[len(got.Steps)-1]
			if got.Steps[0].Status != "held" || last.Status != got.Status || !last.At.Before(s.clock.now().Add(1)) {
				t.Errorf("%+v", got)
			}
		}
		if byState["settled"] < 30 || byState["released"] < 10 || byState["lapsed"] < 10 || byState["held"] < 1 {
			t.Fatalf("%v", byState)
		}
		day := func(d time.Duration) string {
			return url.QueryEscape(toll.At(began.Add(d)).UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		checked := 0
		for _, who := range []actor{s.b1, s.b2, s.s1} {
			for _, role := range []string{"", "buyer"} {
				for _, of := range []string{"", "plan", "agent", "subscriber"} {
					for _, status := range []string{"", "settled", "released", "lapsed", "held"} {
						for _, span := range []string{"", "since", "until", "both"} {
							if of == "subscriber" && role == "buyer" || of != "" && who.key != s.b1.key || span != "" && r.IntN(3) > 0 {
								continue
							}
							query := url.Values{"role": {role}, "status": {status}}
							o := offers[r.IntN(2)]
							keep := func(c *called) bool {
								at := c.at.Sub(began)
								switch {
								case role == "" && c.seller != who.address, role == "buyer" && c.buyer != who.address,
									of != "" && of != "agent" && string(c.PlanID) != o.plan,
									of == "agent" && (c.AgentID == nil || string(*c.AgentID) != o.agent),
									of == "subscriber" && c.buyer != s.s1.address,
									status == "" && c.Status == "held", status != "" && c.Status != status,
									(span == "since" || span == "both") && at < 20*time.Minute,
									(span == "until" || span == "both") && at >= 50*time.Minute:
									return false
								}
								return true
							}
							switch of {
							case "plan":
								query.Set("planId", o.plan)
							case "agent":
								query.Set("agentId", o.agent)
							case "subscriber":
								query.Set("planId", o.plan)
								query.Set("subscriber", s.s1.address.Lower())
							}
							text := query.Encode()
							if span == "since" || span == "both" {
								text += "&since=" + day(20*time.Minute)
							}
							if span == "until" || span == "both" {
								text += "&until=" + day(50*time.Minute)
							}
							var want []*called
							for _, c := range all {
								if keep(c) {
									want = append(want, c)
								}
							}
							slices.SortStableFunc(want, func(a, b *called) int { return b.at.Compare(a.at) })
							for _, order := range []string{"desc", "asc"} {
								got := s.requests(who, text+"&sortOrder="+order+"&pageSize="+fmt.Sprint(1+r.IntN(30)))
								sameRequests(t, text+" "+order, got, want)
								slices.Reverse(want)
								checked += len(want)
							}
						}
					}
				}
			}
		}
		if checked < 500 {
			t.Errorf("only %d requests were compared", checked)
		}
	})
}

// sameRequests compares a list with what is expected. Requests that ended at the same moment may stand in any order.
func sameRequests(t *testing.T, name string, got []*toll.Settlement, want []*called) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d requests, not %d", name, len(got), len(want))
		return
	}
	at := func(s *toll.Settlement) time.Time {
		if s.EndedAt != nil {
			return s.EndedAt.Time
		}
		return s.CreatedAt.Time
	}
	seen := map[string]bool{}
	known := map[string]*called{}
	for _, w := range want {
		known[w.AgentRequestID] = w
	}
	for i, g := range got {
		w := known[g.AgentRequestID]
		if w == nil || seen[g.AgentRequestID] || !at(g).Equal(want[i].at) {
			t.Errorf("%s: %d is %+v", name, i, g)
			return
		}
		seen[g.AgentRequestID] = true
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(&w.Settlement)
		if string(a) != string(b) {
			t.Errorf("%s: the list has\n%s\nthe request\n%s", name, a, b)
		}
	}
}

// TestRequests_OfBothKinds: a page may end before the only settlement, although that was read already.
func TestRequests_OfBothKinds(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
		token, _ := s.token(s.s1, plan)
		settled := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")).text(t, "extra.agentRequestId")
		held := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true`)).text(t, "agentRequestId")
		s.clock.advance(time.Second)
		s.do(s.b1, "POST", base+"/x402/release", `{"agentRequestId":"`+held+`"}`)
		s.followed()
		for order, want := range map[string][]string{"desc": {held, settled}, "asc": {settled, held}} {
			var got []string
			for _, r := range s.requests(s.b1, "pageSize=1&sortOrder="+order) {
				got = append(got, r.AgentRequestID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", order, got, want)
			}
		}
	})
}

// TestRequests_Bounded: a list with few requests of many answers parts that may be empty, and all of them in the end.
func TestRequests_Bounded(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		many, few := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan)
		for _, plan := range []string{many, few} {
			s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
		}
		token, _ := s.token(s.s1, few)
		first := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(few, token, "")).text(t, "extra.agentRequestId")
		must.Do(t, s.burns(many, s.s1, 4500))
		s.followed()
		calls := 0
		for next := ""; ; calls++ {
			a := s.do(s.b1, "GET", base+"/protocol/requests?pageSize=5&planId="+few+next, "")
			var page requestList
			must.Do(t, json.Unmarshal(a.body, &page))
			if page.NextCursor == nil {
				if len(page.Requests) != 1 || page.Requests[0].AgentRequestID != first {
					t.Errorf("%d %s", a.status, a.body)
				}
				break
			}
			if len(page.Requests) > 0 {
				t.Fatalf("%s", a.body)
			}
			next = "&cursor=" + *page.NextCursor
		}
		if calls != 2 {
			t.Errorf("%d parts before the last one, not 2: a part reads at most 2,000", calls)
		}
		if got := s.requests(s.s1, "role=buyer&pageSize=100&planId="+many); len(got) != 4500 {
			t.Errorf("%d requests", len(got))
		}
	})
}

// burns settles nothing of a plan, so many times.
func (s *stack) burns(plan string, who actor, times int) error {
	token, _ := s.token(who, plan)
	done := make(chan error, times)
	places := make(chan struct{}, 64)
	for range times {
		places <- struct{}{}
		go func() {
			a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"maxAmount":"0"`))
			<-places
			if a.status != 200 {
				done <- fmt.Errorf("%d %s", a.status, a.body)
				return
			}
			done <- nil
		}()
	}
	for range times {
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// TestRequests_Refusals: what is wrong with a question is said, and nobody sees what is of others.
func TestRequests_Refusals(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	for query, code := range map[string]string{
		"status=open": "BCK.HTTP.400", "role=owner": "BCK.HTTP.400", "since=2020-01-01": "BCK.HTTP.400", "since=2026-11-21&until=2026-11-20": "BCK.HTTP.400",
		"since=2026-01-01&until=2026-04-02": "BCK.HTTP.400", "planId=x": "BCK.COMMON.0026", "agentId=x": "BCK.COMMON.0026", "planId=11111": "BCK.PROTOCOL.0003",
		"subscriber=" + s.s1.address.Lower(): "BCK.HTTP.400", "role=buyer&planId=" + plan + "&subscriber=" + s.s1.address.Lower(): "BCK.HTTP.400",
		"page=2": "BCK.COMMON.0904", "sortBy=created": "BCK.COMMON.0904", "cursor=x": "BCK.COMMON.0904", "cursor=e30": "BCK.COMMON.0904",
		"cursor=eyJwIjpbeyJuIjoxfV19":                    "BCK.COMMON.0904", // of a list with one source
		"status=released&cursor=eyJwIjpbeyJuIjoxfV19":    "",
		"status=settled&cursor=eyJwIjpbeyJuIjotNX1dfQ":   "",
		"cursor=eyJwIjpbeyJuIjo5fSx7Im4iOjksImEiOjN9XX0": "BCK.COMMON.0904", // a number in place of bytes
	} {
		if a := s.do(s.b1, "GET", base+"/protocol/requests?"+query, ""); a.code() != code {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := s.do(s.b2, "GET", base+"/protocol/requests?planId="+plan, ""); a.code() != "BCK.PROTOCOL.0017" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestRequests_Export: the settlements of a range are a file for bookkeeping, across pages.
func TestRequests_Export(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	must.Do(t, s.burns(plan, s.s1, 230))
	s.followed()
	from := url.QueryEscape(s.clock.now().Format(time.RFC3339))
	s.clock.advance(time.Minute)
	must.Do(t, s.burns(plan, s.s1, 3))
	s.followed()
	until := url.QueryEscape(s.clock.now().Format(time.RFC3339))
	a := s.do(s.b1, "GET", base+"/protocol/requests?status=settled&format=csv&since="+from+"&until="+until, "")
	table := must.Get(csv.NewReader(strings.NewReader(string(a.body))).ReadAll())(t)
	if len(table) != 231 || !slices.Contains(table[0], "creditsRedeemed") || !slices.Contains(table[0], "transaction") {
		t.Errorf("%d rows under %v", len(table), table[0])
	}
	if a := s.do(s.keyWith(s.b1, toll.RightRead), "GET", base+"/protocol/requests?format=csv", ""); toll.Code(a.code()) != toll.CodeRightMissing {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// requestList is an answer of listRequests.
type requestList struct {
	Requests   []*toll.Settlement
	NextCursor *string
}
