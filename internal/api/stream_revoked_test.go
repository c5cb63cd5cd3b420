package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
)

// A live stream ends with the API key that opened it: no event reaches a key that was revoked.
// T13
func TestStreamOfRevokedKey(t *testing.T) {
	s := newStack(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	inTheBackground(t, s)
	second := s.keyOf(s.b1.address, "")
	req := must.Get(http.NewRequestWithContext(ctx, "GET", s.url+base+"/events/stream", nil))(t)
	req.Header.Set("Authorization", "Bearer "+second.key)
	res := must.Get(plainClient.Do(req))(t)
	defer func() { _ = res.Body.Close() }()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	next := func() (string, bool) {
		for {
			select {
			case l, ok := <-lines:
				if !ok || strings.HasPrefix(l, "event: ") {
					return l, ok
				}
			case <-time.After(long):
				t.Fatal("nothing comes")
			}
		}
	}
	s.plan(s.b1, freePlan)
	if l, ok := next(); !ok || l != "event: plan.created" {
		t.Fatalf("%q %v", l, ok)
	}
	if a := s.do(s.b1, "DELETE", base+"/api-keys/"+second.keyID.String(), ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.plan(s.b1, freePlan)
	if l, ok := next(); ok {
		t.Errorf("the revoked key gets %q", l)
	}
}
