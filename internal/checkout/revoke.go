package checkout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// revokeSlice bounds the permissions that are revoked between two looks at them.
	revokeSlice = 100
	// disableEvery is how often a rail is asked to disable a delegation on the chain.
	disableEvery = time.Minute
)

// Revoke revokes a delegation and its permissions; a repeat gets the same answer. Open orders finish. The rail also disables it on the
// chain, or the holder of an external account does, with the answer. Errors: [toll.CodeBadUUID], [toll.CodeUnknownDelegation].
func (c *Delegations) Revoke(ctx context.Context, owner toll.Address, id string) (*toll.ActResult, error) {
	d, err := c.ownDelegation(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	if d, err = c.revoke(ctx, d.ID); err != nil {
		return nil, err
	}
	data := map[string]any{"delegationId": d.ID, "status": toll.StatusRevoked}
	message := "The delegation is revoked."
	if call := c.revocation(ctx, d); call != nil {
		data["transaction"] = call
		message = "The delegation is revoked. To disable it on the chain as well, send data.transaction from its account."
	}
	return &toll.ActResult{
		Success: true, Message: message, TxHash: sha256.Sum256([]byte("toll/delegation-revoked/" + d.ID)), HTTPStatus: 200,
		When: toll.At(d.RevokedAt), Data: data,
	}, nil
}

// Disabled implements [rail.Orders]. A job revokes the permissions that name the delegation.
func (c *Delegations) Disabled(ctx context.Context, tx *store.Tx, delegationID string) error {
	d, err := store.DelegationForUpdate(ctx, tx, delegationID)
	if err != nil {
		return unknown(err, toll.CodeUnknownDelegation, "delegationId", delegationID)
	}
	if !d.DisableAt.IsZero() {
		d.DisableAt = time.Time{}
		if err := store.UpdateDelegation(ctx, tx, d); err != nil {
			return err
		}
	}
	return c.markRevoked(ctx, tx, d, false)
}

// revoke ends a delegation, and the permissions that name it.
func (c *Delegations) revoke(ctx context.Context, id string) (d *store.Delegation, err error) {
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		if d, err = store.DelegationForUpdate(ctx, tx, id); err != nil {
			return err
		}
		// The service signs a delegation when an order needs it, so that there is nothing to disable before the first.
		now := c.now()
		if d.RevokedAt.IsZero() && d.Provider == toll.ProviderCrypto && d.OwnerAccount.IsZero() && !d.LastUsedAt.IsZero() && now.Before(d.ExpiresAt) {
			d.DisableAt = now
		}
		return c.markRevoked(ctx, tx, d, true)
	})
	c.failpoint("revoked")
	if err == nil && d.Revoking {
		err = c.revokePermissions(context.WithoutCancel(ctx), d) // a caller who leaves keeps no permission alive
	}
	return d, Fault(unknown(err, toll.CodeUnknownDelegation, "delegationId", id))
}

// markRevoked writes that a delegation is revoked, unless it was. finishes says that the caller revokes its permissions.
func (c *Delegations) markRevoked(ctx context.Context, tx *store.Tx, d *store.Delegation, finishes bool) error {
	if !d.RevokedAt.IsZero() {
		return nil
	}
	d.RevokedAt = c.now()
	if err := store.RevokeDelegation(ctx, tx, d, finishes); err != nil || d.Pending() {
		return err
	}
	if !d.DisableAt.IsZero() {
		if err := store.PutJob(ctx, tx, store.Job{Kind: store.JobDisable, Key: []byte(d.ID), Due: d.DisableAt}); err != nil {
			return err
		}
	}
	return store.InsertEvent(ctx, tx, c.delegationEvent(d, toll.EventDelegationRevoked, d.RevokedAt))
}

// revocation is the eth_sendTransaction with which the holder disables the delegation, nil when there is none or no chain to ask.
func (c *Delegations) revocation(ctx context.Context, d *store.Delegation) map[string]any {
	by, ok := c.rails[rail.Crypto].(rail.Delegator)
	if !ok || d.OwnerAccount.IsZero() || d.Pending() {
		return nil
	}
	call, err := by.Revocation(ctx, details(d))
	if err != nil || call == nil {
		c.log.WarnContext(ctx, "cannot prepare the transaction that disables a delegation on the chain", "delegation", d.ID, "err", err)
		return nil
	}
	return map[string]any{
		"from": d.OwnerAccount, "to": call.To, "data": "0x" + hex.EncodeToString(call.Data), "value": "0x0",
		"chainId": "0x" + strconv.FormatInt(c.env.ChainID(), 16),
	}
}

// endDelegation revokes the permissions of a revoked delegation ([store.JobEndDelegation]).
func (c *Delegations) endDelegation(ctx context.Context, id []byte) error {
	d, found, err := store.IfThere(store.DelegationByID(ctx, c.store, string(id)))
	if !found {
		return err
	}
	return c.revokePermissions(ctx, d)
}

// revokePermissions revokes the permissions that name a revoked delegation. A job does so when the process dies meanwhile.
func (c *Delegations) revokePermissions(ctx context.Context, d *store.Delegation) error {
	for {
		list, err := c.ledger.PermissionsOfDelegation(ctx, d.Owner, d.ID, revokeSlice)
		if err != nil {
			return err
		}
		for _, p := range list {
			err := c.ledger.DoNew(ctx, p.Plan, p.Subscriber, func(t *ledger.Tx) error {
				_, err := t.RevokePermission(p.Hash, d.RevokedAt)
				t.Event(store.NewEvent{
					Principal: p.Subscriber, Type: toll.EventPermissionRevoked, Kind: "permission", ID: p.Hash.String(), At: d.RevokedAt,
				})
				return err
			})
			if err != nil && !ledger.IsRefused(err, ledger.PermissionRevoked) {
				return err
			}
			c.failpoint("permission revoked")
		}
		if len(list) < revokeSlice {
			break
		}
	}
	return c.store.Tx(ctx, func(tx *store.Tx) error { return store.EndDelegation(ctx, tx, d.ID) })
}

// disable has the rail disable a revoked delegation whose account the service holds ([store.JobDisable]), until it is.
func (c *Delegations) disable(ctx context.Context, id []byte) error {
	d, found, err := store.IfThere(store.DelegationByID(ctx, c.store, string(id)))
	if !found || d.DisableAt.IsZero() {
		return err
	}
	if c.now().Before(d.ExpiresAt) { // after that the chain refuses it by itself
		by, err := c.delegator()
		if err != nil {
			return &jobs.Retry{After: disableEvery, Err: err}
		}
		c.failpoint("disable")
		if done, err := by.Revoke(ctx, details(d)); err != nil || !done {
			return &jobs.Retry{After: disableEvery, Err: err}
		}
		c.failpoint("disabled")
	}
	return c.store.Tx(ctx, func(tx *store.Tx) error {
		d, err := store.DelegationForUpdate(ctx, tx, string(id))
		if err != nil {
			return err
		}
		d.DisableAt = time.Time{}
		return store.UpdateDelegation(ctx, tx, d)
	})
}
