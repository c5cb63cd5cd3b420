package paidmcp

//lint:file-ignore SA1019 logging and sampling are deprecated in the newest protocol, and the older ones are served as well

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// Bounds of the notifications of one call that wait for its settlement.
const (
	maxNotices     = 1000
	maxNoticeBytes = 8 << 20
)

// Errors of a notification.
var (
	// ErrNotPaid means that the call ended without a settlement, so its notifications are dropped.
	ErrNotPaid = errors.New("paidmcp: the call was not paid")
	// ErrTooMuch means that more than 1,000 notifications or 8 MiB would wait for the settlement of the call. See [Stream].
	ErrTooMuch = errors.New("paidmcp: too many notifications are waiting for the call to be settled")
)

// speaker identifies a call by its session and progress token.
type speaker struct {
	session mcp.Session
	token   string
}

func (c *call) speaker() (speaker, bool) {
	token := c.req.GetParams().GetMeta()["progressToken"]
	return speaker{c.req.GetSession(), fmt.Sprint(token)}, token != nil
}

func (c *call) enter() {
	if s, ok := c.speaker(); ok {
		c.callers.Store(s, c)
	}
}

func (c *call) leave() {
	if s, ok := c.speaker(); ok {
		c.callers.CompareAndDelete(s, c)
	}
}

// send is the middleware that holds the notifications of a call until it settles. A notification belongs to the call of its
// context, and progress also to the call that its token names.
func (p *Payments) send(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if !strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		c, _ := ctx.Value(callKey{}).(*call)
		if params, ok := req.GetParams().(*mcp.ProgressNotificationParams); ok && c == nil && params != nil {
			if v, ok := p.callers.Load(speaker{req.GetSession(), fmt.Sprint(params.ProgressToken)}); ok {
				c = v.(*call)
			}
		}
		if c == nil || c.notices == nil {
			return next(ctx, method, req)
		}
		return nil, c.notices.say(notice{ctx: context.WithoutCancel(ctx), method: method, req: req, next: next})
	}
}

// outbox holds the notifications of a call until it is settled.
type outbox struct {
	flows bool // a stream: notifications are sent at once

	mu     sync.Mutex
	state  outboxState
	held   []notice
	bytes  int
	passed int64 // bytes sent before the settlement
}

type outboxState int

const (
	waiting outboxState = iota
	ended               // a stream whose hold has ended
	opened              // settled
	closed              // not settled
)

type notice struct {
	ctx    context.Context
	method string
	req    mcp.Request
	next   mcp.MethodHandler
}

func (n notice) send() error {
	_, err := n.next(n.ctx, n.method, n.req)
	return err
}

// say sends, holds or rejects a notification. It sends without the lock, because middleware may send further notifications.
func (o *outbox) say(n notice) error {
	b, err := json.Marshal(n.req.GetParams())
	if err != nil {
		return err
	}
	keep, err := o.take(n, b)
	if keep || err != nil {
		return err
	}
	return n.send()
}

// take holds a notification that must wait, and then returns true. It returns false if it can be sent, or an error to reject it.
func (o *outbox) take(n notice, params []byte) (keep bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.state == opened:
		return false, nil
	case o.state == closed:
		return false, ErrNotPaid
	case o.state == ended:
		return false, paid.ErrHoldEnded
	case o.flows:
		o.passed += int64(len(params)) // counted before it is sent: a notification in transit counts as delivered
		return false, nil
	case len(o.held) == 0 && isBare(n.req):
		return false, nil
	case len(o.held) == maxNotices || o.bytes+len(params) > maxNoticeBytes:
		return false, ErrTooMuch
	}
	n.req = frozen(n.req, params)
	o.held = append(o.held, n)
	o.bytes += len(params)
	return true, nil
}

// open sends the held notifications in order, and lets later notifications pass.
func (o *outbox) open() {
	for range 2 { // the second round sends notifications that arrived during the first
		o.mu.Lock()
		held := o.held
		o.held = nil
		o.mu.Unlock()
		for _, n := range held {
			if n.send() != nil {
				break // the caller has left and cannot receive the result either
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state = opened
	o.held = nil
}

// shut drops the held notifications and rejects later notifications.
func (o *outbox) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.held = closed, nil
}

// cut stops a stream whose hold has ended.
func (o *outbox) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == waiting {
		o.state = ended
	}
}

// delivered returns the number of bytes of notifications sent before the settlement.
func (o *outbox) delivered() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.passed
}

// isBare reports whether a notification is numeric progress only. It keeps callers from timing out and contains no content.
func isBare(req mcp.Request) bool {
	p, ok := req.GetParams().(*mcp.ProgressNotificationParams)
	return ok && p != nil && p.Message == "" && len(p.Meta) == 0
}

// frozen returns a copy of a request whose parameters the sender may change.
func frozen(req mcp.Request, params []byte) mcp.Request {
	session, ok := req.GetSession().(*mcp.ServerSession)
	if !ok {
		return req
	}
	switch req.GetParams().(type) {
	case *mcp.ProgressNotificationParams:
		return copyOf[mcp.ProgressNotificationParams](session, req, params)
	case *mcp.LoggingMessageParams:
		return copyOf[mcp.LoggingMessageParams](session, req, params)
	}
	return req
}

func copyOf[T any, P interface {
	*T
	mcp.Params
}](session *mcp.ServerSession, req mcp.Request, params []byte) mcp.Request {
	p := P(new(T))
	if x402.Decode(params, p) != nil {
		return req
	}
	return &mcp.ServerRequest[P]{Session: session, Params: p}
}
