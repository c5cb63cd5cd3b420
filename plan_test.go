package toll_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

func TestPlanKind(t *testing.T) {
	price := toll.Price{Amounts: []toll.Units{toll.UnitsOf(3), toll.UnitsOf(2)}}
	perCredit := price
	perCredit.TemplateAddress = toll.PayAsYouGoTemplate
	credits := toll.CreditsConfig{Amount: 10, MinAmount: 1, MaxAmount: 5}
	type rules struct {
		charges, needsPeriod, prepaid, addsUp, reorders bool
		covers                                          [4]bool // 4 and 5 credits without a lot that runs, then with one
	}
	for name, c := range map[string]struct {
		limit toll.AccessLimit
		price toll.Price
		want  rules
	}{
		"credits":                {toll.LimitCredits, price, rules{true, false, true, true, true, [4]bool{false, true, false, true}}},
		"credits, free":          {toll.LimitCredits, toll.Price{}, rules{true, false, true, true, false, [4]bool{false, true, false, true}}},
		"period":                 {toll.LimitTime, price, rules{false, true, true, false, true, [4]bool{false, false, true, true}}},
		"period, free":           {toll.LimitTime, toll.Price{}, rules{false, true, true, false, false, [4]bool{false, false, true, true}}},
		"pay as you go":          {toll.LimitCredits, perCredit, rules{true, false, false, false, true, [4]bool{false, true, false, true}}},
		"pay as you go, periods": {toll.LimitTime, perCredit, rules{false, true, false, false, true, [4]bool{false, false, true, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := toll.Plan{AccessLimit: c.limit, Price: c.price, Credits: credits}
			k := p.Kind()
			got := rules{k.Charges(), k.NeedsPeriod(), k.Prepaid(), k.AddsUp(), p.Reorders(), [4]bool{
				k.Covers(4, false, 5), k.Covers(5, false, 5), k.Covers(4, true, 5), k.Covers(5, true, 5),
			}}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			var covered bool
			if n := testing.AllocsPerRun(100, func() { k = p.Kind(); covered = k.Covers(5, covered, 5) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestPlan_MayOrder(t *testing.T) {
	trial, plan := toll.Plan{IsTrial: true}, toll.Plan{}
	if err := errors.Join(plan.MayOrder(9, true), trial.MayOrder(0, false)); err != nil || plan.LimitsOrders() || !trial.LimitsOrders() {
		t.Errorf("a first order of a trial, another of a plan: %v", err)
	}
	if err := trial.MayOrder(1, false); !errors.Is(err, toll.NewError(toll.CodeTrialUsed)) {
		t.Errorf("a second order of a trial: %v", err)
	}
}

func TestPlan_Expires(t *testing.T) {
	days := toll.Plan{Credits: toll.CreditsConfig{DurationSecs: toll.UnitsOf(toll.DaySecs)}}
	if forever := (toll.Plan{}); forever.Expires() || !days.Expires() {
		t.Error("credits expire only in a plan with a duration")
	}
}

// TestPlanKind_IsNamedInFewFiles keeps callers from comparing access limits: they ask for a rule of the kind.
func TestPlanKind_IsNamedInFewFiles(t *testing.T) {
	var named []string
	for _, name := range goFiles(t, ".") {
		text := must.Get(os.ReadFile(name))(t)
		if !strings.HasSuffix(name, "_test.go") && regexp.MustCompile(`\bLimitTime\b`).Match(text) {
			named = append(named, name)
		}
	}
	if want := []string{"credits.go", "internal/web/workspace/plans.go", "plan.go"}; !slices.Equal(named, want) {
		t.Errorf("LimitTime is named in %v, want %v", named, want)
	}
}
