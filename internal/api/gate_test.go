package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/auth"
)

// An answer that the gate of an older version cannot reshape does not leave half reshaped.
func TestGateFailure(t *testing.T) {
	h := newHandler(Deps{}, []route{{
		op: "readPermission", method: "GET", path: "/x", auth: open, right: public, tag: "Test",
		action: reads(func(*call) (string, error) { return "canary of the inside", nil }),
	}})
	h.authenticate = func(context.Context, []string) (auth.Caller, error) { return auth.Caller{}, nil }
	for version, status := range map[string]int{"1.0": 500, "1.1": 200} {
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		r.Header.Set("Service-Version", version)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != status || status == 500 && (!strings.Contains(w.Body.String(), `"code":"BCK.VERSION.0002"`) || strings.Contains(w.Body.String(), "canary")) {
			t.Errorf("%s: %d %s", version, w.Code, w.Body)
		}
	}
}
