package rails

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/mirror"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// store.SettingMirrorPeriod remembers the length of a period: with another one the numbers of periods would not go on.

// burns is the mirror of burned credits: it closes periods and answers for them. Publishing is the publisher's.
type burns struct {
	store    *store.Store
	ledger   *ledger.Ledger
	clock    func() time.Time
	length   time.Duration
	network  string
	contract common.Address
}

// newBurns sets up the mirror of burns.
func (n *Chain) newBurns(ctx context.Context) (*burns, error) {
	b := &burns{
		store: n.deps.Store, ledger: n.deps.Ledger, clock: n.deps.Clock, length: cmp.Or(n.cfg.MirrorPeriod, defaultMirrorPeriod),
		network: n.env().Network(), contract: contracts.CreditMirror(n.keys.mirror),
	}
	return b, b.fixLength(ctx)
}

const (
	leaseMirror     = "mirror"        // held by the process that publishes periods
	mirrorBusy      = 2 * time.Second // between steps while periods are open
	mirrorBusyLocal = 50 * time.Millisecond
	mirrorIdle      = 15 * time.Second
	mirrorIdleLocal = time.Second
)

// publish returns the loop that closes periods and brings their roots onto the chain. One process of all does the latter.
func (n *Chain) publish(r *runningChain) jobs.Loop {
	busy, idle := mirrorBusy, mirrorIdle
	if r.dev != nil {
		busy, idle = mirrorBusyLocal, mirrorIdleLocal
	}
	turn := func(ctx context.Context) (time.Duration, error) {
		if err := n.burns.close(ctx); err != nil {
			return 0, err
		}
		open, err := store.OpenMirrorPeriods(ctx, n.deps.Store, 1)
		if err != nil {
			return 0, err
		}
		if len(open) == 0 {
			return 0, r.lease.Release(ctx)
		}
		if err := r.lease.Take(ctx); err != nil {
			return 0, err
		}
		if more, err := r.mirror.Step(ctx); err != nil || !more {
			return 0, err
		}
		return busy, nil
	}
	return jobs.Loop{Name: "chain.mirror", Every: idle, Run: turn, Lease: r.lease}
}

// fixLength refuses another length of a period than that of the first start.
func (b *burns) fixLength(ctx context.Context) error {
	want := b.length.String()
	var have []byte
	err := b.store.Tx(ctx, func(tx *store.Tx) (err error) {
		have, err = store.PutSettingIfAbsent(ctx, tx, store.SettingMirrorPeriod, []byte(want))
		return err
	})
	if err == nil && string(have) != want {
		return fmt.Errorf("the mirror was started with a period of %s, but the configuration sets %s: set TOLL_CHAIN_MIRROR_PERIOD=%s", have, want, have)
	}
	return err
}

// close fixes the leaves and roots of the periods that are over. Of several processes that do so, one has its way.
func (b *burns) close(ctx context.Context) error {
	cut := mirror.Cut(b.clock(), b.length)
	last := int64(-1)
	switch p, err := store.LastMirrorPeriod(ctx, b.store); {
	case err == nil:
		last = p.Period
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	end := mirror.Number(cut, b.length) // the first period that is not over
	if last+1 >= end {
		return nil
	}
	found, done, err := b.ledger.MirrorBurns(ctx, cut)
	if err != nil {
		return err
	}
	in := make([]mirror.Burn, len(found))
	for i, f := range found {
		in[i] = mirror.Burn{At: f.At, BurnFields: toll.BurnFields{
			Commitment: f.Commitment, PlanID: f.Plan, Holder: f.Subscriber, RequestHash: toll.Hash(toll.Keccak256([]byte(f.Request))), Credits: f.Amount,
		}}
	}
	closed := mirror.Close(in, b.length, last)
	if len(closed) == 0 {
		return nil
	}
	err = b.store.Tx(ctx, func(tx *store.Tx) error {
		for _, c := range closed {
			p := store.MirrorPeriod{
				Period: c.Number, Root: c.Root, Leaves: int64(len(c.Leaves)), Credits: c.Credits.String(), State: mirror.IsClosed,
			}
			if err := store.InsertMirrorPeriod(ctx, tx, &p, c.Leaves, c.Above); err != nil {
				return err
			}
		}
		return store.MoveJournalCursor(ctx, tx, ledger.Mirror, done)
	})
	if store.IsUnique(err) {
		return nil // another process was first
	}
	return err
}

// Proof returns what answers for the burns of receipts, nil when nothing is mirrored.
func (n *Chain) Proof() func(context.Context, toll.Hash) (*toll.BurnProof, error) {
	if n.burns == nil {
		return nil
	}
	return n.burns.proof
}

// proof proves that the burn of a receipt is on the chain.
func (b *burns) proof(ctx context.Context, transaction toll.Hash) (*toll.BurnProof, error) {
	leaf, err := store.MirrorLeafByCommitment(ctx, b.store, transaction)
	if errors.Is(err, store.ErrNotFound) {
		return b.unpublished(ctx, transaction)
	}
	if err != nil {
		return nil, err
	}
	p, err := store.MirrorPeriodByNumber(ctx, b.store, leaf.Period)
	if err != nil {
		return nil, err
	}
	out := &toll.BurnProof{
		Status: toll.ProofOpen, Period: p.Period, Root: p.Root, Index: leaf.Index, Leaf: leaf.Leaf(), Fields: leaf.BurnFields,
		Network: b.network, Contract: toll.Address(b.contract), AnchorTransaction: p.TxHash,
	}
	switch p.State {
	case mirror.IsAnchored:
		out.Status = toll.ProofAnchored
	case mirror.IsFinal:
		out.Status = toll.ProofFinal
	default:
		return out, nil
	}
	out.Proof, err = mirror.Proof(p.Leaves, leaf.Index, func(level, i int64) (toll.Hash, error) {
		if level > 0 {
			return store.MirrorNode(ctx, b.store, p.Period, level, i)
		}
		sibling, err := store.MirrorLeafAt(ctx, b.store, p.Period, i)
		if err != nil {
			return toll.Hash{}, err
		}
		return sibling.Leaf(), nil
	})
	return out, err
}

// unpublished tells a burn that waits for the end of its period from what is never published.
func (b *burns) unpublished(ctx context.Context, transaction toll.Hash) (*toll.BurnProof, error) {
	none := toll.NewError(toll.CodeBurnNotMirrored).WithDetails("transaction %s", transaction)
	r, err := b.ledger.RequestByTransaction(ctx, transaction)
	if err != nil {
		return nil, store.NotFoundAs(err, none)
	}
	a, err := b.ledger.Account(ctx, r.Account)
	if err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, b.store, a.Plan)
	if err != nil {
		return nil, err
	}
	if !plan.Credits.OnchainMirror {
		return nil, none
	}
	return &toll.BurnProof{Status: toll.ProofOpen}, nil
}
