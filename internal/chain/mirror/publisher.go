package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// States of a period.
const (
	IsClosed   = "closed"   // leaves and root are fixed
	IsSent     = "sent"     // the transaction that anchors it is stored
	IsAnchored = "anchored" // its event is in a block
	IsFinal    = "final"    // and that block is finalized
)

// Config is what a publisher works with.
type Config struct {
	Pool     *endpoints.Pool
	Signer   *signer.Signer
	Operator common.Address
	Store    *store.Store
	Lease    *jobs.Lease // who does not hold it writes nothing
	Tip      *big.Int    // wei for each unit of gas; nil: 1,000,000
	MaxFee   *big.Int    // base fee above which nothing is sent, in wei for each unit of gas; nil: 1,000,000,000
	AtOnce   bool        // a block is final as soon as it is there, as on the embedded chain
	Log      *slog.Logger
}

// Publisher anchors closed periods, one after the other. One process at a time may run it.
type Publisher struct {
	cfg      Config
	contract common.Address
	placed   bool
	placing  *types.Transaction // the last one that places the contract, until that is seen
	since    uint64             // head when it was sent first
}

// NewPublisher returns a publisher for the mirror of the operator.
func NewPublisher(cfg Config) *Publisher {
	cfg.Tip, cfg.MaxFee = cmp.Or(cfg.Tip, big.NewInt(1_000_000)), cmp.Or(cfg.MaxFee, big.NewInt(1_000_000_000))
	return &Publisher{cfg: cfg, contract: contracts.CreditMirror(cfg.Operator)}
}

func (p *Publisher) Contract() common.Address { return p.contract }

const (
	// window is how many open periods are looked at in one step.
	window = 64
	// bumpAfter is after how many blocks a transaction that was not taken is sent with higher fees.
	bumpAfter = 3
	placeGas  = 900_000
)

var (
	anchored = crypto.Keccak256Hash([]byte("Anchored(uint64,bytes32,uint64,uint128)"))
	// ErrConflict says that the chain holds another root for a period of ours.
	ErrConflict = errors.New("mirror: the chain has a different root for this period: check whether another service publishes with this key")
	errFee      = errors.New("mirror: the base fee is above the cap")
	errGone     = errors.New("mirror: the contract is no longer on the chain")
)

// Step moves the open periods on as far as it goes without waiting, and reports whether there are any left to look at soon.
func (p *Publisher) Step(ctx context.Context) (busy bool, err error) {
	open, err := store.OpenMirrorPeriods(ctx, p.cfg.Store, window)
	if err != nil || len(open) == 0 {
		return false, err
	}
	if !p.placed {
		if p.placed, err = p.deploy(ctx); err != nil || !p.placed {
			return true, err
		}
	}
	for _, period := range open {
		if period.State == IsAnchored {
			if err := p.settle(ctx, period); err != nil {
				return true, err
			}
		}
		if period.State == IsAnchored || period.State == IsFinal {
			continue
		}
		// The contract takes periods in order only, so the next one waits for this one.
		if err := p.anchor(ctx, period); err != nil || period.State != IsAnchored {
			return true, err
		}
	}
	return true, nil
}

// deploy deploys the contract if needed, and reports whether the chain has it.
func (p *Publisher) deploy(ctx context.Context) (bool, error) {
	// The nonce is read before the code: a block between the two would make a second placement of one that is there.
	nonce, err := p.nonce(ctx)
	if err != nil {
		return false, err
	}
	code, err := p.code(ctx)
	if err != nil || len(code) > 0 {
		return len(code) > 0, err
	}
	head, err := p.cfg.Pool.Head(ctx, "latest")
	if err != nil {
		return false, err
	}
	pending := p.placing
	if pending != nil && pending.Nonce() != nonce {
		pending = nil
	}
	if pending == nil || p.slow(pending, p.since, head) {
		tip, feeCap, err := p.fees(head, pending)
		if err != nil {
			return false, err
		}
		tx, err := p.cfg.Signer.DeployMirror(ctx, signer.DeployMirror{Nonce: nonce, Gas: placeGas, Tip: tip, FeeCap: feeCap})
		if err != nil {
			return false, err
		}
		p.placing, p.since = tx, head.Number.Uint64()
	}
	raw, err := p.placing.MarshalBinary()
	if err != nil {
		return false, err
	}
	if err := p.send(ctx, raw); err != nil {
		return false, err
	}
	code, err = p.code(ctx)
	return len(code) > 0, err
}

// anchor moves a period that is closed or sent.
func (p *Publisher) anchor(ctx context.Context, period *store.MirrorPeriod) error {
	if period.State == IsSent {
		if done, err := p.landed(ctx, period); err != nil || done {
			return err
		}
	}
	head, err := p.cfg.Pool.Head(ctx, "latest")
	if err != nil {
		return err
	}
	nonce, err := p.nonce(ctx)
	if err != nil {
		return err
	}
	var pending *types.Transaction
	if period.State == IsSent && nonce == uint64(period.Nonce) {
		pending = new(types.Transaction)
		if err := pending.UnmarshalBinary(period.Raw); err != nil {
			return err
		}
		if !p.slow(pending, uint64(period.SentBlock), head) {
			return p.send(ctx, period.Raw)
		}
	}
	// A root that the chain has already, from before a backup of the database was restored, is not sent again.
	found, err := p.find(ctx, period)
	if errors.Is(err, errGone) {
		p.cfg.Log.WarnContext(ctx, err.Error(), "period", period.Period)
		p.placed = false
		return nil
	}
	if err != nil || found {
		return err
	}
	tip, feeCap, err := p.fees(head, pending)
	if err != nil {
		return err
	}
	credits, ok := new(big.Int).SetString(period.Credits, 10)
	if !ok {
		return fmt.Errorf("mirror: period %d has an invalid number of credits: %q", period.Period, period.Credits)
	}
	anchor := signer.Anchor{
		Nonce: nonce, Period: uint64(period.Period), Root: common.Hash(period.Root), Leaves: uint64(period.Leaves), Credits: credits, Tip: tip, FeeCap: feeCap,
	}
	gas, err := endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (uint64, error) {
		return c.EstimateGas(ctx, ethereum.CallMsg{From: p.cfg.Operator, To: &p.contract, Data: anchor.Call()})
	})
	if err != nil {
		return fmt.Errorf("mirror: period %d: %w", period.Period, err)
	}
	anchor.Gas = gas + gas/5
	tx, err := p.cfg.Signer.Anchor(ctx, anchor)
	if err != nil {
		return err
	}
	if period.Raw, err = tx.MarshalBinary(); err != nil {
		return err
	}
	period.State, period.TxHash, period.Nonce, period.SentBlock = IsSent, toll.Hash(tx.Hash()), int64(nonce), head.Number.Int64()
	if err := p.update(ctx, period); err != nil {
		return err
	}
	if err := p.send(ctx, period.Raw); err != nil {
		return err
	}
	_, err = p.landed(ctx, period)
	return err
}

// slow reports whether a transaction that was sent at a block is to be sent with higher fees: not while it offers as much as
// the cap lets one pay.
func (p *Publisher) slow(tx *types.Transaction, sent uint64, head *types.Header) bool {
	return head.Number.Uint64() >= sent+bumpAfter && tx.GasFeeCap().Cmp(new(big.Int).Lsh(p.cfg.MaxFee, 1)) < 0
}

// landed looks for the receipt of the stored transaction. A receipt alone proves nothing: the event has to be that of the
// contract, in a block that the chain has.
func (p *Publisher) landed(ctx context.Context, period *store.MirrorPeriod) (bool, error) {
	receipt, err := endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (*types.Receipt, error) {
		return c.TransactionReceipt(ctx, common.Hash(period.TxHash))
	})
	if errors.Is(err, ethereum.NotFound) {
		return false, nil
	}
	if err != nil || receipt.Status != types.ReceiptStatusSuccessful {
		return false, err
	}
	// By the hash of the block: a receipt can be there a moment before the head of the chain has moved to it.
	return p.found(ctx, period, ethereum.FilterQuery{BlockHash: &receipt.BlockHash})
}

// find looks for the event of the period in the whole chain, if the contract says that it has come to it.
func (p *Publisher) find(ctx context.Context, period *store.MirrorPeriod) (bool, error) {
	last, err := endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) ([]byte, error) {
		return c.CallContract(ctx, ethereum.CallMsg{To: &p.contract, Data: crypto.Keccak256([]byte("lastPeriod()"))[:4]}, nil)
	})
	if err == nil && len(last) == 0 {
		return false, errGone
	}
	if err != nil || new(big.Int).SetBytes(last).Cmp(big.NewInt(period.Period)) < 0 {
		return false, err
	}
	found, err := p.found(ctx, period, ethereum.FilterQuery{FromBlock: new(big.Int)})
	if err == nil && !found {
		return false, fmt.Errorf("period %d: %w", period.Period, ErrConflict)
	}
	return found, err
}

func (p *Publisher) found(ctx context.Context, period *store.MirrorPeriod, in ethereum.FilterQuery) (bool, error) {
	logs, err := events(ctx, p.cfg.Pool, p.contract, period.Period, in)
	if err != nil || len(logs) == 0 {
		return false, err
	}
	log := logs[0]
	if len(log.Data) < 32 || toll.Hash(log.Data[:32]) != period.Root {
		return false, fmt.Errorf("period %d: %w", period.Period, ErrConflict)
	}
	period.State, period.TxHash, period.Block, period.BlockHash = IsAnchored, toll.Hash(log.TxHash), int64(log.BlockNumber), toll.Hash(log.BlockHash)
	if p.cfg.AtOnce {
		period.State = IsFinal
	}
	return true, p.update(ctx, period)
}

// events returns the Anchored events of a period in some blocks; the contract emits at most one.
func events(ctx context.Context, pool *endpoints.Pool, contract common.Address, period int64, in ethereum.FilterQuery) ([]types.Log, error) {
	in.Addresses = []common.Address{contract}
	in.Topics = [][]common.Hash{{anchored}, {common.BigToHash(big.NewInt(period))}}
	return endpoints.Get(ctx, pool, func(ctx context.Context, c *endpoints.Conn) ([]types.Log, error) { return c.FilterLogs(ctx, in) })
}

// settle makes an anchored period final, or takes it back when its block is gone.
func (p *Publisher) settle(ctx context.Context, period *store.MirrorPeriod) error {
	header, err := endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (*types.Header, error) {
		return c.HeaderByNumber(ctx, big.NewInt(period.Block))
	})
	switch {
	case errors.Is(err, ethereum.NotFound):
	case err != nil:
		return err
	case header.Hash() == common.Hash(period.BlockHash):
		finalized, err := p.cfg.Pool.Head(ctx, "finalized")
		if err != nil || finalized.Number.Int64() < period.Block {
			return nil // a chain may not have a finalized block yet
		}
		period.State, period.Raw = IsFinal, nil
		return p.update(ctx, period)
	}
	p.cfg.Log.WarnContext(ctx, "a published mirror root is no longer on the chain", "period", period.Period)
	period.State, period.Block, period.BlockHash = IsSent, 0, toll.Hash{}
	return p.update(ctx, period)
}

// update stores a period, under the lease.
func (p *Publisher) update(ctx context.Context, period *store.MirrorPeriod) error {
	return p.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := p.cfg.Lease.Check(ctx, tx); err != nil {
			return err
		}
		return store.UpdateMirrorPeriod(ctx, tx, period)
	})
}

func (p *Publisher) code(ctx context.Context) ([]byte, error) {
	return endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) ([]byte, error) { return c.CodeAt(ctx, p.contract, nil) })
}

func (p *Publisher) nonce(ctx context.Context) (uint64, error) {
	return endpoints.Get(ctx, p.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (uint64, error) {
		return c.NonceAt(ctx, p.cfg.Operator, nil)
	})
}

// fees are those of the next transaction, which takes the place of pending, nil for none.
func (p *Publisher) fees(head *types.Header, pending *types.Transaction) (tip, feeCap *big.Int, err error) {
	if head.BaseFee.Cmp(p.cfg.MaxFee) > 0 {
		return nil, nil, errFee
	}
	tip, feeCap = p.cfg.Tip, new(big.Int).Lsh(head.BaseFee, 1)
	feeCap.Add(feeCap, tip)
	if pending != nil {
		tip, feeCap = signer.Raised(pending, tip, feeCap)
	}
	return tip, feeCap, nil
}

// send sends a transaction, and takes the answers that say that it, or one in its place, is known for none: the chain is asked next.
func (p *Publisher) send(ctx context.Context, raw []byte) error {
	err := p.cfg.Pool.Send(ctx, raw)
	switch endpoints.Understand(err) {
	case endpoints.Took, endpoints.NonceUsed, endpoints.Underpriced:
		return nil
	}
	return err
}
