package api_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// counts works off what the loop of the service would.
func (s *stack) counts() {
	s.t.Helper()
	for must.Get(s.ledger.CountUsage(s.t.Context()))(s.t) {
	}
}

// TestUsage: a seller sees what was settled of its plans in every grouping, a buyer what it used, and nobody what is of others.
func TestUsage(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		first, second := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, first)
		labels := `,"labels":{"upstream":"gpu","route":"POST /chat","model":"small"}`
		settle := func(who actor, plan string, times int) {
			t.Helper()
			if a := s.do(who, "POST", base+"/protocol/plans/"+plan+"/order", ""); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			token, _ := s.token(who, plan)
			for range times {
				if a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, labels)); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		}
		day := s.clock.now().Truncate(24 * time.Hour)
		settle(s.s1, first, 2)
		s.clock.advance(time.Hour)
		labels = ""
		settle(s.s1, second, 1)
		labels = `,"labels":{"route":"GET /search"}`
		s.clock.advance(24 * time.Hour)
		settle(s.b2, first, 3)
		var waiting struct{ CountedUntil toll.Time }
		must.Do(t, json.Unmarshal(s.do(s.b1, "GET", base+"/protocol/usage", "").body, &waiting))
		if !waiting.CountedUntil.Before(s.clock.now()) {
			t.Errorf("before anything is counted, all is counted to %v", waiting.CountedUntil)
		}
		s.counts()
		at := func(d time.Duration) string { return toll.At(day.Add(d)).UTC().Format("2006-01-02T15:04:05.000Z") }
		hour := s.clock.now().Add(-25 * time.Hour).Truncate(time.Hour).Sub(day)
		fifth := func(u toll.Usage) string { // name, settlements and credits
			name := string(u.PlanID)
			switch {
			case u.Start != nil:
				name = u.Start.UTC().Format("2006-01-02T15:04:05.000Z")
			case u.AgentID != "":
				name = string(u.AgentID)
			case u.Route != "" || u.Model != "":
				name = u.Route + u.Model
			case u.SubscriberAddress != nil:
				name = u.SubscriberAddress.Lower()
			}
			text, _ := json.Marshal([]any{name, u.Settled, u.Credits})
			return string(text)
		}
		row := func(name string, n int, credits string) string {
			text, _ := json.Marshal([]any{name, n, credits})
			return string(text)
		}
		plans := []string{row(first, 5, "25"), row(second, 1, "5")}
		subscribers := []string{row(s.s1.address.Lower(), 2, "10"), row(s.b2.address.Lower(), 3, "15")}
		slices.Sort(plans)
		slices.Sort(subscribers)
		for _, tt := range []struct {
			who   actor
			query string
			want  []string
		}{
			{s.b1, "", []string{row(at(0), 3, "15"), row(at(24*time.Hour), 3, "15")}},
			{s.b1, "by=day&planId=" + first, []string{row(at(0), 2, "10"), row(at(24*time.Hour), 3, "15")}},
			{s.b1, "by=day&until=" + url.QueryEscape(at(24*time.Hour)), []string{row(at(0), 3, "15")}},
			{s.b1, "by=hour&since=" + url.QueryEscape(at(hour)), []string{row(at(hour), 2, "10"), row(at(hour+time.Hour), 1, "5"), row(at(hour+25*time.Hour), 3, "15")}},
			{s.b1, "by=HOUR&since=" + url.QueryEscape(at(hour+time.Hour)) + "&until=" + url.QueryEscape(at(hour+2*time.Hour)), []string{row(at(hour+time.Hour), 1, "5")}},
			{s.b1, "by=plan", plans},
			{s.b1, "by=agent&agentId=" + agent, nil}, // what was settled names none
			{s.b1, "by=agent&planId=" + second, []string{row("", 1, "5")}},
			{s.b1, "by=subscriber&planId=" + first, subscribers},
			{s.b1, "planId=" + first + "&subscriber=" + s.s1.address.Lower(), []string{row(at(0), 2, "10")}},
			{s.b1, "by=route", []string{row("GET /search", 3, "15"), row("POST /chat", 2, "10")}},
			{s.b1, "by=model&planId=" + first, []string{row("", 3, "15"), row("small", 2, "10")}},
			{s.b1, "by=model&planId=" + first + "&subscriber=" + s.s1.address.Lower(), []string{row("small", 2, "10")}},
			{s.b1, "by=model&planId=" + second, nil}, // a settlement without labels
			{s.s1, "role=buyer&by=model", []string{row("small", 2, "10")}},
			{s.b2, "role=buyer&by=route", []string{row("GET /search", 3, "15")}},
			{s.s1, "by=route", nil},
			{s.s1, "", nil},
			{s.b1, "role=buyer", nil},
			{s.s1, "role=buyer", []string{row(at(0), 3, "15")}},
			{s.s1, "role=buyer&planId=" + second, []string{row(at(0), 1, "5")}},
			{s.b2, "role=buyer&by=plan", []string{row(first, 3, "15")}},
		} {
			var got []string
			for next := ""; ; {
				a := s.do(tt.who, "GET", base+"/protocol/usage?sortOrder=asc&pageSize=1&"+tt.query+next, "")
				var page struct {
					Usage        []toll.Usage
					Total        int
					NextCursor   *string
					CountedUntil toll.Time
				}
				must.Do(t, json.Unmarshal(a.body, &page))
				if a.status != 200 || page.Total != len(tt.want) || page.CountedUntil.UnixMilli() != s.clock.now().UnixMilli() {
					t.Fatalf("%s: %d %s", tt.query, a.status, a.body)
				}
				for _, u := range page.Usage {
					got = append(got, fifth(u))
				}
				if page.NextCursor == nil {
					break
				}
				next = "&cursor=" + *page.NextCursor
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v, not %v", tt.query, got, tt.want)
			}
		}
		for query, code := range map[string]string{
			"role=buyer&by=upstream": "BCK.HTTP.400", "by=upstream&planId=" + first + "&subscriber=" + s.s1.address.Lower(): "BCK.HTTP.400",
			"by=model&agentId=" + agent: "BCK.HTTP.400", "by=minute": "BCK.HTTP.400", "role=buyer&by=hour": "BCK.HTTP.400", "role=buyer&by=subscriber": "BCK.HTTP.400", "by=subscriber": "BCK.HTTP.400",
			"role=buyer&agentId=" + agent: "BCK.HTTP.400", "subscriber=" + s.s1.address.Lower(): "BCK.HTTP.400", "since=2020-01-01": "BCK.HTTP.400",
			"by=hour&since=2026-10-01": "BCK.HTTP.400", "since=2026-11-21&until=2026-11-20": "BCK.HTTP.400", "planId=x": "BCK.COMMON.0026",
			"planId=11111": "BCK.PROTOCOL.0003", "pageSize=101": "BCK.COMMON.0904", "cursor=x": "BCK.COMMON.0904",
		} {
			if a := s.do(s.b1, "GET", base+"/protocol/usage?"+query, ""); a.code() != code {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
		}
		for _, path := range []string{"/protocol/usage", "/protocol/revenue"} {
			if a := s.do(s.b2, "GET", base+path+"?planId="+first, ""); a.code() != "BCK.PROTOCOL.0017" {
				t.Errorf("%s of somebody else: %d %s", path, a.status, a.body)
			}
		}
		if a := s.do(s.b1, "GET", base+"/protocol/usage?by=hour&since="+url.QueryEscape(at(hour)), ""); strings.Count(string(a.body), `"holdToSettle":[0,0,0,0,0,0,0,0,0,0,0,0]`) != 3 {
			t.Errorf("%s", a.body) // nothing had a hold
		}
	})
}
