package paid_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// worked402 is the payment-required value of the worked example of the x402 page.
const worked402 = "eyJ4NDAyVmVyc2lvbiI6MiwiZXJyb3IiOiJQYXltZW50IHJlcXVpcmVkIiwicmVzb3VyY2UiOnsidXJsIjoiaHR0cHM6Ly9hZ2VudC5leGFtcGxlLmNvbS9hc2siLCJkZXNjcmlwdGlvbiI6IkFzayB0aGUgYWdlbnQiLCJtaW1lVHlwZSI6ImFwcGxpY2F0aW9uL2pzb24ifSwiYWNjZXB0cyI6W3sic2NoZW1lIjoic3ZjOmVyYzQzMzciLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMyIiwiYW1vdW50IjoiNSIsImFzc2V0Ijoic3ZjOmNyZWRpdHMiLCJwYXlUbyI6IjB4NzA5OTc5NzBDNTE4MTJkYzNBMDEwQzdkMDFiNTBlMGQxN2RjNzlDOCIsIm1heFRpbWVvdXRTZWNvbmRzIjo2MCwicGxhbklkIjoiNDQ3NDI3NjMwNzYwNDc0OTc2NDAwODAyMzAyMzY3ODE0NzQxMjk5NzA5OTI3Mjc4OTY1OTM4NjE5OTczNDcxMzU2MTMxMzU1NzEwNzEiLCJleHRyYSI6eyJ2ZXJzaW9uIjoiMSIsInBsYW5JZCI6IjQ0NzQyNzYzMDc2MDQ3NDk3NjQwMDgwMjMwMjM2NzgxNDc0MTI5OTcwOTkyNzI3ODk2NTkzODYxOTk3MzQ3MTM1NjEzMTM1NTcxMDcxIiwiYWdlbnRJZCI6IjUwNjM3MzEwNTM5MzgwNzczOTk0OTQ3Nzk2Mjg2NjA2OTI2NDE5MzYyMjIzNTEzOTQwMzg1Mjg4NTk4OTU0NTQyMDM1Mzg5OTQ1ODk5IiwiaHR0cFZlcmIiOiJQT1NUIn19XSwiZXh0ZW5zaW9ucyI6eyJwYXltZW50LWlkZW50aWZpZXIiOnsiaW5mbyI6eyJyZXF1aXJlZCI6ZmFsc2V9LCJzY2hlbWEiOnsidHlwZSI6Im9iamVjdCIsInByb3BlcnRpZXMiOnsicmVxdWlyZWQiOnsidHlwZSI6ImJvb2xlYW4ifSwiaWQiOnsidHlwZSI6InN0cmluZyIsIm1pbkxlbmd0aCI6MTYsIm1heExlbmd0aCI6MTI4LCJwYXR0ZXJuIjoiXlthLXpBLVowLTlfLV0rJCJ9fSwicmVxdWlyZWQiOlsicmVxdWlyZWQiXX19fX0="

// askServer is the agent of the worked example: POST /ask for 5 credits.
func askServer(t *testing.T, f x402.Facilitator, h http.Handler, opts ...paid.Option) *httptest.Server {
	t.Helper()
	log, _ := logs(t)
	return serve(t, paid.Handler(f, h, append([]paid.Option{
		paid.Plan(plan), paid.Agent(agent), paid.Credits(5), paid.PublicURL("https://agent.example.com"),
		paid.Description("Ask the agent"), paid.MimeType("application/json"), log,
	}, opts...)...))
}

// The 402 of the worked example, byte for byte.
func TestWorked402(t *testing.T) {
	s := askServer(t, newDesk(100), &work{t: t})
	r := send(t, "POST", s.URL+"/ask")
	if got := r.header.Get("Payment-Required"); got != worked402 || len(got) != 1176 {
		t.Errorf("%d characters\n got %s\nwant %s", len(got), got, worked402)
	}
}

// payment is a PaymentPayload around the token, with these extensions.
func payment(extensions string) string {
	return `{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"payload":{"signature":"` + token + `","nonce":"n-1"},"extensions":` + extensions + `}`
}

func identified(id string) string {
	return base64.StdEncoding.EncodeToString([]byte(payment(`{"payment-identifier":{"info":{"required":false,"id":"` + id + `"}}}`)))
}

// A client may add to what the server advertised, and leave an extension out, but may not change it.
func TestEchoOfExtensions(t *testing.T) {
	d := newDesk(1000)
	h := &work{t: t}
	s := askServer(t, d, h)
	for extensions, ok := range map[string]bool{
		`{}`:                         true,
		`null`:                       true,
		`{"other":{"info":{"a":1}}}`: true,
		`{"payment-identifier":{"info":{"required":false}}}`:                                          true,
		`{"payment-identifier":{"schema":{},"info":{"x":[1],"required": false}}}`:                     true,
		`{"payment-identifier":{"info":{"required":false,"id":"pay_0123456789abcdef"}}}`:              true,
		`{"offer-receipt":{"info":{"offers":[]}},"payment-identifier":{"info":{"required":false}}}`:   true,
		`{"payment-identifier":{"info":{"required":true,"id":"pay_0123456789abcdef"}}}`:               false,
		`{"payment-identifier":{"info":{"id":"pay_0123456789abcdef"}}}`:                               false,
		`{"payment-identifier":{"info":{"required":"false","id":"pay_0123456789abcdef"}},"other":{}}`: false,
		`{"payment-identifier":{"info":{}}}`:                                                          false,
		`{"payment-identifier":{}}`:                                                                   false,
		`{"payment-identifier":null}`:                                                                 false,
	} {
		r := send(t, "POST", s.URL+"/ask", sig, base64.StdEncoding.EncodeToString([]byte(payment(extensions))))
		switch {
		case ok && r.status != 200:
			t.Errorf("%s: %d %s", extensions, r.status, r.body)
		case !ok && strings.Contains(extensions, `"false"`):
			r.isRefused(t, x402.ReasonInvalidPayload, toll.CodeTokenUndecodable)
		case !ok:
			r.isRefused(t, x402.ReasonEchoMismatch, toll.CodeBadRequirements)
		}
	}
	if runs := h.count(); runs != 7 || d.spent() != 35 {
		t.Errorf("%d runs, %d burned", runs, d.spent())
	}
}

// The header takes the payment in every rendering, and nothing of version 1.
func TestRenderingsOfThePayment(t *testing.T) {
	d := newDesk(1000)
	s := askServer(t, d, &work{t: t})
	// Bytes that have - and _ in the URL alphabet, + and / in the other.
	text := strings.Replace(payment(`{"other":{"info":{"text":"???>>>~~~ÿþ"}}}`), "n-1", "n~1", 1)
	padded := base64.StdEncoding.EncodeToString([]byte(text))
	if !strings.ContainsAny(padded, "+/") {
		t.Fatal("the example has no character in which the alphabets differ")
	}
	for name, value := range map[string]string{
		"JWS": token, "JSON": payment("{}"), "padded": padded, "unpadded": strings.TrimRight(padded, "="),
		"URL alphabet": base64.URLEncoding.EncodeToString([]byte(text)), "URL alphabet, unpadded": base64.RawURLEncoding.EncodeToString([]byte(text)),
	} {
		if r := send(t, "POST", s.URL+"/ask", sig, value); r.status != 200 || !r.receipt(t).Success {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	for name, value := range map[string]string{
		"junk": "%%%", "two dots too many": token + "..", "no JSON": base64.StdEncoding.EncodeToString([]byte("[1]")), "line": padded[:40] + " " + padded[40:],
	} {
		r := send(t, "POST", s.URL+"/ask", sig, value)
		if r.status != 402 {
			t.Errorf("%s: %d", name, r.status)
			continue
		}
		r.isRefused(t, x402.ReasonInvalidPayload, toll.CodeTokenUndecodable)
	}
	send(t, "POST", s.URL+"/ask", "X-PAYMENT", padded).isRefused(t, x402.ReasonInvalidVersion, toll.CodeBadX402Version)
	one := strings.Replace(payment("{}"), `"x402Version":2`, `"x402Version":1`, 1)
	send(t, "POST", s.URL+"/ask", sig, one).isRefused(t, x402.ReasonInvalidVersion, toll.CodeBadX402Version)
	if d.spent() != 30 {
		t.Errorf("burned %d", d.spent())
	}
}

// What standard clients send fits: 7 KB in one line pass, 12 and 20 KB do not.
func TestLongPayments(t *testing.T) {
	d := newDesk(1000)
	s := askServer(t, d, &work{t: t})
	for size, want := range map[int]int{7 << 10: 200, 12 << 10: 431, 20 << 10: 431} {
		text := payment(`{"other":{"info":{"x":"` + strings.Repeat("x", size*3/4-300) + `"}}}`)
		if r := send(t, "POST", s.URL+"/ask", sig, base64.StdEncoding.EncodeToString([]byte(text))); r.status != want {
			t.Errorf("%d bytes: %d", size, r.status)
		}
	}
}

// identifiers keeps the payment identifiers of a desk as the facilitator does: one request each.
type identifiers struct {
	*desk
	mu   sync.Mutex
	seen map[string]string // content by identifier
}

func (f *identifiers) verify(r *x402.VerifyRequest) *x402.VerifyResponse {
	t, err := x402.DecodeToken(r.AccessToken)
	if err != nil || t.PaymentIdentifier == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	content := fmt.Sprint(r.PaymentRequired.Resource.URL, *r.MaxAmount)
	switch earlier, ok := f.seen[t.PaymentIdentifier]; {
	case !ok:
		f.seen[t.PaymentIdentifier] = content
		return nil
	case earlier != content:
		return &x402.VerifyResponse{InvalidReason: x402.ReasonIdentifierConflict, Code: toll.CodeSettleConflict}
	}
	return &x402.VerifyResponse{InvalidReason: x402.ReasonDuplicate, Code: toll.CodeRequestUsed}
}

// TestPaymentIdentifier: new, repeated, other content, required but absent, and one id many times at once.
// T36
func TestPaymentIdentifier(t *testing.T) {
	d := newDesk(1000)
	f := &identifiers{desk: d, seen: map[string]string{}}
	d.answer = f.verify
	h := &work{t: t}
	s := askServer(t, d, h)
	strict := askServer(t, d, h, paid.RequirePaymentIdentifier())

	if r := send(t, "POST", s.URL+"/ask", sig, identified("pay_0123456789abcdef")); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	send(t, "POST", s.URL+"/ask", sig, identified("pay_0123456789abcdef")).isRefused(t, x402.ReasonDuplicate, toll.CodeRequestUsed)
	if r := send(t, "POST", s.URL+"/other", sig, identified("pay_0123456789abcdef")); r.status != 409 || r.header.Get("Payment-Required") != "" {
		t.Errorf("other content: %d %s", r.status, r.body)
	}
	required := func(id string) string {
		return strings.Replace(payment(`{"payment-identifier":{"info":{"required":true`+id+`}}}`), "n-1", "n-2", 1)
	}
	for name, value := range map[string]string{"absent": required(""), "no extension": payment("{}"), "bare token": token} {
		if r := send(t, "POST", strict.URL+"/ask", sig, value); r.status != 400 || strings.Contains(r.body, "accepts") {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	if r := send(t, "POST", strict.URL+"/ask"); r.status != 402 || !strings.Contains(r.body, `"payment-identifier":{"info":{"required":true}`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := send(t, "POST", strict.URL+"/ask", sig, required(`,"id":"pay_0123456789abcdeg"`)); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := send(t, "POST", s.URL+"/ask", sig, identified("pay_raced_0123456789"))
			mu.Lock()
			statuses[r.status]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if statuses[200] != 1 || statuses[402] != 19 || h.count() != 3 || d.spent() != 15 {
		t.Errorf("%v, %d runs, %d burned", statuses, h.count(), d.spent())
	}
}

// signing is a desk that signs offers: what it signs is the amount and the url.
type signing struct {
	*desk
	asked int
	fail  bool
	until time.Time
}

func (f *signing) Offers(_ context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	f.asked++
	if f.fail {
		return nil, toll.NewError(toll.CodeUnavailable)
	}
	r := req.PaymentRequired
	return &x402.OffersResponse{
		Offers:     []x402.SignedOffer{{Format: "jws", Signature: r.Accepts[0].Amount + " for " + r.Resource.URL}},
		ValidUntil: f.until.Unix(),
	}, nil
}

// A route with offers asks for them once a resource while they are good, not for each caller, and goes without them when nobody
// signs. A payment that repeats an older offer is as good as any.
func TestOffers(t *testing.T) {
	now := time.Unix(1_795_226_400, 0)
	f := &signing{desk: newDesk(1000), until: now.Add(5 * time.Minute)}
	s := askServer(t, f, &work{t: t}, paid.Offers(true), paid.Clock(func() time.Time { return now }))
	offered := func(path string) string {
		t.Helper()
		r := send(t, "POST", s.URL+path)
		var p x402.PaymentRequired
		if err := x402.DecodeHeader(r.header.Get("Payment-Required"), &p); err != nil || r.status != 402 || len(p.Extensions[x402.ExtensionPaymentIdentifier]) == 0 {
			t.Fatalf("%d %v %s", r.status, err, r.body)
		}
		if offers := x402.Offers(p.Extensions); len(offers) == 1 {
			return offers[0].Signature
		}
		return ""
	}
	step := func(d time.Duration, path, want string, asked int) {
		t.Helper()
		now = now.Add(d)
		if got := offered(path); got != want || f.asked != asked {
			t.Errorf("%s: %q, asked %d times; want %q, %d", path, got, f.asked, want, asked)
		}
	}
	const ask = "5 for https://agent.example.com/ask"
	step(0, "/ask", ask, 1)
	step(0, "/ask", ask, 1)
	step(0, "/other", "", 1) // so soon nobody asks again
	step(time.Second, "/other", "5 for https://agent.example.com/other", 2)
	step(3*time.Minute, "/ask", ask, 2)
	f.until = now.Add(10 * time.Minute)
	step(time.Minute, "/ask", ask, 3) // the end is near
	f.fail = true
	step(time.Second, "/third", "", 4)
	step(time.Second, "/third", "", 4) // paused
	f.fail = false
	step(10*time.Second, "/third", "5 for https://agent.example.com/third", 5)
	step(time.Second, "/long?"+strings.Repeat("q", 3000), "", 6) // an offer that does not fit is left out
	old := payment(`{"payment-identifier":{"info":{"required":false}},"offer-receipt":{"info":{"offers":[{"format":"jws","acceptIndex":0,"signature":"an older one"}]}}}`)
	if r := send(t, "POST", s.URL+"/ask", sig, old); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	without := askServer(t, f.desk, &work{t: t}, paid.Offers(true))
	if r := send(t, "POST", without.URL+"/ask"); r.status != 402 || strings.Contains(r.body, "offer-receipt") {
		t.Errorf("a facilitator that signs nothing: %d %s", r.status, r.body)
	}
}
