package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// slowHosts answer requests for documents when the test ends.
func slowHosts(t *testing.T, n int) (urls []string) {
	t.Helper()
	end := make(chan struct{})
	for range n {
		h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		t.Cleanup(h.Close)
		urls = append(urls, h.URL)
	}
	t.Cleanup(func() { close(end) }) // before the hosts close
	return urls
}

// documentHost serves the document of a program at once.
func documentHost(t *testing.T) (id string) {
	t.Helper()
	var h *httptest.Server
	h = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"client_id": h.URL + r.URL.Path, "client_name": "Honest", "redirect_uris": []string{h.URL + "/cb"}})
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// TestSlowHosts: programs whose documents do not come delay the sign-ins of their own source and nobody else's, however many hosts
// they name; and one host delays only those who ask for it.
// T121
func TestSlowHosts(t *testing.T) {
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.LoopbackWebhooks, c.TrustedProxies = true, "127.0.0.0/8" })
	hosts, honest := slowHosts(t, 4), documentHost(t)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var refused, began atomic.Int32
	ask := func(ctx context.Context, from, id, redirect string) *http.Response {
		q := p.request("client_id", id, "redirect_uri", redirect)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/oauth/authorize?"+q.Encode(), nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		req.Header.Set("X-Forwarded-For", from)
		began.Add(1)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return nil // the test ended it
		}
		_ = res.Body.Close()
		return res
	}
	for i := range 60 { // of one address, to four hosts
		flood.Go(func() {
			if res := ask(ctx, "192.0.2.1", fmt.Sprintf("%s/a%d.json", hosts[i%4], i), "https://x.example.com/"); res != nil && res.StatusCode == http.StatusBadRequest {
				refused.Add(1)
			}
		})
	}
	for i := range 30 { // of many addresses, to one host
		flood.Go(func() {
			ask(ctx, fmt.Sprintf("198.51.100.%d", i), fmt.Sprintf("%s/b%d.json", hosts[0], i), "https://x.example.com/")
		})
	}
	for until := time.Now().Add(20 * time.Second); began.Load() < 90 || refused.Load() < 60-maxOfSource; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("%d of %d requests of one address are refused", refused.Load(), 60)
			break
		}
	}
	var took []time.Duration
	for i := range 5 {
		id, start := fmt.Sprintf("%s/c%d.json", honest, i), time.Now()
		res := ask(t.Context(), "203.0.113.7", id, honest+"/cb")
		if res == nil || res.StatusCode != http.StatusOK {
			t.Fatalf("an honest sign-in: %+v", res)
		}
		took = append(took, time.Since(start))
	}
	if slices.Sort(took); took[2] > 2*time.Second { // a machine that stalls delays one of them
		t.Errorf("honest sign-ins took %v", took)
	}
}

// maxOfSource is how many requests of one source may fetch documents or wait for it.
const maxOfSource = 2 + 16

// TestConsentsAndSignIns: what a person lets in, what programs renew, and how often one signs in leaves rows as well.
// T177
func TestConsentsAndSignIns(t *testing.T) {
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.Quotas.Permissions = 3 }) // one is there already
	got := p.exchange(p.code())
	if got = p.refresh(got.Refresh); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	// The consent stays as it is: the program comes again later.
	if a := p.refresh(got.Refresh); a.status != http.StatusTooManyRequests || a.Error != "temporarily_unavailable" {
		t.Errorf("beyond the quota of permissions: %+v", a)
	}
	if !p.pays(got.Access, 1) {
		t.Error("the access token is revoked")
	}

	auth, err := p.s.OAuth().Authorize(t.Context(), p.request())
	must.Do(t, err)
	n := 1 // the one above
	for ; n < 700; n++ {
		if _, err = p.s.OAuth().Approve(t.Context(), auth, personOf(p.buyer), p.choice(1)); err != nil {
			break
		}
	}
	if e := toll.AsError(err); e == nil || e.Code != toll.CodeRateLimited || e.Params["limit"] != int64(600) || n < 600 || n > 610 {
		t.Errorf("after %d consents: %v", n, err)
	}
	status := http.StatusSeeOther
	for n = 0; n < 700 && status == http.StatusSeeOther; n++ {
		status = newVisitor(t, p.url).post("/sign-in", url.Values{"api_key": {p.buyerKey}}).status
	}
	if status != http.StatusTooManyRequests || n < 600 || n > 610 {
		t.Errorf("after %d sign-ins: %d", n, status)
	}
}
