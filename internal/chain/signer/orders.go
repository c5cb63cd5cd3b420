package signer

import (
	"context"
	"math"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
)

// maxID is how long the id of an order or a delegation may be, in bytes.
const maxID = 200

// Order asks for the operation that pays an order.
type Order struct {
	OrderID           string
	Sender            common.Address // direct: the account that pays; delegated: the service account
	Token             common.Address // zero: the native token
	Transfers         []userop.Transfer
	Total             *big.Int // sum of the transfers, base units
	Cents             int64    // the price, for the hourly cap; USDC and EURC count at least for what Total is, rounded up
	CallGas           uint64
	VerificationGas   uint64                   // 0: [userop.VerificationGas]
	Delegation        *userop.SignedDelegation // nil: direct
	AllowedRecipients []common.Address         // of the delegation; empty: any
}

// Order signs the operation of an order. For one order id it signs one content (sender, token, transfers, delegation); the
// same content may be signed again, also with other gas limits, and counts once against the cap.
func (s *Signer) Order(ctx context.Context, o Order) (*userop.Operation, error) {
	const kind = "order"
	if reason := s.checkOrder(&o); reason != "" {
		return nil, s.refuse(ctx, kind, bounded(o.OrderID), reason)
	}
	pay := userop.DirectCall
	if o.Delegation != nil {
		pay = func(token common.Address, transfers []userop.Transfer) ([]byte, error) {
			return userop.DelegatedCall(token, transfers, o.Delegation)
		}
	}
	callData, err := pay(o.Token, o.Transfers)
	if err != nil {
		return nil, s.refuse(ctx, kind, o.OrderID, Malformed)
	}
	op := userop.New(o.Sender, userop.OrderKey(o.OrderID), callData, o.CallGas)
	if o.VerificationGas != 0 {
		op.AccountGasLimits = userop.GasLimits(o.VerificationGas, o.CallGas)
	}
	return s.admitted(ctx, kind, o.OrderID, op, &s.limits.accounts, s.cents(&o))
}

// admitted signs the operation of an order or a sale, and counts it once on a purse. Its calldata says all but the sender: token,
// receivers, amounts, delegation.
func (s *Signer) admitted(ctx context.Context, kind, id string, op *userop.Operation, on *purse, cents int64) (*userop.Operation, error) {
	k, err := s.key(ctx, op.Sender)
	if err != nil {
		return nil, err
	}
	defer k.Zero()
	content := crypto.Keccak256Hash(op.Sender[:], op.CallData)
	if reason, wait := s.limits.admit(on, userop.OrderKey(id), content, cents); reason != "" {
		return nil, s.refused(ctx, id, &Refusal{Request: kind, Reason: reason, RetryAfter: wait})
	}
	op.Signature, err = sign(k, op.SigningHash(s.chainID))
	return op, err
}

func (s *Signer) checkOrder(o *Order) Reason {
	if o.OrderID == "" || len(o.OrderID) > maxID || o.Cents < 0 || o.Total == nil || len(o.Transfers) == 0 {
		return Malformed
	}
	sum := new(big.Int)
	for _, t := range o.Transfers {
		if t.Amount == nil || t.Amount.Sign() < 0 {
			return Malformed
		}
		sum.Add(sum, t.Amount)
		if len(o.AllowedRecipients) > 0 && !slices.Contains(o.AllowedRecipients, t.To) {
			return ForeignReceiver
		}
	}
	if sum.Cmp(o.Total) != 0 {
		return WrongTotal
	}
	if o.Delegation == nil {
		if o.Sender == s.service || s.sends(o.Sender) {
			return ForeignAccount
		}
		return ""
	}
	if o.Sender != s.service {
		return ForeignAccount
	}
	return s.checkDelegated(o)
}

// checkDelegated finds early what the enforcers would find: an order that the chain would refuse is a fault of ours or an attack.
func (s *Signer) checkDelegated(o *Order) Reason {
	t, err := o.Delegation.Terms()
	switch {
	case err != nil || t.Delegate != s.service || t.Delegator == s.service || s.sends(t.Delegator):
		return ForeignDelegate
	case t.Token != o.Token:
		return OtherToken
	case o.Total.Cmp(t.Limit) > 0:
		return OverLimit
	case o.Delegation.Check(s.chainID) != nil:
		return ForeignChain
	}
	for _, transfer := range o.Transfers {
		if t.Receiver != nil && transfer.Amount.Sign() != 0 && transfer.To != *t.Receiver {
			return ForeignReceiver
		}
	}
	return ""
}

// cents is what an order counts against the cap.
func (s *Signer) cents(o *Order) int64 {
	chain := s.chainID.Uint64()
	if o.Token == (common.Address{}) || o.Token != contracts.USDC(chain) && o.Token != contracts.EURC(chain) {
		return o.Cents
	}
	return max(o.Cents, hundredths(o.Total))
}

// hundredths of a token with 6 decimals, rounded up.
func hundredths(units *big.Int) int64 {
	n := new(big.Int).Add(units, big.NewInt(9_999))
	if n.Quo(n, big.NewInt(10_000)); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// bounded is an id as it may be logged, whatever its length.
func bounded(id string) string { return id[:min(len(id), maxID)] }

// Void asks for the operation that makes the one of an order impossible.
type Void struct {
	OrderID string
	Sender  common.Address // of the operation of the order
	CallGas uint64
}

// Void signs an operation that uses up the nonce of the operation of an order.
func (s *Signer) Void(ctx context.Context, v Void) (*userop.Operation, error) {
	const kind = "void"
	switch {
	case v.OrderID == "" || len(v.OrderID) > maxID:
		return nil, s.refuse(ctx, kind, bounded(v.OrderID), Malformed)
	case s.sends(v.Sender):
		return nil, s.refuse(ctx, kind, v.OrderID, ForeignAccount)
	}
	return s.operation(ctx, userop.New(v.Sender, userop.VoidKey(v.OrderID), userop.VoidCall(userop.OrderKey(v.OrderID)), v.CallGas))
}

func (s *Signer) operation(ctx context.Context, op *userop.Operation) (*userop.Operation, error) {
	signature, err := s.signature(ctx, op.Sender, op.SigningHash(s.chainID))
	op.Signature = signature
	return op, err
}
