package client

import (
	"context"
	"net/http"
	"time"

	"github.com/tollhq/toll"
)

// Clock is the clock of a sandbox.
type Clock struct {
	Now        toll.Time `json:"now"`
	OffsetSecs int64     `json:"offsetSecs"` // seconds ahead of the system clock
}

// Clock returns the clock of the sandbox. Live services do not have this route.
func (c *Client) Clock(ctx context.Context) (*Clock, error) {
	return get[Clock](ctx, c, api("/sandbox/clock"))
}

// AdvanceClock moves the clock of the entire sandbox forward by d, truncated to seconds. It requires an operator's key.
func (c *Client) AdvanceClock(ctx context.Context, d time.Duration) (*Clock, error) {
	in := struct {
		Secs int64 `json:"advanceSecs"`
	}{int64(d / time.Second)}
	return fetch[Clock](ctx, c, call{method: http.MethodPost, path: api("/sandbox/clock"), body: in})
}
