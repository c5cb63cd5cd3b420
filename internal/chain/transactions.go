package chain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
)

// Steps between which a process may end, in the words of [Config.At].
const (
	stepStored    = "transaction stored"
	stepSent      = "transaction sent"
	stepConcluded = "transaction concluded"
)

// store signs a transaction for operations, or for none to fill its nonce, and stores it. From then on it may be sent. It takes
// the place of replaces, unless that is nil; free are operations of that one which this one does not carry.
func (w *relayer) store(ctx context.Context, now outlook, nonce uint64, b *batch, tip, feeCap *big.Int, replaces *Tx, free ...*Op) (*Tx, error) {
	r := w.rail
	var signed *types.Transaction
	var err error
	if b == nil {
		b = &batch{}
		signed, err = r.cfg.Signer.Fill(ctx, signer.Fill{Relayer: w.address, Nonce: nonce, Tip: tip, FeeCap: feeCap})
	} else {
		signed, err = r.cfg.Signer.RelayerTx(ctx, signer.RelayerTx{
			Relayer: w.address, Nonce: nonce, Ops: operations(b.ops), Authorizations: b.authorizations, Gas: b.gas, Tip: tip, FeeCap: feeCap,
		})
	}
	if err != nil {
		return nil, err
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		return nil, err
	}
	at := r.cfg.Clock()
	tx := &Tx{
		Hash: signed.Hash(), Relayer: w.address, Nonce: nonce, Raw: raw, Ops: ids(b.ops), State: TxPending,
		SentBlock: now.head.Number.Uint64(), CreatedAt: at,
	}
	for _, op := range b.ops {
		op.State, op.Tx, op.UpdatedAt, op.Delay = Sent, tx.Hash, at, nil
		if op.SentAt.IsZero() {
			op.SentAt = at
		}
	}
	for _, op := range free {
		op.State, op.UpdatedAt = Signed, at
	}
	var old common.Hash
	if replaces != nil {
		old = replaces.Hash
	}
	changed := append(append([]*Op(nil), b.ops...), free...)
	if err := r.records.addTx(ctx, w.lease, tx, old, changed...); err != nil {
		return nil, err
	}
	r.cfg.At(stepStored)
	r.waiters.Wake(ids(changed)...)
	return tx, nil
}

// broadcast sends a stored transaction to all endpoints and does what their answer asks for.
func (w *relayer) broadcast(ctx context.Context, now outlook, tx *Tx) error {
	r := w.rail
	for range 8 {
		err := r.cfg.Pool.Send(ctx, tx.Raw)
		r.cfg.At(stepSent)
		r.moved.Fire()
		answer := endpoints.Understand(err)
		if answer != endpoints.Other {
			w.sent[tx.Hash] = time.Now()
		}
		switch answer {
		case endpoints.Took, endpoints.NonceUsed: // the nonce may be used by this very transaction: the chain will tell
			return nil
		case endpoints.Underpriced:
			next, err := w.replace(ctx, now, tx, len(tx.Ops))
			if err != nil || next == nil {
				return err
			}
			tx = next
		case endpoints.TooLarge:
			w.most = max(1, len(tx.Ops)/2)
			r.log.WarnContext(ctx, "a transaction is too large; sending a smaller one", "relayer", w.address, "ops", len(tx.Ops), "err", err)
			keep := len(tx.Ops) / 2
			if tx, err = w.replace(ctx, now, tx, keep); err != nil || tx == nil {
				return err
			}
		case endpoints.Unpaid:
			w.beg(ctx)
			return w.abandon(ctx, tx)
		default:
			if !errors.Is(err, endpoints.ErrNone) {
				w.sent[tx.Hash] = time.Now().Add(retry - resend)
			}
			return fmt.Errorf("sending transaction %s: %w", tx.Hash, err)
		}
	}
	return fmt.Errorf("chain: no endpoint accepts transaction %s at any fee", tx.Hash)
}

// abandon frees the operations of a transaction that no endpoint took, for another relayer. Its nonce is filled later.
func (w *relayer) abandon(ctx context.Context, tx *Tx) error {
	ops, err := w.rail.freed(ctx, tx)
	if err != nil {
		return err
	}
	tx.State = TxReplaced
	if err := w.rail.records.updateTx(ctx, w.lease, tx, ops...); err != nil {
		return err
	}
	w.rail.waiters.Wake(ids(ops)...)
	w.rail.work.Fire()
	return nil
}

// replace stores a transaction with the nonce of old and higher fees that carries what old still has to bring, at most keep
// operations, or fills the nonce when that is nothing. nil without an error: the fees are high enough, nothing is replaced.
func (w *relayer) replace(ctx context.Context, now outlook, old *Tx, keep int) (*Tx, error) {
	r := w.rail
	var before types.Transaction
	if err := before.UnmarshalBinary(old.Raw); err != nil {
		return nil, fmt.Errorf("chain: stored transaction %s: %w", old.Hash, err)
	}
	tip, feeCap, ok := r.cfg.raised(&before, now.head.BaseFee)
	if !ok {
		if w.seldom() {
			alarm.Log(ctx, r.log, alarm.TransactionStuck, "a transaction is stuck: its fees are at the maximum", "tx", old.Hash, "relayer", w.address)
		}
		return nil, nil
	}
	ops, err := opsCarriedBy(ctx, r.cfg.Store, old)
	if err != nil {
		return nil, err
	}
	var b *batch
	if n := min(keep, len(ops)); n > 0 {
		if b, err = w.assemble(ctx, ops[:n]); err != nil {
			return nil, err
		}
	}
	// What cannot run now is set free in the same write.
	free := make([]*Op, 0, len(ops))
	for _, op := range ops {
		if b == nil || !slices.ContainsFunc(b.ops, func(o *Op) bool { return o.ID == op.ID }) {
			free = append(free, op)
			r.outbox.pause(op)
		}
	}
	return w.store(ctx, now, old.Nonce, b, tip, feeCap, old, free...)
}

// settle compares the stored transactions of the relayer with its nonce on the chain: what is mined is concluded, what is not is
// sent again, replaced when it is stuck, and what is missing is filled. It returns how many are in flight.
func (w *relayer) settle(ctx context.Context, now outlook, pending []*Tx) (open int, err error) {
	from := now.nonce
	if len(pending) > 0 {
		from = min(from, pending[0].Nonce)
	}
	all, err := w.rail.records.txsFrom(ctx, w.address, from)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	byNonce := map[uint64][]*Tx{}
	for _, tx := range all {
		byNonce[tx.Nonce] = append(byNonce[tx.Nonce], tx)
	}
	for nonce := from; nonce <= all[len(all)-1].Nonce; nonce++ {
		group := byNonce[nonce]
		switch {
		case nonce < now.nonce:
			err = w.conclude(ctx, nonce, group)
		case len(group) == 0:
			open++
			err = w.fill(ctx, now, nonce)
		default:
			open++
			err = w.pursue(ctx, now, group)
		}
		if err != nil {
			return 0, err
		}
	}
	return open, nil
}

// fill uses up a nonce that no stored transaction has, for those after it.
func (w *relayer) fill(ctx context.Context, now outlook, nonce uint64) error {
	w.rail.log.WarnContext(ctx, "filling an unused relayer nonce with an empty transaction", "relayer", w.address, "nonce", nonce)
	tip, feeCap := w.rail.cfg.fees(now.head.BaseFee)
	tx, err := w.store(ctx, now, nonce, nil, tip, feeCap, nil)
	if err != nil {
		return err
	}
	return w.broadcast(ctx, now, tx)
}

// pursue sees to it that one of the transactions with a nonce that is not used lands.
func (w *relayer) pursue(ctx context.Context, now outlook, group []*Tx) error {
	var tx *Tx
	for _, t := range group {
		if t.State == TxPending || tx == nil || tx.State != TxPending && (t.State == TxMined || tx.State == TxReplaced) {
			tx = t
		}
	}
	if tx.State != TxPending {
		// It was mined or given up before, and the chain has gone back since.
		tx.State, tx.Position, tx.SentBlock = TxPending, Position{}, now.head.Number.Uint64()
		if err := w.rail.records.updateTx(ctx, w.lease, tx); err != nil {
			return err
		}
		delete(w.sent, tx.Hash)
		ops, err := contents(ctx, w.rail.cfg.Store, tx)
		if err != nil {
			return err
		}
		// The tracker may not have taken back what this transaction did. Those operations need the same bytes, too.
		needed := slices.ContainsFunc(ops, func(op *Op) bool { return op.carriedBy(tx) || op.Evidence().Tx == tx.Hash })
		if len(ops) > 0 && !needed {
			next, err := w.replace(ctx, now, tx, 0)
			if err != nil || next == nil {
				return err
			}
			tx = next
		}
	}
	last, known := w.sent[tx.Hash]
	switch since := time.Since(last); {
	case !known || since > resend:
		return w.broadcast(ctx, now, tx)
	case now.head.Number.Uint64() >= tx.SentBlock+stuckAfter && since > 500*time.Millisecond && now.head.BaseFee.Cmp(w.rail.cfg.MaxBaseFee) <= 0:
		next, err := w.replace(ctx, now, tx, len(tx.Ops))
		if err != nil || next == nil {
			return err
		}
		w.rail.log.InfoContext(ctx, "replacing a stuck transaction", "relayer", w.address, "nonce", tx.Nonce, "by", next.Hash)
		return w.broadcast(ctx, now, next)
	}
	return nil
}

// conclude notes which of the transactions with a used nonce it was. Operations of the others, and of one that reverted, are
// free for a new transaction.
func (w *relayer) conclude(ctx context.Context, nonce uint64, group []*Tx) error {
	r := w.rail
	pending := false
	for _, tx := range group {
		pending = pending || tx.State == TxPending
	}
	if !pending {
		return nil
	}
	var mined *types.Receipt
	err := r.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		for _, tx := range group {
			receipt, err := c.TransactionReceipt(ctx, tx.Hash)
			if err == nil {
				mined = receipt
				return nil
			}
			if !errors.Is(err, ethereum.NotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if mined == nil {
		if w.missing[nonce]++; w.missing[nonce] < lostAfter {
			return nil
		}
		alarm.Log(ctx, r.log, alarm.RelayerKeyUsed, "a nonce of a relayer was used by an unknown transaction", "relayer", w.address, "nonce", nonce)
	}
	delete(w.missing, nonce)
	for _, tx := range group {
		var ops []*Op
		switch {
		case mined != nil && mined.TxHash == tx.Hash:
			tx.State = TxMined
			tx.Position = Position{Block: mined.BlockNumber.Uint64(), Hash: mined.BlockHash, Tx: tx.Hash}
			if mined.Status != types.ReceiptStatusSuccessful {
				r.log.WarnContext(ctx, "a transaction reverted", "relayer", w.address, "tx", tx.Hash, "ops", len(tx.Ops))
				ops, err = r.freed(ctx, tx)
			}
		case tx.State == TxPending:
			tx.State = TxReplaced
			ops, err = r.freed(ctx, tx)
		default:
			continue
		}
		if err == nil {
			err = r.records.updateTx(ctx, w.lease, tx, ops...)
		}
		if err != nil {
			return err
		}
		r.cfg.At(stepConcluded)
		delete(w.sent, tx.Hash)
		for _, op := range ops {
			r.outbox.pause(op)
		}
		r.waiters.Wake(ids(ops)...)
	}
	return nil
}
