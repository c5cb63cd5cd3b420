package api

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Quotas bound what one account may have at a time, so that nobody fills the database. 0 is the default of a kind, a negative
// number lifts the limit.
type Quotas struct {
	Agents      int64 // default 10,000
	Plans       int64 // default 10,000
	APIKeys     int64 // default 1,000, those that are neither revoked nor expired
	Delegations int64 // default 10,000, those that are neither revoked nor expired
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

// room proves that the owner may have n more records of a kind than it has. It holds the owner's row until the transaction
// ends, so it stands where nothing else is locked yet, or nothing that others lock after it.
func (h *handler) room(ctx context.Context, tx *store.Tx, kind store.Kind, owner toll.Address, n int64) error {
	most := h.Quotas.of(kind)
	if most < 0 {
		return nil
	}
	has, err := store.Owned(ctx, tx, kind, owner, h.now(), most+1)
	if errors.Is(err, store.ErrNotFound) {
		return nil // no principal of this service, so nothing that callers could fill
	}
	if err != nil || has+n <= most {
		return err
	}
	e := toll.Errorf(toll.CodeRateLimited, "An account may have at most %d %s.", most, kind).
		WithParam("quota", kind).WithParam("limit", most).WithHint("Ask the operator to raise the limit.")
	if kind == store.KindAPIKey || kind == store.KindDelegation {
		e = e.WithHint("Revoke what is no longer needed, or ask the operator to raise the limit.")
	}
	e.RetryAfterSecs = quotaRetrySecs
	return e
}

// within is once for a record that was just added and counts already.
func within[T any](h *handler, c *call, kind store.Kind, then once[T]) once[T] {
	return func(tx *store.Tx, answer T) error {
		if err := h.room(c.r.Context(), tx, kind, c.caller.Address, 0); err != nil {
			return err
		}
		return then(tx, answer)
	}
}
