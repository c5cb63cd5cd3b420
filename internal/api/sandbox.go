package api

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// TestClock is the clock of a sandbox, which an operator can move forward.
type TestClock struct {
	// Ahead is how far it is ahead of the clock of the machine.
	Ahead func() time.Duration
	// Advance moves it, for every process.
	Advance func(ctx context.Context, d time.Duration) error
}

func sandboxRoutes() []route {
	const at = Base + "/sandbox/clock"
	return []route{
		{
			op: "readClock", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Sandbox", summary: "What time the sandbox has", sandbox: true,
			action: reads((*handler).readClock),
		},
		{
			op: "advanceClock", method: "POST", path: at, auth: keyed, right: toll.RightManage, tag: "Sandbox", sandbox: true,
			summary: "Move the time of the sandbox forward, with the key of an operator",
			action:  takes((*handler).advanceClock), codes: []toll.Code{toll.CodeForbidden, toll.CodeBadNumber},
		},
	}
}

// Clock is the time of a sandbox.
type Clock struct {
	Now        toll.Time `json:"now"`
	OffsetSecs int64     `json:"offsetSecs" doc:"How far it is ahead of the clock of the machine."`
}

func (h *handler) readClock(*call) (*Clock, error) {
	return &Clock{Now: toll.At(h.Clock()), OffsetSecs: int64(h.TestClock.Ahead() / time.Second)}, nil
}

// ClockInput moves the clock.
type ClockInput struct {
	AdvanceSecs toll.Int `json:"advanceSecs" minimum:"0" doc:"The clock never goes back."`
}

func (*ClockInput) required() []string { return []string{"advanceSecs"} }

func (h *handler) advanceClock(c *call, in *ClockInput) (*Clock, error) {
	const century = 100 * toll.YearSecs
	if in.AdvanceSecs < 0 || in.AdvanceSecs > century {
		return nil, toll.Errorf(toll.CodeBadNumber, "advanceSecs must be 0 to %d: the clock never goes back.", int64(century)).
			WithParam("path", "advanceSecs")
	}
	operator, err := h.Auth.IsOperator(c.context, c.caller.Address)
	if err != nil {
		return nil, err
	}
	if !operator {
		return nil, toll.NewError(toll.CodeForbidden).
			WithHint("Only an operator moves the clock: make a key with toll keys create --local --operator.")
	}
	if err := h.TestClock.Advance(c.context, time.Duration(in.AdvanceSecs)*time.Second); err != nil {
		return nil, err
	}
	return h.readClock(c)
}
