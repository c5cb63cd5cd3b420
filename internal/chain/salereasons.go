package chain

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
)

// Words of the protocol for sales that cannot be paid (x402, scheme exact).
const (
	wordPayload      = "invalid_payload"
	wordRequirements = "invalid_payment_requirements"
	wordSignature    = "invalid_exact_evm_payload_signature"
	wordAfter        = "invalid_exact_evm_payload_authorization_valid_after"
	wordBefore       = "invalid_exact_evm_payload_authorization_valid_before"
	wordNonce        = "invalid_exact_evm_nonce_already_used"
	wordBalance      = "invalid_exact_evm_insufficient_balance"
	wordState        = "invalid_transaction_state"
)

// paramReason is the member of Params that has the word.
const paramReason = "reason"

// Reverts of the token, in the texts of FiatToken v2.2, that decide about a sale.
var saleReasons = map[string]string{
	"FiatTokenV2: authorization is expired":  wordBefore,
	"FiatTokenV2: invalid signature":         wordSignature,
	"ECRecover: invalid signature":           wordSignature,
	"ECRecover: invalid signature 'v' value": wordSignature,
	"ECRecover: invalid signature 's' value": wordSignature,
	"ERC20: transfer to the zero address":    wordPayload,
	"Blacklistable: account is blacklisted":  wordState,
	"Pausable: paused":                       wordState,
}

const (
	revertUsed  = "FiatTokenV2: authorization is used or canceled"
	revertEarly = "FiatTokenV2: authorization is not yet valid"
)

var (
	// errUsed says that the nonce of an authorization is used: only the logs of the token tell for what.
	errUsed = errors.New("chain: the nonce of the authorization is already used")
	// errEarly says that the last block is before the start of an authorization, which the next one is not.
	errEarly = errors.New("chain: the last block is before the start of the authorization")
)

func saleFailed(code toll.Code, word, text string) *Failure {
	return &Failure{Code: code, Reason: text, Params: map[string]any{paramReason: word}}
}

func takenNonce(text string) *Failure { return saleFailed(toll.CodePaymentRequired, wordNonce, text) }

func refusedToken(token common.Address, text string) *Failure {
	f := saleFailed(toll.CodeChainToken, wordRequirements, text)
	f.Params["token"] = toll.Address(token).String()
	return f
}

// asError is the failure as an error for who asked before anything was stored.
func (f *Failure) asError() error {
	e := toll.NewError(f.Code).WithDetails("%s", f.Reason)
	for k, v := range f.Params {
		e = e.WithParam(k, v)
	}
	e.Reason, _ = f.Params[paramReason].(string)
	return e
}

// saleVerdict is [Rail.verdict] for a revert of the token. The errors [errUsed] and [errEarly] decide nothing either.
func (r *Rail) saleVerdict(ctx context.Context, op *Op, reason string) error {
	if reason == revertUsed {
		return errUsed
	}
	// A token looks at the times first: one that was carried out has ended as well.
	if used, err := r.chain.used(ctx, op); used || err != nil && !errors.Is(err, errAnswer) {
		return cmp.Or(err, errUsed)
	}
	switch {
	case reason == revertEarly:
		now, err := r.chain.present(ctx)
		if err == nil && op.Sale.After <= now {
			err = errEarly
		}
		if err != nil {
			return err
		}
		return saleFailed(toll.CodePaymentRequired, wordAfter, "The authorization is not valid yet.")
	case saysTooLittle(reason):
		if err := checkBalance(ctx, r.chain, op); err != nil {
			return err
		}
	}
	if word, ok := saleReasons[reason]; ok {
		return saleFailed(toll.CodePaymentRequired, word, reason)
	}
	if !r.signedByKey(op) {
		// Code of the payer runs in the token, and may use up the gas of it.
		return saleFailed(toll.CodePaymentRequired, wordSignature, strings.TrimSpace("The token rejected the signature of the account: "+reason))
	}
	alarm.Log(ctx, r.log, alarm.ChainRefused, "a token rejects an authorization for a reason that the payer did not cause", "order", op.ID, "token", op.Token, "reason", reason)
	return saleFailed(toll.CodeChainFailed, wordState, strings.TrimSpace("The token rejected the authorization: "+reason))
}
