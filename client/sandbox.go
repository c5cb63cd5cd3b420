package client

import (
	"context"
	"net/http"
	"time"

	"github.com/tollhq/toll"
)

// Clock is the time of a sandbox.
type Clock struct {
	Now        toll.Time `json:"now"`
	OffsetSecs int64     `json:"offsetSecs"` // seconds by which it is ahead of the clock of the machine
}

// Clock returns the time of the sandbox. Live services have no such route.
func (c *Client) Clock(ctx context.Context) (*Clock, error) {
	return get[Clock](ctx, c, api("/sandbox/clock"))
}

// AdvanceClock moves the clock of the whole sandbox forward, in whole seconds. It needs the key of an operator.
func (c *Client) AdvanceClock(ctx context.Context, d time.Duration) (*Clock, error) {
	in := struct {
		Secs int64 `json:"advanceSecs"`
	}{int64(d / time.Second)}
	return fetch[Clock](ctx, c, call{method: http.MethodPost, path: api("/sandbox/clock"), body: in})
}
