package facilitator

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

// refusalCounts counts what verify and settle refuse, of plans and agents that have records, in memory: a flood of bad requests costs no
// write of its own.
type refusalCounts struct {
	mu      sync.Mutex
	counts  map[store.Refusal]int64
	reasons map[string]bool
	lost    int64
}

// count counts a refusal of a payment of which enough is known. A caller that does not own the plan counts for nobody, as it could
// fill the numbers of others.
func (f *Facilitator) count(p *payment, e *toll.Error, reason string) {
	if p.plan == nil || p.plan.Owner != p.caller || e.HTTPStatus() >= 500 {
		return
	}
	r := store.Refusal{Plan: p.plan.ID, Owner: p.plan.Owner, Reason: reason, Hour: f.Clock().UTC().Truncate(time.Hour)}
	if p.agent != nil && p.agent.Owner == p.plan.Owner { // others may be any number
		r.Agent = p.agentID
	}
	c := &f.refused
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts, c.reasons = map[store.Refusal]int64{}, map[string]bool{}
	}
	_, known := c.counts[r]
	if !known && len(c.counts) >= maxRefusals || !c.reasons[reason] && len(c.reasons) >= maxReasons {
		c.lost++
		return
	}
	c.reasons[reason] = true
	c.counts[r]++
}

// WriteRefusals writes what was counted since the last time. What a failed write may have lost is counted again with the next one.
func (f *Facilitator) WriteRefusals(ctx context.Context) error {
	c := &f.refused
	c.mu.Lock()
	counts, lost := c.counts, c.lost
	c.counts, c.reasons, c.lost = nil, nil, 0
	c.mu.Unlock()
	if lost > 0 {
		f.Log.WarnContext(ctx, "refusals were not counted", "refusals", lost, "limit", maxRefusals)
	}
	if len(counts) == 0 {
		return nil
	}
	err := f.Store.Tx(ctx, func(tx *store.Tx) error { return store.AddRefusals(ctx, tx, counts) })
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts, c.reasons = map[store.Refusal]int64{}, map[string]bool{}
	}
	for r, n := range counts {
		if _, known := c.counts[r]; known || len(c.counts) < maxRefusals {
			c.counts[r] += n
			c.reasons[r.Reason] = true
		} else {
			c.lost += n
		}
	}
	return err
}
