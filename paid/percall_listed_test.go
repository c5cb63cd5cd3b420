package paid_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// office is a till that bounds what it reads, as the service does, and may be slow.
type office struct {
	*till
	asked int
	slow  bool
}

func (f *office) Offers(ctx context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	f.asked++
	if f.slow {
		<-ctx.Done()
		return nil, toll.NewError(toll.CodeUnavailable)
	}
	if text, err := x402.Encode(req); err != nil || len(text) > 8<<10 {
		return nil, toll.NewError(toll.CodeBadRequest)
	}
	return f.till.Offers(ctx, req)
}

func (f *office) handler(t *testing.T) http.Handler {
	log, _ := logs(t)
	return paid.Handler(f, &work{t: t}, paid.Plan(plan), cents, paid.PublicURL("https://agent.example.com"), log)
}

// entries returns how many entries the 402 to a request has.
func entries(t *testing.T, h http.Handler, method, target string) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return len(challenge(t, reply{w.Code, w.Header(), w.Body.String(), nil}).Entries)
}

// Whether the service settles the entries of a route is no matter of the request that happened to ask: nobody can have them left out
// for others by what he sends.
func TestPerCall_ListedForAll(t *testing.T) {
	for name, c := range map[string][2]string{
		"a long query":  {"GET", "/ask?" + strings.Repeat("q", 8000)},
		"a long method": {strings.Repeat("M", 9000), "/ask"},
	} {
		h := (&office{till: newTill()}).handler(t)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c[0], c[1], nil))
		if n := entries(t, h, "GET", "/ask"); w.Code != 402 || n != 2 {
			t.Errorf("%s: %d, then %d entries", name, w.Code, n)
		}
	}
}

// While the service does not answer, one request waits for it at a time, and the others go by what was known.
func TestPerCall_SlowToList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &office{till: newTill()}
		h := f.handler(t)
		step := func(entriesOf, asked int) {
			t.Helper()
			if got := entries(t, h, "GET", "/ask"); got != entriesOf || f.asked != asked {
				t.Errorf("%d entries after %d questions, want %d after %d", got, f.asked, entriesOf, asked)
			}
		}
		step(2, 1)
		f.slow = true
		time.Sleep(6 * time.Minute)
		step(2, 2)
		step(2, 2) // the question took longer than the pause after it
		time.Sleep(6 * time.Second)
		done := make(chan int, 1)
		go func() { done <- entries(t, h, "GET", "/ask") }()
		synctest.Wait()
		began := time.Now()
		if step(2, 3); !time.Now().Equal(began) {
			t.Error("a request waited for the question of another one")
		}
		if n := <-done; n != 2 {
			t.Errorf("who asked has %d entries", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &office{till: newTill()}
		h := f.handler(t)
		both := make(chan int, 2)
		for range 2 {
			go func() { both <- entries(t, h, "GET", "/ask") }()
		}
		if a, b := <-both, <-both; a != 2 || b != 2 || f.asked != 1 {
			t.Errorf("at the start: %d and %d entries after %d questions", a, b, f.asked)
		}
	})
}

// An url that the service does not take, as no offer of it could be signed, does not keep the offers from others.
func TestOffers_ForAll(t *testing.T) {
	for name, query := range map[string]string{"long": strings.Repeat("q", 8<<10-len("/ask?")), "not text": strings.Repeat("\xff", 4<<10)} {
		now := time.Unix(1_795_226_400, 0)
		log, lines := logs(t)
		h := paid.Handler(&office{till: newTill()}, &work{t: t}, paid.Plan(plan), paid.PublicURL("https://agent.example.com"), log, paid.Offers(true),
			paid.Clock(func() time.Time { return now }))
		offers := func(query string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/ask", nil)
			r.URL.RawQuery = query
			h.ServeHTTP(w, r)
			return len(x402.Offers(challenge(t, reply{w.Code, w.Header(), w.Body.String(), nil}).Extensions))
		}
		offers(query)
		now = now.Add(time.Second)
		if n := offers(""); n != 1 {
			t.Errorf("%s: then %d offers: %s", name, n, lines)
		}
	}
}
