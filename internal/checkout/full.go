package checkout

import (
	"context"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// pageKeeps is how long an unpaid page keeps its place among the orders of a plan while another buyer waits for it.
	pageKeeps = 10 * time.Minute
	// pagesAsked bounds the pages of a plan about which the processor is asked at a time, and fullTime how long that may take.
	pagesAsked, fullTime = 10, 15 * time.Second
	// fullPause is how long the processor is not asked again about a plan whose pages are all being paid.
	fullPause = 10 * time.Second
	// fullPlans bounds the plans that are remembered for fullPause.
	fullPlans = 1_000
	// fullAtOnce bounds the buyers for whom this process asks the processor at a time, so that payments have requests left.
	fullAtOnce = 2
)

// full remembers when a plan had no page that could end.
type full struct {
	turns chan struct{}
	mu    sync.Mutex
	at    map[toll.PlanID]time.Time
}

// since reports whether a plan was noted within [fullPause].
func (f *full) since(plan toll.PlanID, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, noted := f.at[plan]
	return noted && now.Sub(at).Abs() < fullPause
}

func (f *full) note(plan toll.PlanID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == nil || len(f.at) >= fullPlans {
		f.at = map[toll.PlanID]time.Time{}
	}
	f.at[plan] = now
}

// unpaidPages returns orders of a plan whose pages may end for a buyer who waits.
func (c *Checkout) unpaidPages(ctx context.Context, plan *toll.Plan) ([]*store.Order, error) {
	if plan.Price.IsCrypto {
		return nil, nil
	}
	return store.UnpaidPages(ctx, c.store, plan.ID, c.now().Add(-pageKeeps), pagesAsked)
}

// freeSlot ends the oldest unpaid page of a plan, first at the processor, and reports whether its order has returned its slot.
// A page that is being paid keeps its slot.
func (c *Checkout) freeSlot(ctx context.Context, plan *toll.Plan) bool {
	pages, ok := c.rails[rail.Card].(rail.Pages)
	if !ok || c.full.since(plan.ID, c.now()) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, fullTime)
	defer cancel()
	select {
	case c.full.turns <- struct{}{}:
		defer func() { <-c.full.turns }()
	case <-ctx.Done():
		return false
	}
	if c.full.since(plan.ID, c.now()) { // the answer came meanwhile
		return false
	}
	orders, err := c.unpaidPages(ctx, plan)
	for _, o := range orders {
		var ended bool
		if ended, err = pages.EndUnpaid(ctx, o.ID); ended {
			c.log.InfoContext(ctx, "an unpaid payment page was expired so that another buyer can order the plan", "order", o.ID, "plan", plan.ID)
			return true
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		c.log.WarnContext(ctx, "the unpaid payment pages of a sold-out plan cannot be expired now", "plan", plan.ID, "error", err.Error())
	}
	c.full.note(plan.ID, c.now())
	return false
}
