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
	// progressTime bounds how long a result waits for the progress that came before it.
	progressTime = time.Second
)

// maxProgress bounds the progress of one call that waits for its reader.
const maxProgress = 1000

// track gives a call that wants to hear of its progress a token of our own, as callers choose theirs alike, and passes on what comes
// under it. What it returns ends that, once all that came before the result has gone on.
func (u *Upstream) track(ctx context.Context, session *mcp.ServerSession, in, out mcp.RequestParams) (done func()) {
	token := in.GetProgressToken()
	if token == nil {
		return func() {}
	}
	// A caller who reads slowly must not hold up others, so what is beyond the bound is dropped.
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

// came takes a notification of progress as it arrives, before the SDK reads the result that may follow.
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
