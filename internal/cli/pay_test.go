package cli

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// TestReview5_DelegationsNeedAPlan: what a delegation buys is for the caller to choose, and not for the server that is called.
func TestReview5_DelegationsNeedAPlan(t *testing.T) {
	f := callFlags{pay: true, in: body{"delegation": "purse"}}
	if err := f.check(); err == nil {
		t.Error("a delegation without a plan is taken")
	}
	f.in["plan"] = toll.PlanID("4474")
	must.Check(t, f.check())
}
