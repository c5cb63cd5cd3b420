package checkout

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	maxSignature     = 1024 // bytes
	maxAuthorization = 2048 // bytes of JSON
)

// details is a delegation as rails know it.
func details(d *store.Delegation) *rail.Delegation {
	return &rail.Delegation{
		ID: d.ID, Owner: d.Owner, OwnerAccount: d.OwnerAccount, Currency: d.Currency, LimitCents: d.Limit, CreatedAt: d.CreatedAt,
		ExpiresAt: d.ExpiresAt, AllowedRecipients: d.AllowedReceivers, Signature: d.Signature, Authorization: json.RawMessage(d.Authorization),
	}
}

// delegator returns the rail that knows accounts of users, or [toll.CodeChainUnreachable].
func (c *Delegations) delegator() (rail.Delegator, error) {
	by, ok := c.rails[rail.Crypto].(rail.Delegator)
	if !ok {
		return nil, toll.NewError(toll.CodeChainUnreachable).
			WithHint("ownerAccount needs a chain, and no chain is configured on this service. Omit ownerAccount.")
	}
	return by, nil
}

// heldBy sets the account of a new delegation that the user holds.
func (c *Delegations) heldBy(ctx context.Context, d *store.Delegation, account toll.Address) error {
	external, err := c.isExternal(ctx, account)
	switch {
	case err != nil:
		return err
	case account.IsZero():
		return toll.Faults([]toll.Fault{{Path: "ownerAccount", Message: "must not be the zero address"}})
	case account == d.Owner && !external:
		return toll.Faults([]toll.Fault{{Path: "ownerAccount", Message: "is the wallet that this service holds for you and needs no signature: leave it out"}})
	}
	if _, err := c.delegator(); err != nil {
		return err
	}
	d.OwnerAccount = account
	return nil
}

// request adds to the answer what the holder of the account is to sign.
func (c *Delegations) request(ctx context.Context, d *store.Delegation, out *toll.DelegationCreated) error {
	by, err := c.delegator()
	if err != nil {
		return err
	}
	r, err := by.SignatureRequest(ctx, details(d))
	if err != nil {
		return toll.AsError(err)
	}
	out.Status, out.TypedData = toll.StatusPending, r.TypedData
	out.Account = &toll.DelegationAccount{Address: r.Account, CodeRequired: r.CodeRequired}
	return nil
}

// Sign activates a pending delegation with the signature of its account, and with a signed EIP-7702 authorization as JSON, which
// an account without code needs. A repeat gets the same answer. Errors: [toll.CodeBadUUID], [toll.CodeUnknownDelegation],
// [toll.CodeBadRequest] for bad hex and for a delegation that is not pending; [toll.CodeDelegationRevoked],
// [toll.CodeDelegationExpired], [toll.CodeChainSignature], [toll.CodeChainForeignCode], and those of the chain with status 503.
func (c *Delegations) Sign(
	ctx context.Context, owner toll.Address, id, signature string, authorization json.RawMessage,
) (*toll.Delegation, error) {
	now, err := c.ownDelegation(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	d := *now
	if d.Signature, d.Authorization, err = readSignature(signature, authorization); err != nil {
		return nil, err
	}
	if done, err := c.signable(now, d.Signature); done || err != nil {
		return c.recordOf(now, err)
	}
	by, err := c.delegator()
	if err != nil {
		return nil, err
	}
	if err := by.CheckSignature(ctx, details(&d)); err != nil {
		return nil, toll.AsError(err)
	}
	c.failpoint("signature checked")
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		if now, err = store.DelegationForUpdate(ctx, tx, d.ID); err != nil {
			return err
		}
		if done, err := c.signable(now, d.Signature); done || err != nil {
			return err
		}
		now.Signature, now.Authorization = d.Signature, d.Authorization
		if err := store.UpdateDelegation(ctx, tx, now); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, c.delegationEvent(now, toll.EventDelegationCreated, c.now()))
	})
	return c.recordOf(now, Fault(err))
}

// recordOf is the record of a delegation, or the error alone.
func (c *Delegations) recordOf(d *store.Delegation, err error) (*toll.Delegation, error) {
	if err != nil {
		return nil, err
	}
	return c.record(d), nil
}

// signable reports whether a delegation has this signature already; the error says why it takes none.
func (c *Delegations) signable(d *store.Delegation, signature []byte) (done bool, err error) {
	refuse := func(code toll.Code) *toll.Error { return toll.NewError(code).WithDetails("delegationId %s", d.ID) }
	switch {
	case !d.RevokedAt.IsZero():
		return false, refuse(toll.CodeDelegationRevoked)
	case !c.now().Before(d.ExpiresAt):
		return false, refuse(toll.CodeDelegationExpired)
	case d.OwnerAccount.IsZero():
		return false, toll.Errorf(toll.CodeBadRequest, "The delegation needs no signature.").WithDetails("delegationId %s", d.ID).
			WithHint("Only a delegation that was created with ownerAccount needs a signature.")
	case d.Pending():
		return false, nil
	case !bytes.Equal(d.Signature, signature):
		return false, toll.Errorf(toll.CodeBadRequest, "The delegation already has another signature.").WithDetails("delegationId %s", d.ID).
			WithHint("The delegation is already active. To sign different terms, revoke it and create another delegation.")
	}
	return true, nil
}

// readSignature returns a signature and an authorization as they are stored.
func readSignature(signature string, authorization json.RawMessage) ([]byte, string, error) {
	var faults []toll.Fault
	text, prefixed := strings.CutPrefix(signature, "0x")
	raw, err := hex.DecodeString(text)
	if !prefixed || err != nil || len(raw) == 0 || len(raw) > maxSignature {
		faults = append(faults, toll.Fault{Path: "signature", Message: "must be 0x followed by 1 to 1024 bytes in hexadecimal"})
	}
	stored := ""
	if text := bytes.TrimSpace(authorization); len(text) > 0 && string(text) != "null" {
		var b bytes.Buffer
		if err := json.Compact(&b, text); err != nil || b.Len() > maxAuthorization || b.Bytes()[0] != '{' {
			faults = append(faults, toll.Fault{Path: "authorization", Message: "must be a JSON object of at most 2048 bytes"})
		}
		stored = b.String()
	}
	if len(faults) > 0 {
		return nil, "", toll.Faults(faults)
	}
	return raw, stored, nil
}
