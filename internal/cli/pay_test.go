package cli

import "testing"

// TestReview5_DelegationsNeedAPlan: what a delegation buys is for the caller to choose, and not for the server that is called.
func TestReview5_DelegationsNeedAPlan(t *testing.T) {
	p := payFlags{on: true, delegation: "purse"}
	if err := p.check(callFlags{}); err == nil {
		t.Error("a delegation without a plan is taken")
	}
	if err := p.check(callFlags{plan: "4474"}); err != nil {
		t.Error(err)
	}
}
