package chain

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
)

const reasonNonce = "The account used the nonce of the order for a different operation."

// uses reads how often the EntryPoint has counted the nonce key of an operation up (ERC-4337, "Semi-abstracted Nonce Support"),
// up to a block or, for nil, to the last one; on live as two endpoints say it.
func (r *reader) uses(ctx context.Context, op *Op, block *big.Int) (uint64, error) {
	nonce, err := agree(ctx, r, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		n, err := viewAt(ctx, c, block, contracts.EntryPoint, "getNonce(address,uint192)", common.LeftPadBytes(op.Sender[:], 32), common.LeftPadBytes(op.NonceKey[:], 32))
		return common.BigToHash(n), err
	})
	if err != nil {
		return 0, err
	}
	n := new(big.Int).Sub(nonce.Big(), userop.Nonce(op.NonceKey))
	if !n.IsUint64() {
		return 0, fmt.Errorf("%w: the nonce of %s", errAnswer, op.ID)
	}
	return n.Uint64(), nil
}

// ran looks for the event of the operation that used the nonce of an order, whosever operation it was, from a block, or the newest
// one for nil, back to some time before the order. An account can use up a nonce without an operation; then there is no event.
func (r *reader) ran(ctx context.Context, op *Op, head *types.Header) (e event, found bool, err error) {
	toHead := head == nil
	if toHead {
		if head, err = r.cfg.Pool.Head(ctx, "latest"); err != nil {
			return event{}, false, away(err)
		}
	}
	nonce := common.BigToHash(userop.Nonce(op.NonceKey))
	look := func(ctx context.Context, c *endpoints.Conn, from, to *big.Int) (event, error) {
		logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{
			FromBlock: from, ToBlock: to, Addresses: []common.Address{contracts.EntryPoint},
			Topics: [][]common.Hash{{topicRun}, nil, {common.BytesToHash(op.Sender[:])}},
		})
		for i := range logs {
			if e, ok := parseEvent(&logs[i]); ok && e.sender == op.Sender && e.nonce == nonce {
				return e, nil
			}
		}
		return event{}, err
	}
	e, err = backwards(ctx, r, head.Number.Uint64(), toHead, orderedBefore(op, head), look)
	return e, e != event{}, err
}

// decidedBefore is [errNonceUsed] when the chain has run the nonce of an order that could not be paid as the chain is now: it may
// be that this is so because it was paid.
func (r *Rail) decidedBefore(ctx context.Context, op *Op) error {
	if op.Kind != KindOrder {
		return nil
	}
	uses, err := r.chain.uses(ctx, op, nil)
	if err == nil && uses > 0 {
		err = errNonceUsed
	}
	return err
}

// usedUp is a [*Failure] when the account of an order that nobody was shown has used its nonce for something else. It is [errNonceUsed] when it
// may be that the order was paid, by a process whose records are lost, and a person has to look.
func (r *Rail) usedUp(ctx context.Context, op *Op) error {
	switch now, err := r.records.op(ctx, op.ID); {
	case err != nil:
		return err
	case now.Version != op.Version:
		return ErrChanged // another process has had it run
	}
	perhaps := op.Sender == r.cfg.Service
	if !perhaps {
		e, found, err := r.chain.ran(ctx, op, nil)
		if err == nil && found && e.success {
			// On live two endpoints say so: one that hides a transfer must not make an order fail.
			look := func(ctx context.Context, c *endpoints.Conn) (bool, error) {
				return moved(ctx, c, r.chainID, op, e.place)
			}
			perhaps, err = agree(ctx, r.chain, look)
		}
		if err == nil && perhaps && op.Token == (common.Address{}) {
			perhaps, err = r.chain.mayPay(ctx, op, e.place.Tx)
		}
		if err != nil {
			return err
		}
	}
	if perhaps {
		alarm.Log(ctx, r.log, alarm.ChainOutcomeUnknown, "an order without a signature may have been paid, because its nonce is used", "order", op.ID, "account", op.Sender)
		return errNonceUsed
	}
	return &Failure{Code: toll.CodeChainFailed, Reason: reasonNonce}
}

// mayPay reports whether a transaction may hold the payment of an order: the native token leaves no logs that tell. The EntryPoint
// lets nobody call handleOps from within it, so a transaction to it holds all that its operations do.
func (r *reader) mayPay(ctx context.Context, op *Op, in common.Hash) (bool, error) {
	callData, err := userop.DirectCall(op.Token, transfersOf(op.Payments))
	if err != nil {
		return false, err
	}
	tx, err := ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (*types.Transaction, error) {
		tx, _, err := c.TransactionByHash(ctx, in)
		return tx, err
	})
	if err != nil {
		return false, err
	}
	return tx.Hash() != in || tx.To() == nil || *tx.To() != contracts.EntryPoint || bytes.Contains(tx.Data(), callData), nil
}

// spoiled reports whether something else has used the nonce of an operation that was sent, up to a finalized block, so that it can
// never run. Only who has the key of its account can do that. There may be no such block. It is said of two looks, as an endpoint that
// is between two blocks may count what only the next one has: the operation itself.
func (t *tracker) spoiled(ctx context.Context, op *Op, final *types.Header) (bool, error) {
	r := t.rail
	if final == nil || op.Sender == r.cfg.Service || t.asked.left(op.ID, time.Now()) > 0 {
		return false, nil
	}
	t.asked.add(op.ID)
	uses, err := r.chain.uses(ctx, op, final.Number)
	if err == nil && uses == 0 {
		err = t.blocked(ctx, op, final.Number)
	}
	if err != nil || uses == 0 {
		delete(t.spoilt, op.ID)
		return false, err
	}
	e, found, err := r.chain.ran(ctx, op, final)
	switch {
	case err != nil:
		return false, err
	case found && e.of(op):
		return false, t.happened(ctx, op, &e, "")
	case found, t.conclusive(op):
		twice := t.spoilt[op.ID]
		t.spoilt[op.ID] = true
		return twice, nil
	}
	return false, t.unexplained(ctx, op)
}

// conclusive reports whether it says something that no event of an operation was found: one endpoint alone may hide it.
func (t *tracker) conclusive(op *Op) bool {
	r := t.rail
	return op.Sender != r.cfg.Service && (op.Tx == common.Hash{} || r.cfg.Embedded || r.cfg.Pool.Agrees())
}

func (t *tracker) unexplained(ctx context.Context, op *Op) error {
	alarm.Log(ctx, t.rail.log, alarm.ChainOutcomeUnknown, "the nonce of an order is used, but no endpoint returns the event of the order", "order", op.ID)
	return t.returnSlot(ctx, op)
}

// blocked looks whether other code of its account, at a finalized block, keeps an operation from being decided.
func (t *tracker) blocked(ctx context.Context, op *Op, block *big.Int) error {
	code, err := agree(ctx, t.rail.chain, func(ctx context.Context, c *endpoints.Conn) (codeState, error) {
		code, err := c.CodeAt(ctx, op.Sender, block)
		return codeOf(code), err
	})
	if err != nil || code != codeForeign {
		return err
	}
	return t.returnSlot(ctx, op)
}

// yieldAfter is how long an order that was sent keeps its place while its account keeps it from being decided.
const yieldAfter = 24 * time.Hour

// returnSlot lets another order of the plan take the slot of an order that was sent long ago and cannot be decided. An error stops no
// other order.
func (t *tracker) returnSlot(ctx context.Context, op *Op) error {
	r := t.rail
	if op.Kind != KindOrder || r.cfg.Clock().Sub(op.SentAt) < yieldAfter {
		return nil
	}
	account, err := r.records.accountOf(ctx, op)
	if err == nil && account != ([16]byte{}) {
		err = r.cfg.Orders.Change(ctx, account, func(t *rail.Tx) error { return t.ReturnSlot(op.ID) })
	}
	if err != nil {
		r.log.WarnContext(ctx, "the slot of an order could not be returned to its plan", "order", op.ID, "err", err)
	}
	return ctx.Err()
}

// voided reports whether a void whose block is final has made its order impossible. The nonce of the order says so, and not that
// no event of the order is known, which an endpoint may hide: the void has counted it up, and nobody else. Where somebody else did
// as well, the operation of the order is looked for once more. A void that has not counted it up has failed.
func (t *tracker) voided(ctx context.Context, void *Op) (bool, error) {
	r := t.rail
	order, err := r.records.op(ctx, orderOfVoid(void.ID))
	if err != nil || order.State != Signed && order.State != Sent {
		return err == nil, err
	}
	uses, err := r.chain.uses(ctx, order, nil)
	if err == nil && uses == 1 {
		return true, nil
	}
	var e event
	var found bool
	if err == nil && uses > 1 {
		e, found, err = r.chain.ran(ctx, order, nil)
	}
	switch {
	case err != nil:
		r.log.WarnContext(ctx, "it is not known yet whether the payment of an order was voided", "order", order.ID, "err", err)
		return false, ctx.Err()
	case uses == 0:
		f := movedNothing(void)
		f.Position = void.Position
		void.State, void.Position, void.Failure = Failed, Position{}, f
		return false, nil
	case found && e.of(order):
		return true, t.happened(ctx, order, &e, "")
	case found, t.conclusive(order):
		return true, nil // its holder has counted it up
	}
	return false, t.unexplained(ctx, order)
}
