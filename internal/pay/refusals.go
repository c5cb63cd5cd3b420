package pay

import (
	"context"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// RefusalsEvery is how often counted refusals are written. A process that is killed loses what it counted since.
	RefusalsEvery = 10 * time.Second
	// maxRefusals bounds what a process counts between two writes, in rows of about 300 bytes. What comes beyond is not counted, and
	// is logged as a number.
	maxRefusals = 16_384
	// maxReasons bounds the rows of one plan and agent. All reasons are words of this program, and fewer.
	maxReasons = 64
)

// refusals counts what verify and settle refuse, by plans and agents that have records, in memory: a flood of bad requests costs no
// write of its own.
type refusals struct {
	mu      sync.Mutex
	counts  map[store.Refusal]int64
	reasons map[string]bool
	lost    int64
}

// count counts a refusal at a time if enough of the payment is known. It ignores a caller that does not own the plan, which could
// inflate the numbers of the owner.
func (c *refusals) count(p *payment, e *toll.Error, reason string, now time.Time) {
	if p.plan == nil || p.plan.Owner != p.caller || e.HTTPStatus() >= 500 {
		return
	}
	r := store.Refusal{Plan: p.plan.ID, Owner: p.plan.Owner, Reason: reason, Hour: now.UTC().Truncate(time.Hour)}
	if p.agent != nil && p.agent.Owner == p.plan.Owner { // other agents may be any number
		r.Agent = p.agentID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(r, 1)
}

func (c *refusals) add(r store.Refusal, n int64) {
	if c.counts == nil {
		c.counts, c.reasons = map[store.Refusal]int64{}, map[string]bool{}
	}
	_, known := c.counts[r]
	if !known && len(c.counts) >= maxRefusals || !c.reasons[r.Reason] && len(c.reasons) >= maxReasons {
		c.lost += n
		return
	}
	c.reasons[r.Reason] = true
	c.counts[r] += n
}

// WriteRefusals writes what was counted since the last time. What a failed write may have lost is counted again with the next one.
func (f *Facilitator) WriteRefusals(ctx context.Context) error {
	c := &f.refused
	c.mu.Lock()
	counts, lost := c.counts, c.lost
	c.counts, c.reasons, c.lost = nil, nil, 0
	c.mu.Unlock()
	if lost > 0 {
		f.Log.WarnContext(ctx, "too many different refusals: some were not counted", "refusals", lost, "limit", maxRefusals)
	}
	if len(counts) == 0 {
		return nil
	}
	err := f.Store.Tx(ctx, func(tx *store.Tx) error { return store.AddRefusals(ctx, tx, counts) })
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for r, n := range counts {
			c.add(r, n)
		}
	}
	return err
}
