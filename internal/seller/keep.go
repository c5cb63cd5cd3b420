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
	maxHoldLife = 24 * time.Hour // maximum life of a renewed hold
	renewPause  = time.Second    // minimum time between two attempts to renew a hold
)

// Keeper renews the hold of a sale at half of its life, and stops the delivery when the hold ends.
type Keeper struct {
	p      *Sale
	caller context.Context
	call   context.Context // context of renewals, ended by Stop
	cancel context.CancelFunc
	last   time.Time // no renewals after this time

	mu    sync.Mutex
	timer *time.Timer
	cut   func() // nil until Deliver
	ended bool
	done  bool
}

// Keep starts a keeper. It renews the hold only if the facilitator is an [x402.Renewer], and only while caller is connected, so
// that work without a caller lasts at most as long as a hold. Without a hold, the keeper does nothing. Call Stop when done.
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

// Deliver registers cut, which runs when the hold ends. It returns false if there is no hold, it has ended, or Stop was called.
func (k *Keeper) Deliver(cut func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer == nil || k.ended || k.done || k.p.left(k.p.Clock()) <= 0 {
		return false
	}
	k.cut = cut
	return true
}

// Stop ends the renewals. It waits for a running cut, because the connection may belong to the next request afterwards.
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

// tick renews the hold, or calls cut if the hold has ended.
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

// renew tries to renew the hold once, and returns the time until the next check.
func (k *Keeper) renew(f x402.Renewer, now time.Time, left time.Duration) time.Duration {
	p := k.p
	ctx, cancel := context.WithTimeout(k.call, min(p.Timeout, left))
	defer cancel()
	r, err := f.Renew(ctx, &x402.RenewRequest{AgentRequestID: p.AgentRequestID, HoldSecs: p.HoldSecs})
	if err == nil && r.AgentRequestID != p.AgentRequestID {
		err = toll.Errorf(toll.CodeInternal, "The response is for another request.")
	}
	if err == nil {
		// The service measures the life of the hold with its clock. Measured from before the call, our end is never later.
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

// life returns the life of a new or renewed hold.
func (p *Sale) life() time.Duration { return time.Duration(p.HoldSecs) * time.Second }

// left returns the remaining life of the hold. The sale must have a hold.
func (p *Sale) left(now time.Time) time.Duration { return time.Unix(0, p.end.Load()).Sub(now) }
