package signer

import (
	"context"

	"github.com/tollhq/toll/internal/chain/userop"
)

// Delegation asks for the signature of a delegator whose key the service holds.
type Delegation struct {
	Delegation *userop.Delegation
}

// Delegation signs a delegation to the service account. It has to be one that [userop.NewDelegation] makes:
// a delegation to another account or without a limit would give the money away.
func (s *Signer) Delegation(ctx context.Context, r Delegation) (*userop.SignedDelegation, error) {
	const kind = "delegation"
	if r.Delegation == nil {
		return nil, s.refuse(ctx, kind, "", Malformed)
	}
	id := r.Delegation.Delegator.Hex()
	t, err := r.Delegation.Terms()
	switch {
	case err != nil || t.Delegate != s.service:
		return nil, s.refuse(ctx, kind, id, ForeignDelegate)
	case t.Delegator == s.service || s.sends(t.Delegator):
		return nil, s.refuse(ctx, kind, id, ForeignAccount)
	}
	signature, err := s.signature(ctx, t.Delegator, r.Delegation.SigningHash(s.chainID))
	if err != nil {
		return nil, err
	}
	return &userop.SignedDelegation{Delegation: *r.Delegation, Signature: signature}, nil
}

// Revoke asks for the operation with which a delegator disables a delegation on the chain.
type Revoke struct {
	DelegationID string
	Failed       int // operations that were to do so before
	Delegation   *userop.Delegation
	CallGas      uint64
}

// Revoke signs the operation of the delegator. The delegation has to be the one of the id.
func (s *Signer) Revoke(ctx context.Context, r Revoke) (*userop.Operation, error) {
	const kind = "revoke"
	if r.DelegationID == "" || len(r.DelegationID) > maxID || r.Failed < 0 || r.Delegation == nil || r.Delegation.Salt == nil {
		return nil, s.refuse(ctx, kind, bounded(r.DelegationID), Malformed)
	}
	if _, err := r.Delegation.Terms(); err != nil || r.Delegation.Salt.Cmp(userop.Salt(r.DelegationID)) != 0 {
		return nil, s.refuse(ctx, kind, r.DelegationID, ForeignDelegate)
	}
	from := r.Delegation.Delegator
	if from == s.service || s.sends(from) {
		return nil, s.refuse(ctx, kind, r.DelegationID, ForeignAccount)
	}
	return s.operation(ctx, userop.New(from, userop.RevokeKey(r.DelegationID, r.Failed), userop.RevokeCall(*r.Delegation), r.CallGas))
}
