package paid_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// FuzzPaymentHeaders offers arbitrary credentials on arbitrary paths: a handler runs only for one good token, what leaves is
// either settled or free of content, and no header or path makes the gate panic.
func FuzzPaymentHeaders(f *testing.F) {
	good := x402.EncodeToken(token, x402.Requirements{Scheme: "svc:erc4337", Network: "eip155:84532", PlanID: string(plan)}, x402.Authorization{}, "n-1")
	for _, s := range [][5]string{
		{"/ask", token, "", "", ""}, {"/ask", good, "", "", ""}, {"/ask", token, token, "", ""}, {"/ask", token, "b3RoZXI.b3RoZXI.b3RoZXI", "", ""},
		{"/ask", token, "", "e30=", ""}, {"/ask", "", "", "", "Bearer " + token}, {"//x/../ask", "{}", "", "", ""}, {"/ask%2f", token, "", "", ""},
		{"/ask", `{"x402Version":1}`, "", "", "Basic dTpw"}, {"/a\x00sk", token + "," + token, "", "", ""}, {"/ask", "eyJ4NDAyVmVyc2lvbiI6Mn0", "", "", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4])
	}
	f.Fuzz(func(t *testing.T, path, sig1, sig2, v1, auth string) {
		d := newDesk(2)
		runs := 0
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			if r.Header.Get("payment-signature") != "" {
				t.Error("the handler sees a credential")
			}
			_, _ = w.Write([]byte(content))
		}), paid.Plan(plan), paid.Credits(2), paid.TokenHeaders("payment-signature", "authorization"))
		r := httptest.NewRequest("POST", "/", nil)
		r.URL.Path, r.URL.RawPath, r.RequestURI = path, "", ""
		for name, v := range map[string]string{"Payment-Signature": sig1, "X-Payment": v1, "Authorization": auth} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		if sig2 != "" {
			r.Header.Add("Payment-Signature", sig2)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		served := strings.Contains(w.Body.String(), content)
		if served != (w.Code == 200) || served != (d.burned == 2) || runs > 1 || (runs == 1) != served || d.held != 0 {
			t.Errorf("status %d, %d runs, burned %d, held %d", w.Code, runs, d.burned, d.held)
		}
		if served && sig2 != "" {
			t.Error("two credentials were taken")
		}
		for name, values := range w.Header() {
			for _, v := range values {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("%s: %q", name, v)
				}
			}
		}
	})
}
