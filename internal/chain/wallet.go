package chain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
)

// Wallet is what an account has, at the latest block.
type Wallet struct {
	Account common.Address
	Code    string   // "none", "account" for that of our accounts, "foreign" for any other
	Native  *big.Int // wei
	USDC    *big.Int // base units
	EURC    *big.Int // base units
}

// Wallet reads an account. Errors: [toll.CodeChainUnreachable].
func (r *Rail) Wallet(ctx context.Context, of common.Address) (Wallet, error) {
	w := Wallet{Account: of}
	amount := func(into **big.Int, token common.Address) func() error {
		return func() (err error) {
			*into, err = r.chain.balance(ctx, token, of)
			return err
		}
	}
	err := together(
		amount(&w.Native, common.Address{}),
		amount(&w.USDC, contracts.USDC(r.cfg.ChainID)),
		amount(&w.EURC, contracts.EURC(r.cfg.ChainID)),
		func() error {
			all, err := r.chain.accounts(ctx, of)
			w.Code = all[of].code.String()
			return err
		},
	)
	return w, err
}

const (
	// readyFor is how long a look that found everything in order counts.
	readyFor = time.Second
	// contractsFor is the same for the code of the contracts, which is bound to their addresses.
	contractsFor = 10 * time.Minute
)

// readiness finds out whether orders can be signed and sent, and keeps what the last look found.
type readiness struct {
	cfg     *Config
	chain   *reader
	stopped atomic.Pointer[error]

	mu             sync.Mutex
	all, contracts time.Time // when it was in order; zero: not yet
	low            map[common.Address]bool
	head           time.Time // of the newest block that was read
	wei            map[common.Address]*big.Int
}

// Seen is what the last looks have read of the chain.
type Seen struct {
	Head     time.Time                   // of the newest block; zero: none
	Relayers map[common.Address]*big.Int // wei
	// What the signer may sign for in an hour, 0 for no cap, and what it has signed for, in cents.
	Cap, Signed int64
}

// Seen returns what the last looks have read. It asks nobody.
func (r *readiness) Seen() Seen {
	r.mu.Lock()
	s := Seen{Head: r.head, Relayers: maps.Clone(r.wei)}
	r.mu.Unlock()
	s.Cap, s.Signed = signer.Signed(r.cfg.Signer)
	return s
}

// Ready reports whether orders can be signed and sent now. Errors, all with status 503 and RetryAfterSecs: [toll.CodeChainUnreachable],
// [toll.CodeChainContracts], [toll.CodeChainRelayerLow] when no relayer has the gas money of its floor, [toll.CodeChainFeeCap].
func (r *readiness) Ready(ctx context.Context) error {
	if err := r.halted(); err != nil {
		return unusable(toll.CodeChainContracts, err)
	}
	now := r.cfg.Clock()
	r.mu.Lock()
	fresh := func(at time.Time, d time.Duration) bool { return !at.IsZero() && !now.Before(at) && now.Sub(at) < d }
	all, known := fresh(r.all, readyFor), fresh(r.contracts, contractsFor)
	r.mu.Unlock()
	if all {
		return nil
	}
	jobs := []func() error{func() error { return r.feeInBounds(ctx) }, func() error { return r.relayersFunded(ctx) }}
	if !known {
		jobs = append(jobs, func() error { return r.contractsMatch(ctx) })
	}
	if err := together(jobs...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = now
	if !known {
		r.contracts = now
	}
	return nil
}

// contractsMatch compares the code of the contracts. Tokens of public chains can be changed by their owners, so those are asked
// for their decimals and symbols.
func (r *readiness) contractsMatch(ctx context.Context) error {
	var wrong []contracts.Mismatch
	err := r.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		wrong = contracts.Check(ctx, c, r.cfg.ChainID)
		if !r.cfg.Embedded {
			wrong = append(wrong, contracts.CheckTokens(ctx, c, r.cfg.ChainID)...)
		}
		for _, m := range wrong {
			if _, answer := errors.AsType[rpc.Error](m.Err); m.Err != nil && !answer && !errors.Is(m.Err, contracts.ErrUnknownChain) {
				return m.Err
			}
		}
		return nil
	})
	if err != nil || len(wrong) == 0 {
		return err
	}
	for _, m := range wrong {
		alarm.Log(ctx, r.cfg.Log, alarm.ContractChanged, "a contract on the chain does not have the expected code", "contract", m.Name, "address", m.Address, "found", m.Found, "want", m.Want)
	}
	return unusable(toll.CodeChainContracts, nil)
}

func (r *readiness) feeInBounds(ctx context.Context) error {
	head, err := r.chain.header(ctx, nil)
	if err == nil {
		r.mu.Lock()
		r.head = time.Unix(int64(head.Time), 0)
		r.mu.Unlock()
	}
	if err == nil && head.BaseFee != nil && head.BaseFee.Cmp(r.cfg.MaxBaseFee) > 0 {
		err = unusable(toll.CodeChainFeeCap, fmt.Errorf("chain: the base fee is %s, the cap is %s wei", head.BaseFee, r.cfg.MaxBaseFee))
	}
	return err
}

// relayersFunded looks for one relayer that may send. An alarm is raised when one falls below its floor.
func (r *readiness) relayersFunded(ctx context.Context) error {
	able := 0
	for _, relayer := range r.cfg.Relayers {
		has, err := r.chain.balance(ctx, common.Address{}, relayer)
		if err != nil {
			return err
		}
		low := has.Cmp(r.cfg.RelayerFloor) < 0
		if !low {
			able++
		}
		r.mu.Lock()
		was := r.low[relayer]
		r.low[relayer] = low
		if r.wei == nil {
			r.wei = map[common.Address]*big.Int{}
		}
		r.wei[relayer] = has
		r.mu.Unlock()
		if low && !was {
			alarm.Log(ctx, r.cfg.Log, alarm.RelayerLow, "the balance of a relayer is below its floor", "relayer", relayer, "wei", has, "floor", r.cfg.RelayerFloor)
		}
	}
	if able == 0 {
		return unusable(toll.CodeChainRelayerLow, nil)
	}
	return nil
}

// maxRevocations is how many operations are made to disable a delegation, each after the one before has failed.
const maxRevocations = 8

// Revoke disables a delegation of an account whose key the service holds, on the chain. True says that this is done. Without an error false
// says that the operation that does it is stored and will be sent; as it may fail, Revoke is to be asked again then, too, and makes another
// one. A repeat does no harm. [signer.ErrNoKey] for an account that its user holds, for which [Rail.Revocation] is.
func (r *Rail) Revoke(ctx context.Context, d *rail.Delegation) (done bool, err error) {
	if err := r.cfg.Start(ctx); err != nil {
		return false, err
	}
	made, err := r.onChain(d)
	if err != nil {
		return false, err
	}
	if !d.OwnerAccount.IsZero() {
		return false, signer.ErrNoKey
	}
	hash, now := made.Hash(), r.cfg.Clock()
	if err := r.remember(ctx, hash, d.ID); err != nil {
		return false, err
	}
	for failed := range maxRevocations {
		op, err := r.records.addOp(ctx, &Op{
			ID: revocationID(d.ID, failed), Kind: KindRevoke, State: Created, Digest: hash, Sender: made.Delegator, Payer: made.Delegator,
			DelegationID: d.ID, Delegation: hash, NonceKey: userop.RevokeKey(d.ID, failed), CreatedAt: now, UpdatedAt: now,
		})
		if err != nil {
			return false, err
		}
		if op.State == Created {
			err = r.signRevocation(ctx, op, made, failed)
		}
		switch {
		case err == nil && op.State != Failed:
			return op.State == Confirmed || op.State == Final, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, ErrChanged):
			return false, err
		}
		if done, e := r.chain.disabled(ctx, hash); e == nil && done {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("chain: %d revocations of delegation %s failed", maxRevocations, d.ID)
}

// revocationID is the id of the operation that disables a delegation after this many others have failed to.
func revocationID(delegationID string, failed int) string {
	id := string(KindRevoke) + ":" + delegationID
	if failed > 0 {
		id += ":" + strconv.Itoa(failed)
	}
	return id
}

// signRevocation takes a revocation from Created to Signed, or to Failed when its account has used its nonce.
func (r *Rail) signRevocation(ctx context.Context, op *Op, made *userop.Delegation, failed int) error {
	if err := r.Ready(ctx); err != nil {
		return err
	}
	all, err := r.chain.accounts(ctx, op.Sender)
	if err != nil {
		return err
	}
	if all[op.Sender].code == codeForeign {
		return unsupportedCode(op.Sender)
	}
	gas, err := r.chain.inner(ctx, op.Sender, userop.RevokeCall(*made), all)
	if errors.Is(err, errNoOverrides) {
		gas, err = r.guess(op), nil
	}
	if err != nil {
		return err
	}
	operation, err := r.cfg.Signer.Revoke(ctx, signer.Revoke{DelegationID: op.DelegationID, Failed: failed, Delegation: made, CallGas: gas})
	if err != nil {
		return err
	}
	switch err := r.chain.outer(ctx, operation, all); {
	case nonceRan(err):
		op.fail(&Failure{Code: toll.CodeChainFailed, Reason: "The account used the nonce of the revocation for a different operation."})
	case err != nil && !errors.Is(err, errNoOverrides):
		return err
	default:
		op.State, op.Operation, op.Hash = Signed, operation, operation.Hash(r.chainID)
	}
	op.UpdatedAt = r.cfg.Clock()
	if err := r.records.update(ctx, op); err != nil {
		return err
	}
	r.work.Fire()
	return nil
}

// Revocation returns the call with which the holder of an account disables a delegation: from the account itself, without
// value. It sends nothing.
func (r *delegations) Revocation(_ context.Context, d *rail.Delegation) (*rail.Call, error) {
	made, err := r.onChain(d)
	if err != nil {
		return nil, err
	}
	return &rail.Call{To: toll.Address(contracts.DelegationManager), Data: userop.RevokeCall(*made)}, nil
}
