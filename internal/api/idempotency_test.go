package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// creating are bodies of every call that takes an Idempotency-Key on this stack, with another body of the same route.
func (s *stack) creating() map[string]struct{ path, body, other, id string } {
	free := s.plan(s.b1, freePlan)
	return map[string]struct{ path, body, other, id string }{
		"plan":  {"/protocol/plans", freePlan, strings.Replace(freePlan, "Free", "Gratis", 1), "planId"},
		"agent": {"/protocol/agents", `{"name":"Ask <b>&","endpoints":[{"POST":"https://a.example.com/ask"}],"plans":["` + free + `"]}`, `{"name":"Other"}`, "agentId"},
		"both": {
			"/protocol/agents/plans", `{"plan":` + freePlan + `,"agent":{"name":"Ask","endpoints":[{"POST":"https://a.example.com/ask"}]}}`,
			`{"plan":` + freePlan + `,"agent":{"name":"Other"}}`, "agentId",
		},
		"key":  {"/api-keys", `{"name":"one"}`, `{"name":"two"}`, "key"},
		"mint": {"/protocol/plans/mint", `{"planId":"` + free + `","amount":7,"creditsReceiver":"` + s.s1.address.String() + `"}`, `{"planId":"` + free + `","amount":8,"creditsReceiver":"` + s.s1.address.String() + `"}`, "txHash"},
		"mint that ends": {
			"/protocol/plans/mintExpirable", `{"planId":"` + free + `","creditsAmount":7,"creditsDuration":60,"creditsReceiver":"` + s.s1.address.String() + `"}`,
			`{"planId":"` + free + `","creditsAmount":8,"creditsReceiver":"` + s.s1.address.String() + `"}`, "txHash",
		},
		"order":      {"/protocol/plans/" + free + "/order", ``, `{"delegationId":"6c0aa0a6-62f5-4b1c-9d50-6f5b1c1f2a11"}`, "orderId"},
		"permission": {"/x402/permissions", `{"planId":"` + free + `"}`, `{"planId":"` + free + `","redemptionLimit":1}`, "accessToken"},
	}
}

// T40
func TestCreateRequestsRepeated(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		for name, call := range s.creating() {
			t.Run(name, func(t *testing.T) {
				path := base + call.path
				const key = "order-of-2026-11-21/one?"
				first := s.do(s.b1, "POST", path, call.body, "Idempotency-Key", key)
				if first.status >= 300 || first.header.Get("Idempotency-Replayed") != "" || first.text(t, call.id) == "" {
					t.Fatalf("first: %d %s", first.status, first.body)
				}
				again := s.do(s.b1, "POST", path, call.body, "Idempotency-Key", key)
				if again.status != first.status || again.header.Get("Idempotency-Replayed") != "true" || !bytes.Equal(again.body, first.body) {
					t.Errorf("again: %d %v\n%s\n%s", again.status, again.header, again.body, first.body)
				}
				if spaced := strings.ReplaceAll(call.body, `":`, `" : `); spaced != "" {
					again = s.do(s.b1, "POST", path, spaced, "Idempotency-Key", key)
					if again.text(t, call.id) != first.text(t, call.id) {
						t.Errorf("with blanks: %d %s", again.status, again.body)
					}
				}
				if other := s.do(s.b1, "POST", path, call.other, "Idempotency-Key", key); other.status != 409 || other.code() != "BCK.COMMON.0901" {
					t.Errorf("another body: %d %s", other.status, other.body)
				}
				without := s.do(s.b1, "POST", path, call.body)
				if without.text(t, call.id) == first.text(t, call.id) {
					t.Errorf("without a key: the same %s", without.body)
				}
				s.clock.advance(24*time.Hour + time.Second)
				late := s.do(s.b1, "POST", path, call.body, "Idempotency-Key", key)
				if late.status != first.status || late.header.Get("Idempotency-Replayed") != "" || late.text(t, call.id) == first.text(t, call.id) {
					t.Errorf("a day later: %d %s", late.status, late.body)
				}
			})
		}
	})
}

// A key means what it means for its caller and its path alone.
// T40
func TestKeyOfAnother(t *testing.T) {
	s := newStack(t)
	with := []string{"Idempotency-Key", "k"}
	mine := s.do(s.b1, "POST", base+"/protocol/plans", freePlan, with...)
	theirs := s.do(s.b2, "POST", base+"/protocol/plans", freePlan, with...)
	if mine.text(t, "planId") == theirs.text(t, "planId") || theirs.status != 200 || theirs.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("two callers: %s, %s", mine.body, theirs.body)
	}
	if a := s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"A"}`, with...); a.status != 200 {
		t.Errorf("another path: %d %s", a.status, a.body)
	}
	one, two := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan)
	for _, id := range []string{one, two} {
		if a := s.do(s.s1, "POST", base+"/protocol/plans/"+id+"/order", "", with...); a.status != 200 || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("order of %s: %d %s", id, a.status, a.body)
		}
	}
	// A second API key of the account is the same caller.
	second := s.keyOf(s.b1.address, "")
	if a := s.do(second, "POST", base+"/protocol/plans", freePlan, with...); a.text(t, "planId") != mine.text(t, "planId") {
		t.Errorf("another API key of the caller: %s", a.body)
	}
}

// What fails is not kept: the call is free to succeed later.
func TestIdempotencyOfFailure(t *testing.T) {
	s := newStack(t)
	with := []string{"Idempotency-Key", "k"}
	if a := s.do(s.b1, "POST", base+"/protocol/plans", `{"name":1}`, with...); a.status != 400 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.do(s.b1, "POST", base+"/protocol/plans", freePlan, with...); a.status != 200 {
		t.Errorf("after a failure: %d %s", a.status, a.body)
	}
	for _, bad := range [][]string{
		{"Idempotency-Key", ""}, {"Idempotency-Key", strings.Repeat("k", 256)}, {"Idempotency-Key", "two words"}, {"Idempotency-Key", "käse"},
		{"Idempotency-Key", "a", "Idempotency-Key", "a"},
	} {
		if a := s.do(s.b1, "POST", base+"/protocol/plans", freePlan, bad...); a.status != 400 || a.code() != string(toll.CodeBadRequest) {
			t.Errorf("%.20q: %d %s", bad, a.status, a.body)
		}
	}
	if a := s.do(s.b1, "POST", base+"/protocol/plans", freePlan, "Idempotency-Key", strings.Repeat("k", 255)); a.status != 200 {
		t.Errorf("255 characters: %d %s", a.status, a.body)
	}
	if a := s.do(actor{}, "POST", base+"/protocol/plans", freePlan, with...); a.status != 401 {
		t.Errorf("without an API key: %d %s", a.status, a.body)
	}
}

// Fifty at once, on two instances of one database: one object, fifty answers.
// T40
func TestIdempotency_Raced(t *testing.T) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			st, _ := storetest.Open(t, engine)
			s := newStackOn(t, st)
			instances := []*stack{s, s}
			if engine == store.Postgres {
				instances[1] = newStackOn(t, st)
			}
			for name, call := range s.creating() {
				t.Run(name, func(t *testing.T) {
					answers := make([]answer, 50)
					var wait sync.WaitGroup
					for i := range answers {
						wait.Go(func() {
							answers[i] = instances[i%2].do(s.b1, "POST", base+call.path, call.body, "Idempotency-Key", "raced")
						})
					}
					wait.Wait()
					first := 0
					for _, a := range answers {
						if a.status >= 300 || a.text(t, call.id) != answers[0].text(t, call.id) {
							t.Fatalf("%d %s, not %s", a.status, a.body, answers[0].body)
						}
						if a.header.Get("Idempotency-Replayed") == "" {
							first++
						}
					}
					if first != 1 {
						t.Errorf("%d calls created", first)
					}
				})
			}
			keys := s.do(s.b1, "GET", base+"/api-keys", "")
			if n := strings.Count(string(keys.body), `"name":"one"`); n != 1 {
				t.Errorf("%d API keys: %s", n, keys.body)
			}
		})
	}
}

// The text of a new API key is in its answer, and nowhere in the database but sealed.
func TestStoredAnswerIsSealed(t *testing.T) {
	s := newStack(t)
	a := s.do(s.b1, "POST", base+"/api-keys", `{}`, "Idempotency-Key", "sealed")
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	row := s.store.QueryRow(t.Context(), "SELECT answer FROM idempotency_keys")
	var sealed []byte
	must.Do(t, row.Scan(&sealed))
	if _, jwt, _ := strings.Cut(a.text(t, "key"), ":"); len(sealed) < 200 || bytes.Contains(sealed, []byte(jwt[:20])) {
		t.Error("the stored answer is not sealed")
	}
	n := must.Get(store.DropAnswers(t.Context(), s.store, s.clock.now(), 10))(t)
	later := must.Get(store.DropAnswers(t.Context(), s.store, s.clock.now().Add(time.Microsecond), 10))(t)
	if n != 0 || later != 1 {
		t.Errorf("dropped %d, then %d", n, later)
	}
}
