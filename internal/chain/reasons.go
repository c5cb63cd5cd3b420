package chain

import (
	"cmp"
	"context"
	"errors"
	"math/big"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/store"
)

// retryAfter says when it makes sense to ask again, in seconds.
var retryAfter = map[toll.Code]int{
	toll.CodeChainUnreachable: 5,
	toll.CodeChainContracts:   60,
	toll.CodeChainRelayerLow:  60,
	toll.CodeChainFeeCap:      15,
	toll.CodeChainPaused:      60,
	toll.CodeChainSignerCap:   60,
}

// unusable is the error of a rail that cannot be used now: it decides nothing.
func unusable(code toll.Code, cause error) *toll.Error {
	return &toll.Error{Code: code, RetryAfterSecs: retryAfter[code], Err: cause}
}

// Reverts of the framework around a delegation, and what they mean to who pays. The texts are those of the contracts.
var delegationReasons = map[string]toll.Code{
	"ERC20TransferAmountEnforcer:allowance-exceeded": toll.CodeDelegationInsufficient,
	"TimestampEnforcer:expired-delegation":           toll.CodeDelegationExpired,
	"CannotUseADisabledDelegation()":                 toll.CodeDelegationRevoked,
	"AllowedCalldataEnforcer:invalid-calldata":       toll.CodeDelegationPlanMismatch,
	"InvalidEOASignature()":                          toll.CodeChainSignature,
	"InvalidERC1271Signature()":                      toll.CodeChainSignature,
	"EmptySignature()":                               toll.CodeChainSignature,
	"ECDSAInvalidSignature()":                        toll.CodeChainSignature,
}

// Reverts of a token whose owner has too little of it. Whatever a token says, the balance is read, too.
func saysTooLittle(reason string) bool {
	return reason == "ERC20: transfer amount exceeds balance" || strings.HasPrefix(reason, "ERC20InsufficientBalance(")
}

const paused = "EnforcedPause()"

// codeOfReason returns the code of a revert, [toll.CodeChainFailed] for one that nobody who pays can do something about. A
// contract that is paid chooses its own text, so those of delegations mean something only where one is used.
func codeOfReason(reason string, delegated bool) toll.Code {
	if saysTooLittle(reason) {
		return toll.CodeChainBalance
	}
	if delegated {
		if code, ok := delegationReasons[reason]; ok {
			return code
		}
		if strings.HasPrefix(reason, "ECDSAInvalidSignature") {
			return toll.CodeChainSignature
		}
	}
	return toll.CodeChainFailed
}

// failure says what a revert of the inner call of an operation means, in a simulation or in its event. The chain is asked for
// what belongs to it (balance, spent units) as far as it answers.
func (r *Rail) failure(ctx context.Context, op *Op, reason string) *Failure {
	f := &Failure{Code: codeOfReason(reason, op.DelegationID != ""), Reason: reason}
	f.Reason = cmp.Or(f.Reason, "The call failed without a reason.")
	switch f.Code {
	case toll.CodeChainBalance, toll.CodeChainFailed:
		err := checkBalance(ctx, r.chain, op)
		switch low, isLow := errors.AsType[*Failure](err); {
		case isLow:
			f.Code, f.Params = low.Code, low.Params
		case err != nil:
			r.log.WarnContext(ctx, "the balance of an account could not be read", "account", op.Payer, "order", op.ID, "err", err)
		case f.Code == toll.CodeChainBalance:
			f.Code = toll.CodeChainFailed // what it says is not so
		}
		if f.Code == toll.CodeChainFailed {
			alarm.Log(ctx, r.log, alarm.ChainRefused, "an operation fails for a reason that the payer did not cause", "op", op.ID, "reason", f.Reason)
		}
	case toll.CodeDelegationInsufficient:
		r.correct(ctx, op)
	}
	return f
}

// checkBalance returns a [*Failure] for a payer that has less than an order needs now, with the word of the protocol for a sale.
func checkBalance(ctx context.Context, r *reader, op *Op) error {
	needed := new(big.Int)
	for _, p := range op.Payments {
		needed.Add(needed, p.Amount)
	}
	available, err := r.balance(ctx, op.Token, op.Payer)
	if err != nil || available.Cmp(needed) >= 0 {
		return err
	}
	f := &Failure{Code: toll.CodeChainBalance, Reason: "The balance of the account is too low.", Params: map[string]any{
		"address": toll.Address(op.Payer).String(), "token": toll.Address(op.Token).String(),
		"needed": needed.String(), "available": available.String(),
	}}
	if op.Kind == KindSale {
		f.Params[paramReason] = wordBalance
	}
	return f
}

// correct says how much of a delegation the chain has counted: it was spent elsewhere. What fails here, the events of
// the enforcer correct later.
func (r *Rail) correct(ctx context.Context, op *Op) {
	if op.Delegation == (common.Hash{}) || op.Token == (common.Address{}) {
		return
	}
	units, err := r.chain.spent(ctx, contracts.ERC20TransferAmountEnforcer, op.Delegation)
	if err == nil {
		err = r.reportSpent(ctx, op.DelegationID, units)
	}
	if err != nil {
		r.log.WarnContext(ctx, "the spent amount of a delegation could not be updated from the chain", "delegation", op.DelegationID, "err", err)
	}
}

func (r *Rail) reportSpent(ctx context.Context, delegationID string, units *big.Int) error {
	amount, err := toll.ParseUnits(units.String())
	if err != nil {
		return err
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return r.cfg.Orders.Spent(ctx, tx, delegationID, amount) })
}

// errNonceUsed says that the chain has run the nonce of an operation already. Its event tells what became of it.
var errNonceUsed = errors.New("chain: the nonce of the operation is already used")

// verdict reads the error of a simulation: a [*Failure] decides, and other errors do not.
func (r *Rail) verdict(ctx context.Context, op *Op, err error) error {
	v, ok := errors.AsType[*reverted](err)
	if !ok && op.Kind == KindSale && halted(err) && !r.signedByKey(op) {
		v, ok = &reverted{reason: "the code of the account uses all the gas"}, true
	}
	switch {
	case !ok:
		return err
	case !v.outer && op.Kind == KindSale:
		return r.saleVerdict(ctx, op, v.reason)
	case !v.outer && v.reason == paused && op.DelegationID != "":
		return unusable(toll.CodeChainPaused, err)
	case !v.outer:
		return r.failure(ctx, op, v.reason)
	case strings.Contains(v.reason, "AA25 "):
		alarm.Log(ctx, r.log, alarm.ChainOutcomeUnknown, "the nonce of an operation is used, but its event is not known yet", "op", op.ID)
		return errNonceUsed
	case strings.Contains(v.reason, "AA95 "):
		return err // of this gas; another try has another estimate
	}
	alarm.Log(ctx, r.log, alarm.ChainRefused, "the EntryPoint rejected an operation", "op", op.ID, "reason", v.reason)
	return &Failure{Code: toll.CodeChainFailed, Reason: "The EntryPoint rejected the operation: " + v.reason}
}

// refused reads the error of the signer as [Rail.verdict] does one of the chain. Nothing was signed.
func refused(op *Op, err error) error {
	if errors.Is(err, signer.ErrNoKey) {
		if op.DelegationID == "" {
			return &Failure{Code: toll.CodeDelegationNotFound, Reason: "The user holds the key of this account, so paying from it requires a delegation."}
		}
		return &Failure{Code: toll.CodeChainSignature, Reason: "The user holds the key of this account and has not signed the delegation."}
	}
	v, ok := errors.AsType[*signer.Refusal](err)
	if !ok {
		return err
	}
	code := toll.CodeChainFailed
	switch v.Reason {
	case signer.OverCap:
		e := unusable(toll.CodeChainSignerCap, err)
		if v.RetryAfter > 0 {
			e.RetryAfterSecs = int((v.RetryAfter + time.Second - 1) / time.Second)
		}
		return e
	case signer.OtherContent:
		return conflict(op.ID).WithCause(err)
	case signer.ForeignReceiver:
		code = toll.CodeDelegationPlanMismatch
	case signer.OtherToken:
		code = toll.CodeUnsupportedScheme
	case signer.OverLimit:
		code = toll.CodeDelegationInsufficient
	case signer.ForeignChain:
		code = toll.CodeChainSignature
	}
	return &Failure{Code: code, Reason: "The signer rejected the request: " + string(v.Reason) + "."}
}

func conflict(orderID string) *toll.Error {
	return toll.NewError(toll.CodeChainOrderConflict).WithDetails("orderId %s", orderID)
}
