package paid_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// A handler behind a price: without a payment it does not run, with one its answer carries a receipt. The desk stands in for
// client.New or tolltest.New.
func Example() {
	f := newDesk(10)
	ask := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := paid.FromContext(r.Context())
		fmt.Fprintf(w, "hello %.6s, %s credits are set aside", p.Payer, p.Held)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /ask", paid.Handler(f, ask, paid.Plan(plan), paid.Agent(agent), paid.Credits(2)))

	call := func(accessToken string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/ask", nil)
		if accessToken != "" {
			r.Header.Set("payment-signature", accessToken)
		}
		mux.ServeHTTP(w, r)
		return w
	}
	w := call("")
	fmt.Println(w.Code, w.Header().Get("payment-required") != "")

	w = call(token)
	var receipt x402.SettleResponse
	if err := x402.DecodeHeader(w.Header().Get("payment-response"), &receipt); err != nil {
		fmt.Println(err)
	}
	fmt.Println(w.Code, w.Body)
	fmt.Println(receipt.CreditsRedeemed, "burned,", receipt.RemainingBalance, "left")
	// Output:
	// 402 true
	// 200 hello 0xf39F, 2 credits are set aside
	// 2 burned, 8 left
}

// A function prices the answer after the work is done, within what was held.
func ExampleCreditsFunc() {
	f := newDesk(10)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Query().Get("q")) })
	h := paid.Handler(f, echo, paid.Plan(plan), paid.MaxCredits(5), paid.CreditsFunc(func(r *http.Request, resp paid.Response) toll.Credits {
		return toll.Credits(len(strings.Fields(string(resp.Body)))) // one credit a word
	}))
	for _, q := range []string{"two+words", "a+sentence+that+costs+more+than+five+credits"} {
		r := httptest.NewRequest("GET", "/?q="+q, nil)
		r.Header.Set("payment-signature", token)
		h.ServeHTTP(httptest.NewRecorder(), r)
		fmt.Println(f.burned, "burned in all")
	}
	// Output:
	// 2 burned in all
	// 7 burned in all
}

// A wallet that has no plan pays for one answer in USDC. Any x402 client does that; here its payment is made by hand. The till stands
// in for client.New or tolltest.New.
func ExamplePerCall() {
	f := newTill()
	ask := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := paid.FromContext(r.Context())
		fmt.Fprintf(w, "hello %.6s, for %s base units", p.Payer, p.Exact.Amount)
	})
	h := paid.Handler(f, ask, paid.Plan(plan), paid.Credits(2), paid.PerCall(
		paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)}, // 0.02 USDC, to the receiver of the plan
	))
	call := func(payment string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/ask", nil)
		r.Header.Set("payment-signature", payment)
		h.ServeHTTP(w, r)
		return w
	}
	asked, err := x402.ReadChallenge(call("").Header(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range asked.Entries {
		fmt.Println(e.Scheme, e.Amount)
	}
	wallet := x402.ExactAuthorization{
		From: toll.MustAddress(payer), To: toll.MustAddress(asked.Entries[1].PayTo), Value: toll.UnitsOf(20_000), ValidBefore: toll.UnitsOf(1_795_230_000),
	}
	payment, err := asked.Answer(&asked.Entries[1], &x402.ExactPayload{Authorization: wallet, Signature: "0x00"}, "")
	fmt.Println(call(payment).Body, err)
	// Output:
	// svc:erc4337 2
	// exact 20000
	// hello 0xf39F, for 20000 base units <nil>
}

// A price list in front of a router.
func ExampleRoutes() {
	router := http.NewServeMux()
	router.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	router.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "report ", r.PathValue("id")) })
	h := paid.Routes(newDesk(10), router,
		paid.With(paid.Plan(plan), paid.PublicURL("https://agent.example.com")),
		paid.At("GET /reports/:id", paid.Credits(3)),
	)
	for _, path := range []string{"/health", "/reports/7", "//reports/./7"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /health 200
	// /reports/7 402
	// //reports/./7 402
}
