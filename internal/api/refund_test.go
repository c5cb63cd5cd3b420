package api_test

import "testing"

// A refund without an amount gives the whole price back. So a request whose amount is misspelt or
// null is refused, and is not taken for one without an amount.
func TestRefundStrict(t *testing.T) {
	s, _, _ := newPaidStack(t)
	order := s.do(s.s1, "POST", base+"/protocol/plans/"+s.plan(s.b1, freePlan)+"/order", "").text(t, "orderId")
	for body, want := range map[string]int{
		`{"amount_cents":"50"}`: 400, `{"amount":50}`: 400, `{"AMOUNTCENTS":"50"}`: 400, `{"amountCents": null }`: 400,
		`{"amountCents":"50","note":"x"}`: 400, `null`: 400, `{}`: 409, ``: 409, `{"amountCents":"50"}`: 409,
	} {
		a := s.do(s.b1, "POST", base+"/protocol/orders/"+order+"/refund", body)
		if code := a.text(t, "code"); a.status != want || want == 400 && code != "BCK.HTTP.400" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
