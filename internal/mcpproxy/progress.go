package mcpproxy

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

const (
	methodProgress = "notifications/progress"
	// progressTime bounds how long a result waits for earlier progress.
	progressTime = time.Second
)

// maxProgress bounds the waiting progress of one call.
const maxProgress = 1000

// track replaces the progress token of a call by a unique one, as callers choose equal ones, and forwards its progress. The
// returned function ends that, once earlier progress was sent.
func (u *Upstream) track(ctx context.Context, session *mcp.ServerSession, in, out mcp.RequestParams) (done func()) {
	token := in.GetProgressToken()
	if token == nil {
		return func() {}
	}
	// A slow caller must not delay others, so progress beyond the bound is dropped.
	came, passed := make(chan *mcp.ProgressNotificationParams, maxProgress), make(chan struct{})
	u.mu.Lock()
	u.serial++
	own := "toll-" + strconv.FormatInt(u.serial, 10)
	u.asking[own] = came
	u.mu.Unlock()
	out.SetProgressToken(own)
	go func() {
		defer close(passed)
		for p := range came {
			p.Meta, p.ProgressToken = toCaller(p.Meta), token
			if err := session.NotifyProgress(ctx, p); err != nil {
				u.log.Debug("mcp: progress could not be passed on", "error", err)
			}
		}
	}()
	return func() {
		u.mu.Lock()
		delete(u.asking, own)
		close(came)
		u.mu.Unlock()
		late := time.NewTimer(progressTime)
		defer late.Stop()
		select {
		case <-passed:
		case <-late.C:
		case <-ctx.Done():
		}
	}
}

// came takes a progress notification on arrival, before the SDK reads the result that may follow.
func (u *Upstream) came(params json.RawMessage) {
	p := new(mcp.ProgressNotificationParams)
	if x402.Decode(params, p) != nil {
		return
	}
	token, _ := p.ProgressToken.(string)
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case u.asking[token] <- p: // of a call that is not there: nil
	default:
	}
}
