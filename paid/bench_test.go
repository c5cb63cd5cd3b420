package paid_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// BenchmarkPaid is what a paid request costs besides the service: the token, the 402 that is ready, strip, hold, answer.
func BenchmarkPaid(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })
	for name, value := range map[string]string{"jwt": token, "x402": x402.EncodeToken(token, x402.Requirements{PlanID: string(plan)}, x402.Authorization{}, "n-1")} {
		d := newDesk(1 << 40)
		h := paid.Handler(d, answer, paid.Plan(plan), paid.Agent(agent), paid.Credits(2), paid.PublicURL("https://agent.example.com"),
			paid.Log(slog.New(slog.DiscardHandler)))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "/ask", nil)
				r.Header.Set(sig, value)
				r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36")
				r.Header.Set("Accept", "application/json")
				r.Header.Set("Cookie", "session=0123456789abcdef; theme=dark")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
				d.requests = map[string]*request{} // as many as there are make the desk slow
			}
		})
	}
}

// BenchmarkUnpaid is the 402 for a request that brings no payment, with which every standard client begins.
func BenchmarkUnpaid(b *testing.B) {
	h := paid.Handler(newDesk(1), http.NotFoundHandler(), paid.Plan(plan), paid.Agent(agent), paid.Credits(2),
		paid.PublicURL("https://agent.example.com"), paid.Log(slog.New(slog.DiscardHandler)))
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/ask", nil)
		r.Header.Set("Accept", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusPaymentRequired {
			b.Fatal(w.Code, w.Body)
		}
	}
}
