package railtest

import (
	"context"
	"encoding/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// Undo is a reorganisation after which the payment of an order has not been made, and never will be. Who tells the checkout is the test.
func (r *Rail) Undo(orderID string, code toll.Code, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.orders[orderID]; o != nil {
		o.charges = 0
		o.payment = rail.Payment{Outcome: rail.Outcome{Status: toll.OrderFailed, FailureCode: code, FailureReason: reason, Ended: true}}
	}
}

// Redo is a reorganisation after which the payment of an order that had failed is made.
func (r *Rail) Redo(orderID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.orders[orderID]; o != nil && !paid(o) {
		o.payment = rail.Payment{}
		charge(o)
	}
}

// Finalize puts the payment of an order beyond any reorganisation.
func (r *Rail) Finalize(orderID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.orders[orderID]; o != nil && paid(o) {
		o.payment.Status = toll.OrderFinal
	}
}

// Signature is one that the rail takes, of whatever delegation: 65 bytes as an account would sign them.
var Signature = func() (b [65]byte) {
	for i := range b {
		b[i] = 0x11
	}
	b[64] = 27
	return b
}()

func (r *Rail) refusesAccount() error {
	switch {
	case r.now.Unreachable != "":
		return toll.NewError(r.now.Unreachable)
	case r.now.BadAccount != "":
		return toll.NewError(r.now.BadAccount)
	}
	return nil
}

func (r *Rail) SignatureRequest(_ context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Unreachable != "" {
		return nil, toll.NewError(r.now.Unreachable)
	}
	return &rail.SignatureRequest{
		Account: d.OwnerAccount, CodeRequired: true,
		TypedData: map[string]any{
			"primaryType": "Delegation", "domain": map[string]any{"name": "DelegationManager", "version": "1"},
			"message": map[string]any{"delegator": d.OwnerAccount, "salt": toll.Hash(toll.Keccak256([]byte("delegation:" + d.ID)))},
		},
	}, nil
}

// CheckSignature implements rail.Delegator: it takes [Signature], and an authorization that names any address.
func (r *Rail) CheckSignature(_ context.Context, d *rail.Delegation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refusesAccount(); err != nil {
		return err
	}
	var authorization struct {
		Address toll.Address `json:"address"`
	}
	if len(d.Authorization) > 0 && json.Unmarshal(d.Authorization, &authorization) != nil {
		return toll.NewError(toll.CodeChainSignature)
	}
	if string(d.Signature) != string(Signature[:]) {
		return toll.NewError(toll.CodeChainSignature)
	}
	return nil
}

func (r *Rail) Revoke(_ context.Context, d *rail.Delegation) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked[d.ID]++
	if r.now.Unreachable != "" {
		return false, toll.NewError(r.now.Unreachable)
	}
	return !r.now.Revoking, nil
}

func (r *Rail) Revocation(context.Context, *rail.Delegation) (*rail.Call, error) {
	return &rail.Call{To: toll.Address{0xde, 19: 1}, Data: []byte{0x49, 0x93, 0x40, 0x47}}, nil
}

// Revocations returns how often a delegation was to be disabled.
func (r *Rail) Revocations(delegationID string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revoked[delegationID]
}
