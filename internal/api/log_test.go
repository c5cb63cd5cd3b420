package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// What the service cannot answer is one line in its log, under the id that the caller got.
func TestFaultIsLoggedOnce(t *testing.T) {
	st, _ := storetest.Open(t, store.Postgres)
	s := newStackOn(t, st)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	if a := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, "")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "ALTER TABLE accounts RENAME TO gone")
		return err
	}))
	for i, path := range []string{"/x402/verify", "/x402/settle"} {
		a := s.do(s.b1, "POST", base+path, paymentBody(plan, token, `,"hold":true`), "X-Correlation-Id", "look"+path)
		if a.status != 500 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		var lines []string
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, "level=ERROR") {
				lines = append(lines, line)
			}
		}
		if len(lines) != i+1 || !strings.Contains(lines[i], "correlationId=look"+path) || !strings.Contains(lines[i], "accounts") {
			t.Errorf("%s: %s", path, strings.Join(lines, ""))
		}
	}
}

// A client that disconnects while its checkout waits for a payment page is not an error of the service.
func TestLog_DisconnectedCheckout(t *testing.T) {
	c := newScene(t)
	c.card.Behave(railtest.Behaviour{Hang: true})
	ctx, disconnect := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer disconnect()
	req := must.Get(http.NewRequestWithContext(ctx, "POST", c.stack.url+base+"/protocol/plans/"+c.fiat+"/checkout", nil))(t)
	req.Header.Set("Authorization", "Bearer "+c.b2.key)
	if res, err := plainClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Fatalf("the checkout answered %d while the rail hangs", res.StatusCode)
	}
	for end := time.Now().Add(long); !strings.Contains(c.stack.log.String(), string(toll.CodeCardUnreachable)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the call did not end")
		}
	}
	for line := range strings.Lines(c.stack.log.String()) {
		if strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
	}
}
