package traces_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhq/toll/internal/traces"
)

type answered struct{}

func (answered) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }

// Without a tracer nothing is allocated, by spans, by requests, or by calls to others.
func TestOff(t *testing.T) {
	ctx := t.Context()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	to := traces.Transport(answered{})
	for name, f := range map[string]func(){
		"span": func() {
			in, span := traces.Start(ctx, "order.place", "1")
			span.End(nil)
			if in != ctx {
				t.Error("another context")
			}
		},
		"request": func() { traces.Request(ctx, "settle", "1") },
		"call":    func() { _, _ = to.RoundTrip(r) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
