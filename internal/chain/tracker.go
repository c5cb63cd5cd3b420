package chain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// overlap is how many blocks are read again each time, and how deep a reorganisation may be that is followed.
	overlap = 64
	// lazy is how far the cursor may stay behind while nothing of ours happens.
	lazy = 500
	// maxOpen is how many operations are followed at a time.
	maxOpen = 20_000
)

// underWay are the states of operations whose event is looked for or gets deeper.
var underWay = []State{Signed, Sent, Included}

// ErrOtherChain says that the chain is not the one that the database is about, or has changed so deeply that nothing that follows
// from it may be done without a person.
var ErrOtherChain = errors.New("chain: the chain does not match the chain in the database (chain_mismatch)")

// tracker follows the chain: it finds the events of operations, tells how deep they are, and whether they are still there. One
// process at a time does so, under a lease.
type tracker struct {
	rail    *Rail
	lease   *jobs.Lease
	cursor  Cursor
	fresh   bool            // the lease is new: what others have noted is looked at again
	seen    common.Hash     // head up to which all is done
	sales   map[string]bool // sales whose authorizations were looked for up to there
	chunk   uint64          // blocks in one query for logs
	done    map[logID]uint64
	owed    uint64          // block of the first log whose effect is still to come; 0: none
	unclear pauses          // operations about which the chain does not tell now
	asked   pauses          // operations whose nonce was looked at
	spoilt  map[string]bool // operations whose nonce somebody else has used, as the last look says
	unread  map[string]bool // operations of which a log was not understood: it is owed
	fence   int64           // of the lease when it was last held; 0: what is known here may be old
	quick   int
	final0  common.Hash // finalized block for which all paid operations were looked at
	// Of a database that was restored: restored until the chain has been read up to its head, the
	// time of the backup, and wallets whose operations may have been lost.
	restored bool
	backupAt time.Time
	wallets  []common.Hash
	pass     *pass
}

// logID names a log whose effects are none of the database's, with its block for forgetting it.
type logID struct {
	block common.Hash
	index uint
}

// pass is what one look at the chain has read.
type pass struct {
	head   *types.Header
	tags   map[string]*types.Header
	hashes map[uint64]common.Hash
	doubt  bool // a log was in a block that is not of the chain
	again  bool // the chain changed meanwhile: there is another pass at once
}

// halted returns why this rail has stopped, nil while it has not.
func (r *readiness) halted() error {
	if why := r.stopped.Load(); why != nil {
		return *why
	}
	return nil
}

// halt stops what follows and sends, until the process starts again: the operator decides.
func (r *readiness) halt(ctx context.Context, why error) error {
	if r.stopped.CompareAndSwap(nil, &why) {
		alarm.Log(ctx, r.cfg.Log, alarm.ChainHalted, "the crypto rail has stopped: check the chain, then restart the service", "err", why)
	}
	return why
}

// listen wakes the tracker at each new head, where an endpoint sends them by itself, as the one in this process does.
func (r *Rail) listen(ctx context.Context) error {
	heads := make(chan *types.Header, 16)
	var subscription ethereum.Subscription
	err := r.cfg.Pool.Read(ctx, func(_ context.Context, c *endpoints.Conn) (err error) {
		if !c.RPC.SupportsSubscriptions() {
			return nil
		}
		// It lives longer than this read.
		subscription, err = c.SubscribeNewHead(ctx, heads)
		return err
	})
	if err != nil || subscription == nil {
		return err
	}
	defer subscription.Unsubscribe()
	for {
		select {
		case <-heads:
			r.moved.Fire()
		case err := <-subscription.Err():
			return fmt.Errorf("chain: the subscription to new blocks ended: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// hold takes or prolongs the lease. What others have noted since this process had it is looked at again.
func (t *tracker) hold(ctx context.Context) error {
	if err := t.lease.Take(ctx); err != nil {
		return err
	}
	fence := t.lease.Fence()
	// The same fence, or the next one: no other process had the lease since.
	if t.fence == 0 || fence > t.fence+1 {
		cursor, err := t.rail.records.cursor(ctx)
		if err != nil {
			return err
		}
		if err := t.readRestoration(ctx); err != nil {
			return err
		}
		t.fresh, t.seen, t.cursor = true, common.Hash{}, cursor
	}
	t.fence = fence
	return nil
}

// readRestoration reads whether the database was restored, and the wallets to look for then: of an
// operation that was signed after the backup only its sender is known.
func (t *tracker) readRestoration(ctx context.Context) error {
	st := t.rail.cfg.Store
	mark, err := store.ReadRestoration(ctx, st)
	t.restored, t.backupAt, t.wallets = mark != nil, time.Time{}, nil
	if err != nil || mark == nil {
		return err
	}
	t.backupAt = mark.BackupAt
	all, err := store.Wallets(ctx, st)
	for _, a := range all {
		t.wallets = append(t.wallets, common.BytesToHash(a[:]))
	}
	return err
}

// runOnce calls [tracker.run]. It drops what it remembers when another worker changed a record.
func (t *tracker) runOnce(ctx context.Context) (time.Duration, error) {
	if err := t.rail.halted(); err != nil {
		return 0, err
	}
	pause, err := t.run(ctx)
	switch {
	case errors.Is(err, ErrChanged):
		t.seen, t.fence = common.Hash{}, 0
		return changedPause, nil
	case errors.Is(err, store.ErrLeased):
		t.seen, t.fence = common.Hash{}, 0
	}
	return pause, err
}

// run looks once, and says when to look again if nothing happens until then.
func (t *tracker) run(ctx context.Context) (time.Duration, error) {
	r := t.rail
	head, err := r.cfg.Pool.Head(ctx, "latest")
	if err != nil {
		return 0, err
	}
	// The operations after the head: one that is in a block was in the database before.
	open, err := r.records.opsIn(ctx, maxOpen, underWay...)
	if err != nil {
		return 0, err
	}
	paid, err := r.records.opsIn(ctx, 1, Confirmed)
	if err != nil {
		return 0, err
	}
	t.pass = &pass{head: head, tags: map[string]*types.Header{"latest": head}, hashes: map[uint64]common.Hash{head.Number.Uint64(): head.Hash()}}
	if len(open)+len(paid) == 0 {
		t.quick = 0
		if quiet, err := t.quiet(ctx); err != nil || quiet {
			return idle, err
		}
	}
	if err := t.hold(ctx); err != nil {
		return 0, err // a process that has the lease sees the operations, too, or its lease ends
	}
	if err := t.follow(ctx, open); err != nil {
		return 0, err
	}
	switch {
	case len(open) > 0 || t.pass.again:
		t.quick++
		if r.cfg.Embedded {
			return backoff.Double(20*time.Millisecond, time.Second, t.quick), nil
		}
		return backoff.Double(500*time.Millisecond, time.Second, t.quick), nil
	case len(paid) > 0:
		return 5 * time.Second, nil // they only get older
	}
	return idle, t.lease.Release(ctx)
}

// quiet reports whether nothing of ours has happened: the head is known, or the blocks since the cursor hold no log of ours.
// It takes no lease and writes nothing.
func (t *tracker) quiet(ctx context.Context) (bool, error) {
	head := t.pass.head.Hash()
	if head == t.seen {
		return true, nil
	}
	if t.cursor == (Cursor{}) {
		var err error
		if t.cursor, err = t.rail.records.cursor(ctx); err != nil || t.cursor == (Cursor{}) {
			return false, err
		}
	}
	number := t.pass.head.Number.Uint64()
	if number < t.cursor.Block || number > t.cursor.Block+lazy || t.fence == 0 || t.owed > 0 {
		return false, nil
	}
	if hash, ok, err := t.hashAt(ctx, t.cursor.Block); err != nil || !ok || hash != t.cursor.Hash {
		return false, err
	}
	logs, err := t.logs(ctx, t.cursor.Block+1, number, nil, nil)
	if err != nil || len(logs) > 0 {
		return false, err
	}
	t.seen = head
	return true, nil
}

// hashAt is the hash of a block of the chain as it is now. ok is false when there is none with this number.
func (t *tracker) hashAt(ctx context.Context, number uint64) (hash common.Hash, ok bool, err error) {
	if hash, ok = t.pass.hashes[number]; ok {
		return hash, true, nil
	}
	header, err := t.rail.chain.header(ctx, new(big.Int).SetUint64(number))
	if errors.Is(err, ethereum.NotFound) {
		return common.Hash{}, false, nil
	}
	if err != nil {
		return common.Hash{}, false, err
	}
	t.pass.hashes[number] = header.Hash()
	return header.Hash(), true, nil
}

// tag returns the block that is called "safe" or "finalized", read once in a pass. The embedded chain is taken at its word: its
// head is both. nil when there is none that can be believed.
func (t *tracker) tag(ctx context.Context, name string) *types.Header {
	if t.rail.cfg.Embedded {
		name = "latest"
	}
	header, read := t.pass.tags[name]
	if !read {
		var err error
		if header, err = t.rail.cfg.Pool.Head(ctx, name); err != nil {
			t.rail.log.WarnContext(ctx, "a block of the chain cannot be read", "called", name, "err", err)
			header = nil
		}
		t.pass.tags[name] = header
	}
	return header
}
