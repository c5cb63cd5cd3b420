package auth

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Suspension is what the operator suspended or resumed.
type Suspension struct {
	Kind      string       `json:"kind"` // workspace, plan or api_key
	ID        string       `json:"id"`
	Workspace toll.Address `json:"workspace"` // the owner
	Suspended bool         `json:"suspended"`
}

// Suspend suspends or resumes a workspace by its address, a plan by its id, or an API key by its id. A suspended key is refused, in
// this process at once and in others within a second. A suspended workspace or plan gets no orders, top-ups, and holds, in every
// process within a second. The logs of the operator and of the workspace record it. Errors: [store.ErrNotFound], [toll.CodeBadID],
// [toll.CodeBadAddress].
func (a *Auth) Suspend(ctx context.Context, id string, suspended bool) (out Suspension, err error) {
	since, act := a.clock(), ".suspended"
	if !suspended {
		since, act = time.Time{}, ".resumed"
	}
	out = Suspension{ID: id, Suspended: suspended}
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		if key, err := toll.ParseHash(id); err == nil {
			row, err := store.APIKeyByID(ctx, tx, key)
			if err != nil {
				return err
			}
			out.Kind, out.Workspace = "api_key", row.Address
			err = store.SuspendAPIKey(ctx, tx, key, since)
			if err != nil {
				return err
			}
		} else if isAddress(id) {
			at, err := toll.ParseAddress(id)
			if err == nil {
				err = store.SuspendPrincipal(ctx, tx, at, since)
			}
			if err != nil {
				return err
			}
			out.Kind, out.Workspace, out.ID = "workspace", at, at.Lower()
		} else {
			plan, err := toll.ParsePlanID(id)
			if err != nil {
				return err
			}
			row, err := store.PlanForUpdate(ctx, tx, plan)
			if err == nil {
				out.Kind, out.Workspace = "plan", row.Owner
				err = store.SuspendPlan(ctx, tx, id, since)
			}
			if err != nil {
				return err
			}
		}
		note := store.Act{Act: out.Kind + act, Object: out.ID}
		own := note
		own.Workspace = out.Workspace.Lower()
		return store.AuditAll(ctx, tx, a.clock(), note, own)
	})
	if key, failed := toll.ParseHash(id); failed == nil { // also after an error: the commit may have happened
		a.forget(ctx, family{keys: []store.APIKey{{ID: key}}})
	}
	return out, err
}
