package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
)

// heard returns the types and objects of a stream in its order, after looking at its numbers. Words of secrets must not be in it.
func heard(t *testing.T, s *stack, who actor, secrets ...string) (out []string, all []toll.Event) {
	t.Helper()
	for cursor := ""; ; {
		a := s.do(who, "GET", base+"/events?sortOrder=asc&limit=50&cursor="+cursor, "")
		if cursor == "" {
			a = s.do(who, "GET", base+"/events?sortOrder=asc&limit=50", "")
		}
		for _, secret := range secrets {
			if strings.Contains(string(a.body), secret) {
				t.Errorf("a secret stands in the events: %s", a.body)
			}
		}
		var page struct {
			Events     []toll.Event `json:"events"`
			NextCursor *string      `json:"nextCursor"`
			Total      int          `json:"total"`
		}
		must.Do(t, json.Unmarshal(a.body, &page))
		for _, e := range page.Events {
			all = append(all, e)
			out = append(out, string(e.Type))
			if e.Sequence != int64(len(all)) || len(e.Data) < 2 || e.Data[0] != '{' {
				t.Fatalf("event %d: %+v", len(all), e)
			}
		}
		if page.NextCursor == nil {
			if page.Total != len(all) {
				t.Errorf("%d in all, %d came", page.Total, len(all))
			}
			return out, all
		}
		cursor = *page.NextCursor
	}
}

// inTheBackground runs what derives and delivers until the test ends.
func inTheBackground(t *testing.T, s *stack) {
	group := jobs.NewGroup(nil)
	group.Start(jobs.Loop{Name: "follow", Every: 50 * time.Millisecond, Run: jobs.Sweep(func(ctx context.Context) (bool, error) {
		return s.ledger.Follow(ctx, s.built.Events.Consumer())
	})})
	group.Start(s.built.Events.Loops()...)
	t.Cleanup(func() { must.Do(t, group.Stop(context.Background())) })
}

// TestEveryChangeOnce: each change of a record has one event for each side, one that fails or changes nothing has none, and
// its data is the record as it is read.
// I20
func TestEveryChangeOnce(t *testing.T) {
	s, crypto, _ := newPaidStack(t)
	ok := func(a answer) answer {
		t.Helper()
		if a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return a
	}
	do := func(who actor, method, path, body string) answer {
		t.Helper()
		return s.do(who, method, base+path, body)
	}
	heard(t, s, s.b1)
	before, _ := heard(t, s, s.b1)
	mine, _ := heard(t, s, s.s1)
	ofS1 := len(mine)

	plan := s.plan(s.b1, pricedPlan)
	read := do(s.b1, "GET", "/protocol/plans/"+plan, "")
	agent := ok(do(s.b1, "POST", "/protocol/agents", `{"name":"A","plans":["`+plan+`"],"agentApiAttributes":{"authType":"bearer","token":"upstream-canary"}}`)).text(t, "agentId")
	ok(do(s.b1, "PUT", "/protocol/plans/"+plan, `{"description":"new"}`))
	ok(do(s.b1, "PUT", "/protocol/plans/"+plan, `{}`)) // changes nothing
	do(s.b2, "PUT", "/protocol/plans/"+plan, `{"description":"theirs"}`)
	ok(do(s.b1, "PUT", "/protocol/agents/"+agent, `{"description":"new"}`))
	ok(do(s.b1, "PUT", "/protocol/agents/"+agent+"/list/false", ""))
	ok(do(s.b1, "PUT", "/protocol/agents/"+agent+"/list/false", "")) // is so already
	ok(do(s.b1, "PUT", "/protocol/agents/"+agent+"/list/true", ""))
	ok(do(s.b1, "PUT", "/protocol/plans/"+plan+"/list/false", ""))
	ok(do(s.b1, "PUT", "/protocol/plans/"+plan+"/list/true", ""))
	ok(do(s.b1, "DELETE", "/protocol/agents/"+agent+"/plan/"+plan, ""))
	ok(do(s.b1, "POST", "/protocol/agents/"+agent+"/plan/"+plan, ""))
	ok(do(s.b1, "POST", "/protocol/agents/plans", `{"agentMetadata":{"name":"Both"},"agentApi":{"endpoints":[{"POST":"https://agent.example.com/both"}]},"planMetadata":{"name":"Both"},"priceConfig":{},"creditsConfig":{}}`))

	limit := ok(do(s.s1, "POST", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":100,"durationSecs":3600,"currency":"usdc"}`)).text(t, "delegationId")
	token := ok(do(s.s1, "POST", "/x402/permissions", `{"planId":"`+plan+`","delegationConfig":{"delegationId":"`+limit+`"}}`))
	ok(do(s.s1, "POST", "/protocol/plans/"+plan+"/order", `{"delegationId":"`+limit+`"}`)) // takes the whole delegation
	crypto.Behave(railtest.Behaviour{Decline: true, Code: "BCK.PROTOCOL.0011", Reason: "no funds"})
	if a := do(s.s1, "POST", "/protocol/plans/"+plan+"/order", ""); a.status != 402 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ok(do(s.s1, "DELETE", "/delegation/"+limit, "")) // and the permission that names it
	ok(do(s.s1, "DELETE", "/delegation/"+limit, ""))
	second := ok(do(s.s1, "POST", "/x402/permissions", `{"planId":"`+plan+`"}`)).text(t, "permissionHash")
	ok(do(s.s1, "DELETE", "/x402/permissions/"+second, ""))
	do(s.s1, "DELETE", "/x402/permissions/"+second, "")
	key := ok(do(s.s1, "POST", "/api-keys", `{"name":"k"}`))
	ok(do(s.s1, "DELETE", "/api-keys/"+key.text(t, "id"), ""))

	builder, events := heard(t, s, s.b1, "upstream-canary")
	want := "plan.created agent.created plan.updated agent.updated agent.unlisted agent.listed plan.unlisted plan.listed agent.updated agent.updated agent.created plan.created order.created order.paid order.created order.failed"
	if got := strings.Join(builder[len(before):], " "); got != want {
		t.Errorf("builder\n got %s\nwant %s", got, want)
	}
	created := events[len(before)]
	if string(created.Data) != string(read.body) || created.Object != (toll.EventObject{Kind: "plan", ID: plan, Sequence: 1}) {
		t.Errorf("%+v\n got %s\nwant %s", created.Object, created.Data, read.body)
	}
	detached, attached := events[len(before)+8], events[len(before)+9]
	if strings.Contains(string(detached.Data), plan) || !strings.Contains(string(attached.Data), plan) {
		t.Error("the plans of the agent are not those after the change")
	}
	_, secret, _ := strings.Cut(key.text(t, "key"), ":")
	subscriber, events := heard(t, s, s.s1, secret, token.text(t, "accessToken"))
	want = "delegation.created permission.created order.created order.paid delegation.exhausted order.created order.failed delegation.revoked permission.revoked " +
		"permission.created permission.revoked api_key.created api_key.revoked"
	if got := strings.Join(subscriber[ofS1:], " "); got != want {
		t.Errorf("subscriber\n got %s\nwant %s", got, want)
	}
	if e := events[ofS1+8]; e.Object.ID != token.text(t, "permissionHash") || !strings.Contains(string(e.Data), `"Revoked"`) {
		t.Errorf("%+v %s", e.Object, e.Data)
	}
	if others, _ := heard(t, s, s.b2); strings.Contains(strings.Join(others, " "), "plan.") {
		t.Errorf("a stranger hears %v", others)
	}
}

// follow opens the live stream and returns its messages: id, type and event.
func (s *stack) follow(t *testing.T, who actor, after string) (messages <-chan [2]string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req := must.Get(http.NewRequestWithContext(ctx, "GET", s.url+base+"/events/stream", nil))(t)
	req.Header.Set("Authorization", "Bearer "+who.key)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res := must.Get(http.DefaultClient.Do(req))(t)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	out := make(chan [2]string, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(out)
		lines := bufio.NewScanner(res.Body)
		var id string
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = v
			}
			if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				out <- [2]string{id, v}
			}
		}
	})
	return out, func() { cancel(); _ = res.Body.Close(); reading.Wait() }
}

func TestEventStream(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		inTheBackground(t, s)
		live, stop := s.follow(t, s.b1, "")
		first := s.plan(s.b1, freePlan)
		second := s.plan(s.b1, freePlan)
		take := func(from <-chan [2]string) (string, toll.Event) {
			t.Helper()
			select {
			case m, open := <-from:
				var e toll.Event
				if !open {
					t.Fatal("the stream ended")
				}
				must.Do(t, json.Unmarshal([]byte(m[1]), &e))
				return m[0], e
			case <-time.After(long):
				t.Fatal("nothing came")
			}
			panic("unreachable")
		}
		id, e := take(live)
		if id != e.ID || e.Type != toll.EventPlanCreated || e.Object.ID != first {
			t.Errorf("%s %+v", id, e)
		}
		if _, e := take(live); e.Object.ID != second {
			t.Errorf("%+v", e)
		}
		stop()
		again, stop := s.follow(t, s.b1, id)
		defer stop()
		if _, e := take(again); e.Object.ID != second {
			t.Errorf("behind the first: %+v", e)
		}
		// Credits are derived, and both sides hear of them.
		s.do(s.s1, "POST", base+"/protocol/plans/"+first+"/order", "")
		var types []string
		for len(types) < 3 {
			_, e := take(again)
			types = append(types, string(e.Type))
		}
		if got := strings.Join(types, " "); got != "order.created order.paid credits.minted" {
			t.Error(got)
		}
		if a := s.do(s.b1, "GET", base+"/events/stream", "", "Last-Event-ID", toll.NewUUID()); a.status != 400 {
			t.Errorf("an unknown place: %d", a.status)
		}
		if a := s.do(s.b1, "HEAD", base+"/events/stream", ""); a.status != 200 {
			t.Errorf("HEAD: %d", a.status)
		}
	})
}

// TestIdleStreams: nobody opens streams without end, closed ones are free at once, and the end of the service ends all.
// T179
func TestIdleStreams(t *testing.T) {
	s := newStack(t)
	var stops []func()
	for range 8 {
		_, stop := s.follow(t, s.b1, "")
		stops = append(stops, stop)
	}
	for range 20 {
		if a := s.do(s.b1, "GET", base+"/events/stream", ""); a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := s.do(s.b2, "HEAD", base+"/events/stream", ""); a.status != 200 {
		t.Errorf("another address: %d", a.status)
	}
	stops[0]()
	for deadline := time.Now().Add(long); s.do(s.b1, "HEAD", base+"/events/stream", "").status != 200; {
		if time.Now().After(deadline) {
			t.Fatal("a closed stream still counts")
		}
		time.Sleep(10 * time.Millisecond)
	}
	last, stop := s.follow(t, s.b1, "")
	defer stop()
	s.built.Events.EndStreams()
	select {
	case _, open := <-last:
		if open {
			t.Error("an event out of nothing")
		}
	case <-time.After(long):
		t.Error("the stream outlives its service")
	}
	for _, stop := range stops[1:] {
		stop()
	}
}

// Creating a webhook honours Idempotency-Key, secret included; the limit holds.
func TestWebhooks_Create(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		body := `{"url":"https://example.com/hook","types":["PLAN.created"]}`
		first := s.do(s.b1, "POST", base+"/webhooks", body, "Idempotency-Key", "k")
		again := s.do(s.b1, "POST", base+"/webhooks", body, "Idempotency-Key", "k")
		if first.status != 201 || string(first.body) != string(again.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Fatalf("%s\n%s", first.body, again.body)
		}
		if a := s.do(s.b1, "GET", base+"/webhooks/"+first.text(t, "id"), ""); strings.Contains(string(a.body), "secret") || !strings.Contains(string(a.body), `"plan.created"`) {
			t.Errorf("%s", a.body)
		}
		for i := range 20 {
			a := s.do(s.b1, "POST", base+"/webhooks", fmt.Sprintf(`{"url":"https://example.com/%d"}`, i))
			if i < 19 && a.status != 201 || i == 19 && (a.status != 409 || a.code() != "BCK.WEBHOOK.0903") {
				t.Fatalf("%d: %d %s", i, a.status, a.body)
			}
		}
	})
}
