package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxChunk is how many blocks are asked for at once. An endpoint that refuses is asked for half.
	maxChunk = 2000
	// maxTopics is how many operations are asked for at once.
	maxTopics = 200
	// maxQueries is how many queries for logs are sent at once.
	maxQueries = 16
)

// sameChain compares the first block with that of the cursor.
func (r *Rail) sameChain(ctx context.Context) error {
	cursor, err := r.records.cursor(ctx)
	if err != nil || cursor.Genesis == (common.Hash{}) {
		return err
	}
	first, err := r.chain.header(ctx, new(big.Int))
	if err != nil {
		return err
	}
	if first.Hash() != cursor.Genesis {
		return r.mismatch(ctx, 0, cursor.Genesis, fmt.Errorf("%w: the genesis block is %s, not %s", ErrOtherChain, first.Hash(), cursor.Genesis))
	}
	return nil
}

// mismatch stops the rail because a block that is known by its hash is not there. On live two endpoints have to say so: one that
// lies stops nothing.
func (r *Rail) mismatch(ctx context.Context, number uint64, known common.Hash, why error) error {
	if r.cfg.Embedded {
		return r.halt(ctx, why)
	}
	found, err := endpoints.Agree(ctx, r.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		header, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(number))
		if errors.Is(err, ethereum.NotFound) {
			return common.Hash{}, nil
		}
		if err != nil {
			return common.Hash{}, err
		}
		return header.Hash(), nil
	})
	switch {
	case err != nil:
		return err
	case found == known:
		return fmt.Errorf("chain: one endpoint has a different block %d: %w", number, endpoints.ErrDisagree)
	}
	return r.halt(ctx, why)
}

// begin sets the cursor of a database that has none: at the first block of the embedded chain, and near the head of another one,
// but before the first block that can have an open operation. What lies before is not ours, unless the database was lost.
func (t *tracker) begin(ctx context.Context, open []*Op) error {
	first, err := t.rail.chain.header(ctx, new(big.Int))
	if err != nil {
		return err
	}
	t.cursor = Cursor{Genesis: first.Hash(), Hash: first.Hash(), BaseHash: first.Hash()}
	if t.rail.cfg.Embedded {
		return nil
	}
	since := t.pass.head.Time
	if !t.backupAt.IsZero() {
		since = min(since, uint64(max(t.backupAt.Add(-searchBack).Unix(), 0)))
	}
	for _, op := range open {
		since = min(since, uint64(max(op.CreatedAt.Add(-searchBack).Unix(), 0)))
	}
	block := t.pass.head.Number.Uint64()
	for step := uint64(overlap); ; step *= 2 {
		block -= min(block, step)
		at, err := t.rail.chain.header(ctx, new(big.Int).SetUint64(block))
		if err != nil {
			return err
		}
		if block == 0 || at.Time <= since {
			return t.moveCursor(ctx, block)
		}
	}
}

// moveCursor sets the cursor to a block, and its base as far below as a reorganization may reach.
func (t *tracker) moveCursor(ctx context.Context, block uint64) error {
	hash, ok, err := t.hashAt(ctx, block)
	if err == nil && !ok {
		err = ethereum.NotFound
	}
	if err != nil {
		return err
	}
	base := block - min(block, overlap)
	below, ok, err := t.hashAt(ctx, base)
	if err == nil && !ok {
		err = ethereum.NotFound
	}
	if err != nil {
		return err
	}
	t.cursor = Cursor{Genesis: t.cursor.Genesis, Block: block, Hash: hash, Base: base, BaseHash: below}
	return nil
}

// follow reads the chain from the cursor to the head and moves the operations on. open are those whose events are looked for.
func (t *tracker) follow(ctx context.Context, open []*Op) error {
	r, head := t.rail, t.pass.head.Number.Uint64()
	if t.cursor == (Cursor{}) {
		if err := t.begin(ctx, open); err != nil {
			return err
		}
	}
	if t.fresh {
		if err := r.sameChain(ctx); err != nil {
			return err
		}
	}
	changed, behind, err := t.compare(ctx)
	if err != nil || behind {
		return err
	}
	if changed || t.fresh {
		gone, behind, err := t.verify(ctx)
		if err != nil || behind {
			return err
		}
		if gone > 0 {
			if open, err = r.records.opsIn(ctx, maxOpen, underWay...); err != nil {
				return err
			}
		}
	}
	if t.pass.head.Hash() != t.seen || t.late(open) {
		if err := t.scan(ctx, open); err != nil {
			return err
		}
		r.work.Fire() // relayers look which of their transactions are mined
	}
	if t.pass.doubt {
		if t.pass.again, err = t.overtaken(ctx); err != nil || t.pass.again {
			return err
		}
	}
	if err := t.advance(ctx); err != nil {
		return err
	}
	from := t.cursor
	if t.owed > 0 {
		head = min(head, max(from.Block, t.owed+overlap/2))
	}
	if err := t.moveCursor(ctx, head); err != nil {
		return err
	}
	if t.restored && t.owed == 0 && len(t.unread) == 0 {
		if err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.NoteChainRead(ctx, tx, r.cfg.Clock()) }); err != nil {
			return err
		}
		t.restored = false
	}
	t.seen, t.fresh = t.pass.head.Hash(), false
	if len(t.unread) > 0 {
		t.seen = common.Hash{} // no other head may follow for long
	}
	if t.cursor == from {
		return nil
	}
	return r.records.setCursor(ctx, t.lease, t.cursor)
}

// overtaken reports whether the chain has another block in the place of the head of this pass.
func (t *tracker) overtaken(ctx context.Context) (bool, error) {
	header, err := t.rail.chain.header(ctx, t.pass.head.Number)
	if errors.Is(err, ethereum.NotFound) {
		return true, nil
	}
	return err == nil && header.Hash() != t.pass.head.Hash(), err
}

// logs reads the logs of ours in blocks, those of these operations and sales and all of the service account, in their order.
func (t *tracker) logs(ctx context.Context, from, to uint64, ops []common.Hash, sales map[saleKey]string) ([]types.Log, error) {
	service := common.BytesToHash(t.rail.cfg.Service[:])
	queries := []ethereum.FilterQuery{
		{
			Addresses: []common.Address{contracts.EntryPoint, contracts.DelegationManager, contracts.ERC20TransferAmountEnforcer},
			Topics:    [][]common.Hash{{topicRun, topicReason, topicRedeemed, topicSpent}, nil, {service}},
		},
		{Addresses: []common.Address{contracts.DelegationManager}, Topics: [][]common.Hash{{topicDisabled}, nil, nil, {service}}},
	}
	for some := range slices.Chunk(ops, maxTopics) {
		queries = append(queries, ethereum.FilterQuery{
			Addresses: []common.Address{contracts.EntryPoint}, Topics: [][]common.Hash{{topicRun, topicReason}, some},
		})
	}
	for some := range slices.Chunk(t.wallets, maxTopics) {
		queries = append(queries, ethereum.FilterQuery{
			Addresses: []common.Address{contracts.EntryPoint}, Topics: [][]common.Hash{{topicRun, topicReason}, nil, some},
		})
	}
	queries = append(queries, saleQueries(sales)...)
	var all []types.Log
	err := t.rail.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		found := make([][]types.Log, len(queries))
		jobs := make([]func() error, len(queries))
		for i, q := range queries {
			q.FromBlock, q.ToBlock = new(big.Int).SetUint64(from), new(big.Int).SetUint64(to)
			jobs[i] = func() (err error) { found[i], err = c.FilterLogs(ctx, q); return err }
		}
		var err error
		for some := range slices.Chunk(jobs, maxQueries) {
			err = cmp.Or(err, together(some...))
		}
		all = slices.Concat(found...)
		return err
	})
	slices.SortStableFunc(all, func(a, b types.Log) int {
		return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.Index, b.Index))
	})
	return all, err
}

// scan reads all blocks from the overlap below the cursor to the head.
func (t *tracker) scan(ctx context.Context, open []*Op) error {
	var watched []common.Hash
	for _, op := range open {
		if op.Sender != t.rail.cfg.Service && (op.State == Signed || op.State == Sent) {
			watched = append(watched, op.Hash)
		}
	}
	sales := wanted(open)
	head := t.pass.head.Number.Uint64()
	t.owed, t.unread = 0, map[string]bool{}
	for from := t.cursor.Block - min(t.cursor.Block, overlap); from <= head; {
		to := min(head, from+t.chunk-1)
		logs, err := t.logs(ctx, from, to, watched, sales)
		if err != nil {
			if t.chunk = max(1, t.chunk/2); to == from || ctx.Err() != nil {
				return err
			}
			continue
		}
		if err := t.apply(ctx, logs, sales); err != nil {
			return err
		}
		t.chunk = min(maxChunk, 2*t.chunk)
		from = to + 1
		if from <= head && t.owed == 0 {
			// A long way is not gone twice.
			if err := t.moveCursor(ctx, to); err != nil {
				return err
			}
			if err := t.rail.records.setCursor(ctx, t.lease, t.cursor); err != nil {
				return err
			}
		}
		if from <= head {
			if err := t.hold(ctx); err != nil {
				return err
			}
		}
	}
	t.sales = map[string]bool{}
	for _, id := range sales {
		t.sales[id] = true
	}
	for id, block := range t.done {
		if block+2*overlap < head {
			delete(t.done, id)
		}
	}
	return nil
}

// late reports whether a sale is new since the blocks were read: others may have had it carried out in one of them.
func (t *tracker) late(open []*Op) bool {
	return slices.ContainsFunc(open, func(op *Op) bool { return op.Kind == KindSale && !t.sales[op.ID] })
}

// apply lets logs take effect. What was applied before changes nothing. A log about an operation that cannot be understood now is
// owed, and read again: it keeps no other from taking effect.
func (t *tracker) apply(ctx context.Context, logs []types.Log, sales map[saleKey]string) error {
	reasons, ours := map[common.Hash]string{}, map[common.Hash]bool{}
	for i := range logs {
		if op, reason, ok := parseReason(&logs[i]); ok {
			reasons[op] = reason
		}
		if e, ok := parseEvent(&logs[i]); ok && e.sender == t.rail.cfg.Service {
			ours[e.place.Tx] = true
		}
	}
	for i := range logs {
		l := &logs[i]
		// A log counts only in a block of this chain.
		hash, ok, err := t.hashAt(ctx, l.BlockNumber)
		if err != nil {
			return err
		}
		if !ok || hash != l.BlockHash {
			t.pass.doubt = true
			t.rail.log.WarnContext(ctx, "a log is skipped because its block is not in the chain", "block", l.BlockNumber, "hash", l.BlockHash)
			continue
		}
		var id string
		if key, ok := parseAuthorization(l); ok {
			id = sales[key]
			err = t.applySale(ctx, id, positionOf(l))
		} else {
			id, err = t.applyOne(ctx, l, reasons, ours)
		}
		if err != nil && !alone(err) {
			return err
		}
		if err != nil {
			t.rail.log.WarnContext(ctx, "a log of an operation cannot be processed now", "op", id, "block", l.BlockNumber, "tx", l.TxHash, "err", err)
			t.unread[id] = true
			t.owe(l.BlockNumber)
		}
	}
	return nil
}

// applySale lets a log about the authorization of a sale take effect; "" is the id of none that is looked for.
func (t *tracker) applySale(ctx context.Context, id string, at Position) error {
	if id == "" {
		return nil
	}
	op, err := t.rail.records.op(ctx, id)
	if err != nil {
		return err
	}
	return t.sold(ctx, op, at)
}

// applyOne lets any other log take effect. id is that of the operation that it is about, "" where it is about none.
func (t *tracker) applyOne(ctx context.Context, l *types.Log, reasons map[common.Hash]string, ours map[common.Hash]bool) (id string, err error) {
	if e, ok := parseEvent(l); ok {
		op, err := opOf(store.ChainOpByHash(ctx, t.rail.cfg.Store, toll.Hash(e.op)))
		switch {
		case err == nil && e.of(op):
			return op.ID, t.happened(ctx, op, &e, reasons[e.op])
		case err == nil || errors.Is(err, store.ErrNotFound):
			return "", t.orphan(ctx, l, &e, fmt.Sprintf("an operation without a record, success=%t", e.success))
		}
		return "", err
	}
	if l.Topics[0] == topicRedeemed && l.Address == contracts.DelegationManager && !ours[l.TxHash] {
		return "", t.orphan(ctx, l, &event{place: positionOf(l)}, "a delegation was redeemed outside of an operation")
	}
	return "", t.heard(ctx, l)
}

// orphan keeps an event that nothing explains. Nothing is granted for it.
func (t *tracker) orphan(ctx context.Context, l *types.Log, e *event, why string) error {
	key := userop.KeyOf(e.nonce.Big())
	paid, err := t.paidBy(ctx, positionOf(l))
	if err != nil {
		return err
	}
	o := &Orphan{
		Block: l.BlockHash, LogIndex: l.Index, Number: l.BlockNumber, Tx: l.TxHash, OpHash: e.op, NonceKey: key[:], Reason: why, Paid: paid,
	}
	added, err := t.rail.records.addOrphan(ctx, o)
	if added {
		alarm.Log(ctx, t.rail.log, alarm.OperationUnknown, "the service key signed an operation that has no record", "reason", why, "block", o.Number, "tx", o.Tx,
			"op_hash", o.OpHash, "nonce_key", common.Bytes2Hex(o.NonceKey))
	}
	return err
}

// maxPaid bounds the transfers that are kept of an event that nothing explains.
const maxPaid = 20

// paidBy returns the transfers of USDC and EURC by the operation whose event is at a place.
func (t *tracker) paidBy(ctx context.Context, at Position) (paid []Transfer, err error) {
	tokens := []common.Address{contracts.USDC(t.rail.cfg.ChainID), contracts.EURC(t.rail.cfg.ChainID)}
	logs, err := ask(ctx, t.rail.chain, func(ctx context.Context, c *endpoints.Conn) ([]types.Log, error) {
		return c.FilterLogs(ctx, ethereum.FilterQuery{
			BlockHash: &at.Hash, Addresses: append(tokens, contracts.EntryPoint),
			Topics: [][]common.Hash{{topicBegins, topicRun, topicTransfer}},
		})
	})
	slices.SortFunc(logs, func(a, b types.Log) int { return cmp.Compare(a.Index, b.Index) })
	for i := range logs {
		l := &logs[i]
		switch {
		case l.TxHash != at.Tx || l.Index >= at.LogIndex || l.Removed || len(l.Topics) == 0:
		case l.Address == contracts.EntryPoint:
			paid = nil // what came before was another operation
		case slices.Contains(tokens, l.Address) && len(l.Topics) == 3 && l.Topics[0] == topicTransfer && len(l.Data) == 32 && len(paid) < maxPaid:
			amount, e := toll.ParseUnits(new(big.Int).SetBytes(l.Data).String())
			if e == nil {
				paid = append(paid, Transfer{Token: l.Address, From: address(l.Topics[1]), To: address(l.Topics[2]), Amount: amount})
			}
		}
	}
	return paid, err
}

// heard hands on what the chain says about delegations, once a block is deep enough that it will stay. What is not taken is owed,
// and read again.
func (t *tracker) heard(ctx context.Context, l *types.Log) error {
	r, id := t.rail, logID{l.BlockHash, l.Index}
	if _, done := t.done[id]; done {
		return nil
	}
	delegation, units, spent := parseSpent(l)
	if !spent {
		var disabled bool
		if delegation, disabled = parseDisabled(l); !disabled {
			return nil
		}
	}
	known, err := store.ChainDelegation(ctx, r.cfg.Store, toll.Hash(delegation))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !r.cfg.Embedded && l.BlockNumber+min(r.cfg.Confirmations, overlap/2) > t.pass.head.Number.Uint64():
		t.owe(l.BlockNumber)
		return nil
	case spent:
		err = r.reportSpent(ctx, known, units)
	default:
		err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return r.cfg.Orders.Disabled(ctx, tx, known) })
	}
	if errors.Is(err, toll.NewError(toll.CodeUnknownDelegation)) {
		alarm.Log(ctx, r.log, alarm.ChainRecordMissing, "the chain reports a delegation that the database does not have", "delegation", known)
		err = nil // to ask again would not bring it back
	}
	if err != nil {
		r.log.WarnContext(ctx, "a change of a delegation on the chain could not be stored", "delegation", known, "err", err)
		t.owe(l.BlockNumber)
		return ctx.Err()
	}
	t.done[id] = l.BlockNumber
	return nil
}

func (t *tracker) owe(block uint64) {
	if t.owed == 0 || block < t.owed {
		t.owed = max(block, 1)
	}
}
