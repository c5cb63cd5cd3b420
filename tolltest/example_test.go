package tolltest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
)

// A paid handler against a real service. In a test it is tolltest.New(t), which closes itself.
func Example() {
	svc, err := tolltest.Start()
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	ask := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "forty-two") })
	h := paid.Handler(svc.Facilitator(), ask, paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(2))

	ann := svc.Subscriber(3)
	for range 2 {
		req := httptest.NewRequest(http.MethodGet, "/ask", nil)
		req.Header.Set("payment-signature", ann.AccessToken)
		res := httptest.NewRecorder()
		h.ServeHTTP(res, req)
		fmt.Println(res.Code, "and", ann.Balance().Text(), "left")
	}
	// Output:
	// 200 and 1 credit left
	// 402 and 1 credit left
}
