package web

import (
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// clockPages move the time of a sandbox.
func clockPages() []areaPage {
	return []areaPage{{
		Path: "/clock", Title: "Test clock", Template: "sheet", Under: "/events",
		Right: toll.RightRead, Act: toll.RightManage, Sandbox: true, Get: showClock, Post: moveClock,
	}}
}

func showClock(v *visit) {
	c, err := v.w.API.Clock(v.acting())
	moves, err2 := v.w.Auth.IsOperator(v.ctx(), v.person.Address)
	if v.failed("clock", errors.Join(err, err2)) {
		return
	}
	ahead := span(toll.UnitsOf(c.OffsetSecs))
	if ahead == "" {
		ahead = "not at all"
	}
	s := sheet{
		Lead:  "The time of this sandbox. Move it forward to see what a later day brings: credits that end, keys that expire, payments that are due.",
		Facts: []fact{{"Now", cell{Text: date(c.Now.Time)}}, {"Ahead of the machine", cell{Text: ahead}}},
	}
	switch {
	case !moves:
		s.Note = "Only the workspace of an operator moves the clock, for all workspaces of this service."
	case v.person.Rights.Has(toll.RightManage):
		s.Acts = []dialog{v.dialogOf("move", "Move the clock forward", "It never goes back, and it moves for all workspaces. What ends by then ends, also your session.",
			field{Name: "by", Label: "By", Mode: "numeric", Required: true, Members: []string{"advanceSecs"}}, field{Name: "unit", Label: "In", Options: lengths})}
	}
	v.sheet("Test clock", s)
}

func moveClock(v *visit) {
	v.finish(func() (outcome, error) {
		by, err := duration(v, "by", "unit")
		if err != nil {
			return outcome{}, err
		}
		if by.IsZero() {
			return outcome{}, oneFault("by", "is required")
		}
		n := by.Int()
		const most = 100 * toll.YearSecs
		if !n.IsInt64() || n.Int64() > most {
			return outcome{}, oneFault("by", "must be 100 years at most")
		}
		c, err := v.w.API.AdvanceClock(v.acting(), time.Duration(n.Int64())*time.Second)
		if err != nil {
			return outcome{}, err
		}
		return outcome{To: v.to("clock"), Done: "It is " + date(c.Now.Time) + " now."}, nil
	})
}
