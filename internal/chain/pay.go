package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// readEvery is how often a waiting caller reads an operation that another process may change. Changes by this process wake the caller.
	readEvery = time.Second
	// earlyPause is the pause before a sale is signed whose authorization is valid from the next block on.
	earlyPause = 150 * time.Millisecond
	// maxRemembered bounds the cache of delegations that are already stored.
	maxRemembered = 1 << 16
)

// Prepare implements [rail.Rail]. It reads neither the chain nor the database.
func (r *Rail) Prepare(_ context.Context, p *rail.Purchase) error {
	op, err := r.newOp(p)
	if err == nil && op.Failure != nil {
		return op.Failure.asError()
	}
	return err
}

// Begin implements [rail.Rail]. Errors: [toll.CodeChainOrderConflict] for an order id that was used with other content, [ErrSold].
func (r *Rail) Begin(ctx context.Context, tx *store.Tx, p *rail.Purchase) error {
	op, err := r.newOp(p)
	if err != nil {
		return err
	}
	r.cfg.At("order")
	there, err := r.records.insertOp(ctx, tx, op)
	if err == nil && there.Digest != op.Digest {
		err = conflict(op.ID)
	}
	return err
}

// newOp makes the operation of any purchase, in the state Created, or Failed when it can never be paid. It stores nothing.
func (r *Rail) newOp(p *rail.Purchase) (*Op, error) {
	if p.Sale == nil {
		return r.newOrderOp(p)
	}
	op, err := r.newSaleOp(p.Sale)
	if f, ok := errors.AsType[*Failure](err); ok {
		return &Op{State: Failed, Failure: f}, nil
	}
	return op, err
}

func (r *Rail) Payment(ctx context.Context, q store.Querier, orderID string) (rail.Payment, error) {
	op, err := opOf(store.ChainOpByID(ctx, q, orderID))
	if err != nil {
		return rail.Payment{}, err
	}
	return paymentOf(op), nil
}

// Resume implements [rail.Rail]: it signs an order that is not signed yet. The relayers and the tracker do the rest, in any process.
//
// Errors: [toll.CodeChainOrderConflict] for an order that was begun with other content; with status 503 and RetryAfterSecs
// [toll.CodeChainUnreachable], [toll.CodeChainContracts], [toll.CodeChainRelayerLow], [toll.CodeChainFeeCap],
// [toll.CodeChainPaused], [toll.CodeChainSignerCap].
func (r *Rail) Resume(ctx context.Context, p *rail.Purchase) error {
	want, err := r.newOp(p)
	if err != nil {
		return err
	}
	r.cfg.At("created")
	op, err := r.records.op(ctx, p.OrderID)
	if err == nil && op.Digest != want.Digest {
		err = conflict(op.ID)
	}
	if err != nil {
		return err
	}
	return r.resume(ctx, op, p.Delegation)
}

// resume is [Rail.Resume] for an operation. d is its delegation. It returns nil if another process has changed the operation meanwhile.
func (r *Rail) resume(ctx context.Context, op *Op, d *rail.Delegation) error {
	var err error
	switch op.State {
	case Created:
		err = r.cfg.Start(ctx)
		for first := true; err == nil && (first || backoff.Sleep(ctx, earlyPause)); first = false {
			if err = r.sign(ctx, op, d); !errors.Is(err, errEarly) {
				break
			}
			err = nil
		}
	case Signed:
		if err = r.cfg.Start(ctx); err == nil {
			err = r.Ready(ctx)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		return r.delay(ctx, op, nil)
	}
	if now, e := r.records.op(ctx, op.ID); errors.Is(err, ErrChanged) || e == nil && now.Version != op.Version {
		return nil // the error may come from what the other process did
	}
	if delay := rail.NewDelay(err, r.cfg.Clock()); delay != nil {
		if e := r.delay(ctx, op, delay); e != nil {
			return e
		}
	}
	return err
}

// delay stores why an operation cannot be carried on now; nil clears it. A write of another process takes precedence.
func (r *Rail) delay(ctx context.Context, op *Op, d *rail.Delay) error {
	if op.State != Created && op.State != Signed || d == nil && (op.Delay == nil || op.State == Created) {
		return nil // sign and store (transactions.go) clear it themselves
	}
	next := *op
	next.Delay = d
	if err := r.records.update(ctx, &next); !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}

// awaitOutcome resumes a stored operation until it is decided or ctx ends. It reads it at least once a second.
func (r *Rail) awaitOutcome(ctx context.Context, op *Op, d *rail.Delegation) (rail.Payment, error) {
	changed, leave := r.waiters.Join(op.ID)
	defer leave()
	for ctx.Err() == nil {
		next, err := r.records.op(ctx, op.ID)
		if err == nil {
			op = next
			switch op.State {
			case Confirmed, Final, Failed:
				return paymentOf(op), nil
			}
			err = r.resume(ctx, op, d)
		}
		if err != nil && ctx.Err() == nil {
			return paymentOf(op), err
		}
		rail.Wait(ctx, readEvery, changed, nil, nil)
	}
	return paymentOf(op), nil
}

// newOrderOp is newOp for a purchase that the wallet of the subscriber or a delegation pays.
func (r *Rail) newOrderOp(p *rail.Purchase) (*Op, error) {
	now := r.cfg.Clock()
	op := &Op{
		ID: p.OrderID, Account: p.Account, Kind: KindOrder, State: Created, Sender: common.Address(p.Subscriber), Payer: common.Address(p.Subscriber),
		Token: common.Address(p.Token), TopUp: p.TopUp, NonceKey: userop.OrderKey(p.OrderID),
		CreatedAt: orderedAt(p.OrderedAt, now), UpdatedAt: now,
	}
	sum := new(big.Int)
	for i, amount := range p.Amounts {
		if i < len(p.Receivers) && !amount.IsZero() {
			op.Payments = append(op.Payments, Payment{To: common.Address(p.Receivers[i]), Amount: amount.Int()})
		}
		sum.Add(sum, amount.Int())
	}
	switch {
	case p.OrderID == "" || p.Subscriber.IsZero() || len(p.Amounts) != len(p.Receivers) || sum.Cmp(p.Total.Int()) != 0:
		return nil, fmt.Errorf("chain: order %q has no payer, or its amounts do not match its price", p.OrderID)
	case len(op.Payments) == 0 || len(op.Payments) > userop.MaxTransfers:
		return nil, fmt.Errorf("chain: order %s pays %d receivers, which is not supported", p.OrderID, len(op.Payments))
	}
	currency := r.cfg.currency(op.Token)
	if currency != "" {
		op.Cents = cents(sum)
	}
	d := p.Delegation
	if d != nil {
		made, err := r.onChain(d)
		if err != nil {
			return nil, err
		}
		op.Sender, op.Payer, op.DelegationID = r.cfg.Service, made.Delegator, d.ID
		op.Delegation, op.Before = made.Hash(), uint64(d.ExpiresAt.Unix())
	}
	op.Digest = digest(op)
	native := op.Token == common.Address{}
	switch {
	case native && d != nil:
		op.fail(&Failure{Code: toll.CodeChainNativeDelegation, Reason: "A delegation with a limit in cents cannot pay in the native token."})
	case !native && currency == "" && !slices.Contains(r.cfg.Tokens, op.Token):
		op.fail(&Failure{Code: toll.CodeChainToken, Reason: "The operator does not accept this token.", Params: map[string]any{"token": p.Token.String()}})
	case d == nil:
	case d.Owner != p.Subscriber:
		op.fail(&Failure{Code: toll.CodeDelegationNotFound, Reason: "The delegation belongs to another workspace."})
	case d.Currency != currency:
		op.fail(&Failure{Code: toll.CodeUnsupportedScheme, Reason: "The delegation is in another currency."})
	case !slices.ContainsFunc(op.Payments, func(to Payment) bool { return !pays(d, to.To) }):
	default:
		op.fail(&Failure{Code: toll.CodeDelegationPlanMismatch, Reason: "The delegation does not cover every receiver of the plan."})
	}
	return op, nil
}

// orderedAt is the earliest time at which a payment may be on the chain: when its order was placed.
func orderedAt(at, now time.Time) time.Time {
	if at.IsZero() || at.After(now) {
		return now
	}
	return at
}

func pays(d *rail.Delegation, to common.Address) bool {
	return len(d.AllowedRecipients) == 0 || slices.Contains(d.AllowedRecipients, toll.Address(to))
}

func (op *Op) fail(f *Failure) { op.State, op.Failure = Failed, f }

// cents is a price of a token with 6 decimals in hundredths, rounded up.
func cents(units *big.Int) int64 {
	n := new(big.Int).Add(units, big.NewInt(centUnits-1))
	if n.Quo(n, big.NewInt(centUnits)); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// digest tells whether two orders with the same id are equal: payer, receivers, amounts, token and delegation.
func digest(op *Op) common.Hash {
	content := []any{op.ID, op.Sender, op.Payer, op.Token, op.Payments, op.DelegationID, op.Delegation}
	if op.Kind == KindSale {
		content = append(content, op.Kind, op.Before, op.Sale)
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic(err) // numbers, texts and bytes
	}
	return crypto.Keccak256Hash(text)
}

func transfersOf(payments []Payment) []userop.Transfer {
	return store.Mapped(payments, func(p Payment) userop.Transfer { return userop.Transfer(p) })
}

// sign takes an operation from Created to Signed; to Failed when it cannot be paid, which decides its order; or to Included when others
// have carried the authorization of a sale out already. Nothing has left this process before, so any process may repeat it.
func (r *Rail) sign(ctx context.Context, op *Op, d *rail.Delegation) error {
	if err := r.Ready(ctx); err != nil {
		return err
	}
	next := *op
	next.Delay = nil
	var operation *userop.Operation
	var err error
	if op.Kind == KindSale {
		operation, err = r.buildSale(ctx, &next)
	} else {
		operation, err = r.build(ctx, &next, d)
	}
	if _, fails := errors.AsType[*Failure](err); fails {
		err = cmp.Or(r.decidedBefore(ctx, &next), err)
	}
	if errors.Is(err, errNonceUsed) {
		err = r.usedUp(ctx, &next)
	}
	f, fails := errors.AsType[*Failure](err)
	if err != nil && !fails {
		return err
	}
	next.UpdatedAt = r.cfg.Clock()
	switch {
	case fails:
		next.fail(f)
	case next.Position != (Position{}):
		next.include(operation, r.chainID)
	default:
		next.State, next.Operation, next.Hash = Signed, operation, operation.Hash(r.chainID)
	}
	r.cfg.At("signing")
	if err := r.records.update(ctx, &next); err != nil {
		return err
	}
	r.cfg.At("signed")
	if next.State == Failed {
		r.log.InfoContext(ctx, "an order cannot be paid", "order", op.ID, "code", f.Code, "reason", f.Reason)
	}
	r.waiters.Wake(op.ID)
	r.work.Fire()
	if next.State != Signed {
		r.moved.Fire()
	}
	return nil
}

// build makes the signed operation of an order after a clean simulation. A [*Failure] says why there is none.
func (r *Rail) build(ctx context.Context, op *Op, d *rail.Delegation) (*userop.Operation, error) {
	pay := userop.DirectCall
	request := signer.Order{
		OrderID: op.ID, Sender: op.Sender, Token: op.Token, Transfers: transfersOf(op.Payments), Total: new(big.Int), Cents: op.Cents,
		VerificationGas: userop.VerificationGas,
	}
	for _, p := range op.Payments {
		request.Total.Add(request.Total, p.Amount)
	}
	if d != nil {
		made, err := r.onChain(d)
		if err != nil {
			return nil, err
		}
		if request.Delegation, err = r.signed(ctx, d, made); err != nil {
			return nil, refused(op, err)
		}
		for _, to := range d.AllowedRecipients {
			request.AllowedRecipients = append(request.AllowedRecipients, common.Address(to))
		}
		if err := r.remember(ctx, op.Delegation, d.ID); err != nil {
			return nil, err
		}
		pay = func(token common.Address, to []userop.Transfer) ([]byte, error) {
			return userop.DelegatedCall(token, to, request.Delegation)
		}
	}
	callData, err := pay(op.Token, request.Transfers)
	if err != nil {
		return nil, err
	}
	all, err := r.payingAccounts(ctx, op, d)
	if err == nil {
		err = r.checkToken(ctx, op)
	}
	if err != nil {
		return nil, err
	}
	return r.simulated(ctx, op, callData, all, func(gas uint64) (*userop.Operation, error) {
		request.CallGas = gas
		return r.cfg.Signer.Order(ctx, request)
	})
}

// simulated returns the operation that sign makes with the gas for its call, after a clean simulation of the call before, and of the
// operation itself.
func (r *Rail) simulated(
	ctx context.Context, op *Op, callData []byte, all map[common.Address]account, sign func(gas uint64) (*userop.Operation, error),
) (*userop.Operation, error) {
	gas, err := r.chain.inner(ctx, op.Sender, callData, all)
	if errors.Is(err, errNoOverrides) {
		gas, err = r.guess(op), checkBalance(ctx, r.chain, op)
	} else {
		err = r.verdict(ctx, op, err)
	}
	if err != nil {
		return nil, err
	}
	operation, err := sign(gas)
	if err != nil {
		return nil, refused(op, err)
	}
	if err := r.chain.outer(ctx, operation, all); err != nil && !errors.Is(err, errNoOverrides) {
		return nil, r.verdict(ctx, op, err)
	}
	return operation, nil
}

// remember stores the id of a delegation by its hash, before anything is signed with it. Most orders find it in the cache.
func (r *delegations) remember(ctx context.Context, hash common.Hash, id string) error {
	r.mu.Lock()
	_, known := r.known[hash]
	r.mu.Unlock()
	if known {
		return nil
	}
	if err := r.records.addDelegation(ctx, hash, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxRemembered {
		clear(r.known)
	}
	r.known[hash] = struct{}{}
	return nil
}

// checkToken checks that a token of the operator's list exists on the chain and pays: a transfer of a token without code would succeed and
// move nothing, and so would a transfer of a token that answers false instead of reverting.
func (r *Rail) checkToken(ctx context.Context, op *Op) error {
	if op.Token == (common.Address{}) || r.cfg.currency(op.Token) != "" {
		return nil
	}
	err := checkBalance(ctx, r.chain, op)
	if errors.Is(err, errAnswer) {
		return &Failure{Code: toll.CodeChainToken, Reason: "The token does not exist on the chain.", Params: map[string]any{"token": toll.Address(op.Token).String()}}
	}
	return err
}

// payingAccounts reads the accounts of an order and refuses those that cannot pay it. It sets the
// EIP-7702 authorization of the operation if the user's account still needs one.
func (r *Rail) payingAccounts(ctx context.Context, op *Op, d *rail.Delegation) (map[common.Address]account, error) {
	all, err := r.chain.accounts(ctx, op.Sender, op.Payer)
	if err != nil {
		return nil, err
	}
	if d != nil && !d.OwnerAccount.IsZero() && all[op.Payer].code == codeNone {
		if op.Authorization, err = r.authorization(d, all[op.Payer].nonce); err != nil {
			e := toll.AsError(err)
			return nil, &Failure{Code: e.Code, Reason: e.Text() + " " + e.Details, Params: e.Params}
		}
	}
	if f := checkAccounts(op, all); f != nil {
		return nil, f
	}
	return all, nil
}

func paymentOf(op *Op) rail.Payment {
	p := rail.Payment{Outcome: op.outcome()}
	if op.State == Created || op.State == Signed {
		p.Delay = op.Delay
	}
	return p
}
