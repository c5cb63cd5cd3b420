package seller

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	maxHoldLife = 24 * time.Hour // longest life of a renewed hold
	renewPause  = time.Second    // least time between two tries to renew a hold
)

// Keeper renews the hold of a sale at half of its life, and cuts the delivery when the hold ends.
type Keeper struct {
	p      *Sale
	caller context.Context
	call   context.Context // of renewals; it ends with Stop
	cancel context.CancelFunc
	last   time.Time // until when the hold can be renewed

	mu    sync.Mutex
	timer *time.Timer
	cut   func() // nil: nothing is delivered on the hold
	ended bool
	done  bool
}

// Keep starts a keeper. It renews only while caller waits, so that work without a caller lasts no longer than a hold, and only
// with an [x402.Renewer]. Without a hold it does nothing. Call Stop.
func (p *Sale) Keep(caller context.Context) *Keeper {
	k := &Keeper{p: p, caller: caller}
	if p.end == nil {
		return k
	}
	now := p.Clock()
	k.call, k.cancel = context.WithCancel(context.WithoutCancel(caller))
	k.last = now.Add(maxHoldLife - p.life())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(p.left(now)/2, k.tick)
	return k
}

// Deliver registers cut, which runs when the hold ends. It returns false if the hold has ended, or if there is none.
func (k *Keeper) Deliver(cut func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer == nil || k.ended || k.done || k.p.left(k.p.Clock()) <= 0 {
		return false
	}
	k.cut = cut
	return true
}

// Stop ends the renewals. It waits for a running cut: afterwards the connection may belong to the next request.
func (k *Keeper) Stop() {
	if k.timer == nil {
		return
	}
	k.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = true
	k.timer.Stop()
}

// tick renews the hold, or cuts the delivery when the hold has ended.
func (k *Keeper) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.p.Clock()
	left := k.p.left(now)
	switch {
	case k.done:
		return
	case left <= 0:
		k.ended = true
		if k.cut != nil {
			k.cut()
		}
		return
	}
	next := left
	if f, ok := k.p.Facilitator.(x402.Renewer); ok && now.Before(k.last) && !Left(k.caller) {
		k.mu.Unlock()
		next = k.renew(f, now, left)
		k.mu.Lock()
	}
	if !k.done {
		k.timer.Reset(next)
	}
}

// renew renews the hold once, and returns when to check it again.
func (k *Keeper) renew(f x402.Renewer, now time.Time, left time.Duration) time.Duration {
	p := k.p
	ctx, cancel := context.WithTimeout(k.call, min(p.Timeout, left))
	defer cancel()
	r, err := f.Renew(ctx, &x402.RenewRequest{AgentRequestID: p.AgentRequestID, HoldSecs: p.HoldSecs})
	if err == nil && r.AgentRequestID != p.AgentRequestID {
		err = toll.Errorf(toll.CodeInternal, "The answer names another request.")
	}
	if err == nil {
		// The hold ends by the clock of the service. Counted from before the call, our end is never later.
		p.end.Store(now.Add(p.life()).UnixNano())
		return p.left(p.Clock()) / 2
	}
	if k.call.Err() != nil {
		return left
	}
	e := toll.AsError(err)
	p.Log.Warn(p.Room+": a hold was not renewed", p.about("error", e.Error())...)
	left = p.left(p.Clock())
	if s := e.HTTPStatus(); s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout {
		return left
	}
	return min(left, max(left/4, renewPause, time.Duration(e.RetryAfterSecs)*time.Second))
}

// life is the life of a new or renewed hold.
func (p *Sale) life() time.Duration { return time.Duration(p.HoldSecs) * time.Second }

// left returns how long the seller may still rely on the hold.
func (p *Sale) left(now time.Time) time.Duration { return time.Unix(0, p.end.Load()).Sub(now) }
