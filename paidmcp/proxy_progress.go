package paidmcp

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

// asker is the call that a progress token of ours stands for.
type asker struct {
	ctx     context.Context
	session *mcp.ServerSession
	token   any // of the caller

	came, passed int           // notifications that arrived, and that went on
	moved        chan struct{} // one of them went on
}

// track gives a call that wants to hear of its progress a token of our own, as callers choose theirs alike. What it returns
// ends that, once all that came before the result has gone on.
func (u *Upstream) track(ctx context.Context, session *mcp.ServerSession, in, out mcp.RequestParams) (done func()) {
	token := in.GetProgressToken()
	if token == nil {
		return func() {}
	}
	a := &asker{ctx: ctx, session: session, token: token, moved: make(chan struct{}, 1)}
	u.mu.Lock()
	u.serial++
	own := "toll-" + strconv.FormatInt(u.serial, 10)
	u.asking[own] = a
	u.mu.Unlock()
	out.SetProgressToken(own)
	return func() {
		u.await(a)
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.asking, own)
	}
}

// await waits until what came has gone on: the SDK hands notifications on beside the results that follow them.
func (u *Upstream) await(a *asker) {
	late := time.NewTimer(progressTime)
	defer late.Stop()
	for {
		u.mu.Lock()
		passed := a.passed >= a.came
		u.mu.Unlock()
		if passed {
			return
		}
		select {
		case <-a.moved:
		case <-late.C:
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// came counts a notification of progress as it arrives.
func (u *Upstream) came(params json.RawMessage) {
	var p struct {
		Token string `json:"progressToken"`
	}
	if x402.Decode(params, &p) != nil {
		return // none of our tokens
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.asking[p.Token]; a != nil {
		a.came++
	}
}

// progress passes what the server says of a call on to who asked for it.
func (u *Upstream) progress(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	u.mu.Lock()
	a := u.asking[token]
	u.mu.Unlock()
	if a == nil {
		return
	}
	p := *req.Params
	p.Meta, p.ProgressToken = homeward(p.Meta), a.token
	if err := a.session.NotifyProgress(a.ctx, &p); err != nil {
		u.log.Debug("mcp: progress could not be passed on", "error", err)
	}
	u.mu.Lock()
	a.passed++
	u.mu.Unlock()
	select {
	case a.moved <- struct{}{}:
	default:
	}
}
