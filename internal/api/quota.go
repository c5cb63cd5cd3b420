package api

import (
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/store"
)

// Quotas bound what one account may have at a time, and what it may add in an hour, so that nobody fills the database. 0 is the
// default of a kind, a negative number lifts the limit.
type Quotas struct {
	Agents      int64 // default 10,000
	Plans       int64 // default 10,000
	APIKeys     int64 // default 1,000, those that are neither revoked nor expired
	Delegations int64 // default 10,000, those that are neither revoked nor expired

	// In an hour, in this process. Who was idle for an hour may do all at once.
	Orders      int64 // default 3,600, free ones and those that fail too
	Permissions int64 // default 36,000; the facilitator counts them
	FreeHolds   int64 // default 36,000, holds that burn nothing; the facilitator counts them
	SubTasks    int64 // default 360,000
	Changes     int64 // default 36,000, all other calls that add or change records
}

// countedBytes is how many bytes of a body count as one more call.
const countedBytes = 4 << 10

// What calls add, by the names of the quotas.
const (
	flowOrders   = "orders"
	flowSubTasks = "sub-tasks"
	flowChanges  = "changes"
)

func newFlows(q Quotas) map[string]*meter.Quota {
	return map[string]*meter.Quota{
		flowOrders:   meter.NewQuota(flowOrders, q.Orders, 3_600),
		flowSubTasks: meter.NewQuota(flowSubTasks, q.SubTasks, 360_000),
		flowChanges:  meter.NewQuota(flowChanges, q.Changes, 36_000),
	}
}

// flow names the quota of the calls of a route, "" for none. What only reads or ends something is never refused, and payments are
// counted by the facilitator.
func (r *route) flow() string {
	switch r.op {
	case "verify", "settle", "release", "renew", "signOffers", "createPermission", "advanceClock", "startSimulation", "finishSimulation":
		return ""
	case "orderPlan", "openCheckout", "openStripePayment":
		return flowOrders
	case "recordSubTask":
		return flowSubTasks
	}
	if r.auth == open {
		return ""
	}
	switch r.method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return flowChanges
	}
	return ""
}

// count counts the call for the quota of its route. A large body counts for several calls.
func (c *call) count() error {
	if !c.known {
		return nil // nobody to count for
	}
	n := c.r.ContentLength
	if n < 0 || n > maxBodyBytes {
		n = maxBodyBytes
	}
	if e := c.h.flows[c.route.flow()].Take(c.caller.Address, 1+n/countedBytes); e != nil {
		return e
	}
	return nil
}

func (q Quotas) of(kind store.Kind) int64 {
	n, usual := int64(0), int64(10_000)
	switch kind {
	case store.KindAgent:
		n = q.Agents
	case store.KindPlan:
		n = q.Plans
	case store.KindAPIKey:
		n, usual = q.APIKeys, 1000
	case store.KindDelegation:
		n = q.Delegations
	}
	if n == 0 {
		return usual
	}
	return n
}

// quotaRetrySecs is the Retry-After of a refusal: nothing changes by itself soon.
const quotaRetrySecs = 3600

// quota bounds the records of a kind that an owner may have; nil when nothing does.
func (h *handler) quota(kind store.Kind, owner toll.Address) *store.Quota {
	most := h.Quotas.of(kind)
	if most < 0 {
		return nil
	}
	e := toll.Errorf(toll.CodeRateLimited, "An account may have at most %d %s.", most, kind).
		WithParam("quota", kind).WithParam("limit", most).WithHint("Ask the operator to raise the limit.")
	if kind == store.KindAPIKey || kind == store.KindDelegation {
		e = e.WithHint("Revoke what is no longer needed, or ask the operator to raise the limit.")
	}
	e.RetryAfterSecs = quotaRetrySecs
	return &store.Quota{Kind: kind, Owner: owner, Most: most, At: h.now(), Full: e}
}
