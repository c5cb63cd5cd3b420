package paid_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// TestReplay: a request is answered in place of the handler only after its access token was verified, and burns nothing. Otherwise it
// continues as usual.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct {
		refuse   *x402.VerifyResponse
		balance  toll.Credits
		responds bool
		status   int
		body     string
		burned   toll.Credits
		err      error
	}{
		"answered":                 {balance: 5, responds: true, status: 203, body: "earlier"},
		"answered without credits": {responds: true, status: 203, body: "earlier"},
		"an error":                 {balance: 5, responds: true, status: 409, err: toll.NewError(toll.CodeExists)},
		"not answered":             {balance: 5, status: 200, body: "data", burned: 2},
		"a revoked token": {balance: 5, responds: true, status: 402, refuse: &x402.VerifyResponse{
			InvalidReason: x402.Default.ReasonRevoked(), Code: toll.CodePermissionRevoked,
		}},
	} {
		d := newDesk(c.balance)
		d.refuse = c.refuse
		asked, ran := 0, 0
		s := paidServer(t, d, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ran++
			fmt.Fprint(w, "data")
		}), paid.Credits(2), paid.Replay(func(r *http.Request, sent string) (func(http.ResponseWriter) bool, error) {
			if asked++; sent != token || r.Header.Get(sig) != "" {
				t.Errorf("%s: the token is %q, and the request has %q", name, sent, r.Header.Get(sig))
			}
			return func(w http.ResponseWriter) bool {
				if c.responds {
					w.WriteHeader(203)
					fmt.Fprint(w, "earlier")
				}
				return c.responds
			}, c.err
		}))
		if r := send(t, "GET", s.URL); r.status != 402 || asked != 0 {
			t.Errorf("%s: without a token: %d, asked %d times", name, r.status, asked)
		}
		r := send(t, "GET", s.URL, sig, token)
		if r.status != c.status || c.body != "" && r.body != c.body || asked != 1 || ran != int(c.burned/2) {
			t.Errorf("%s: %d %q, asked %d times, ran %d times", name, r.status, r.body, asked, ran)
		}
		if d.spent() != c.burned || d.held != 0 {
			t.Errorf("%s: %d burned, %d held", name, d.spent(), d.held)
		}
	}
}
