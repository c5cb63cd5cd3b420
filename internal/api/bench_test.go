package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// nowhere is a response writer that keeps nothing but what it must.
type nowhere struct {
	h      http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(s int)           { n.status = s }

func benchmark(b *testing.B, method, path, key string, body func(i int) string) {
	b.Helper()
	s := newStack(b)
	handler := s.handler
	plan := s.plan(s.b1, strings.Replace(freePlan, "100", "1000000000", 1))
	token, _ := s.token(s.s1, plan)
	_ = s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	if key == "b1" {
		key = s.b1.key
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		var text string
		if body != nil {
			text = strings.NewReplacer("{plan}", plan, "{token}", token).Replace(body(i))
		}
		r := httptest.NewRequest(method, strings.ReplaceAll(path, "{plan}", plan), strings.NewReader(text))
		if key != "" {
			r.Header["Authorization"] = []string{"Bearer " + key}
		}
		r.Header["Content-Type"] = []string{"application/json"}
		w := &nowhere{h: http.Header{}}
		handler.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatalf("status %d", w.status)
		}
		i++
	}
}

func BenchmarkHealth(b *testing.B) { benchmark(b, "GET", "/health", "", nil) }

// A search reads all pages. The query "a" is in most sections.
func BenchmarkSearchDocs(b *testing.B) { benchmark(b, "GET", "/docs/search?q=a", "", nil) }

func BenchmarkVerify(b *testing.B) {
	benchmark(b, "POST", base+"/x402/verify", "b1", func(int) string { return paymentBody("{plan}", "{token}", "") })
}

func BenchmarkSettle(b *testing.B) {
	benchmark(b, "POST", base+"/x402/settle", "b1", func(i int) string {
		return paymentBody("{plan}", "{token}", `,"agentRequestId":"r`+fmt.Sprint(i)+`"`)
	})
}

// BenchmarkRequest is what the benchmarks above spend on making a request.
func BenchmarkRequest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", base+"/x402/verify", strings.NewReader(paymentBody("1", "2", "")))
		r.Header["Authorization"] = []string{"Bearer x"}
		r.Header["Content-Type"] = []string{"application/json"}
		w := &nowhere{h: http.Header{}}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = w
	}
}
