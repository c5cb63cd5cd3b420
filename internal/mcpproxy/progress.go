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
	// progressTime is the maximum time that a result waits for earlier progress.
	progressTime = time.Second
)

// maxProgress is the maximum number of waiting progress notifications of one call.
const maxProgress = 1000

// track replaces the progress token of a call by a unique token, because callers may choose equal tokens, and forwards its
// progress. The returned function stops this after it waited up to 1 s for earlier progress to be sent.
func (u *Upstream) track(ctx context.Context, session *mcp.ServerSession, in, out mcp.RequestParams) (done func()) {
	token := in.GetProgressToken()
	if token == nil {
		return func() {}
	}
	// A slow caller must not delay other callers, so progress beyond the bound is dropped.
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
				u.log.Debug("mcp: a progress notification could not be forwarded", "error", err)
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

// came queues a progress notification on arrival, before the SDK reads a result that may follow.
func (u *Upstream) came(params json.RawMessage) {
	p := new(mcp.ProgressNotificationParams)
	if x402.Decode(params, p) != nil {
		return
	}
	token, _ := p.ProgressToken.(string)
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case u.asking[token] <- p: // a nil channel for an unknown token
	default:
	}
}
