package chain

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// changedPause is the pause after another worker wrote a record first.
	changedPause = 20 * time.Millisecond
	// idle is how often a process that has nothing to do looks for what another one has left.
	idle = 15 * time.Second
	// maxInFlight bounds the transactions of one relayer that are not in a block. Pools promise to keep 16.
	maxInFlight = 12
	// stuckAfter is how many blocks a transaction may wait before it is replaced.
	stuckAfter = 3
	// lostAfter is how often a transaction whose nonce is used is looked for before it is given up.
	lostAfter = 3
	// resend is how long a transaction may be in flight before its bytes are sent once more.
	resend = 10 * time.Second
	// retry is the same after an answer that nobody understands.
	retry = 2 * time.Second
	// plainFor is for how long no endpoint is asked to simulate blocks after one refused: it may have been for this once.
	plainFor = time.Minute
	// poor is how long a relayer rests that cannot pay.
	poor = 15 * time.Second
)

// relayer brings operations to the chain with one account. One process at a time does so for an account, under a lease.
type relayer struct {
	rail    *Rail
	address common.Address

	lease   *jobs.Lease
	checked bool      // this is the chain of the database, and the account has no code
	plainTo time.Time // no endpoint is asked to simulate blocks before
	most    int       // operations in a transaction
	sent    map[common.Hash]time.Time
	missing map[uint64]int // how often no transaction of a used nonce was found
	poorTo  time.Time
	warned  time.Time
	quick   int // turns in a row that waited for a block
}

func (r *Rail) newRelayer(address common.Address) *relayer {
	lease := jobs.NewLease(r.cfg.Store, r.cfg.Clock, "relayer:"+address.Hex())
	return &relayer{rail: r, address: address, lease: lease, most: r.cfg.BatchOps, sent: map[common.Hash]time.Time{}, missing: map[uint64]int{}}
}

// hold takes or prolongs the lease of this relayer.
func (w *relayer) hold(ctx context.Context) error {
	before := w.lease.Fence()
	err := w.lease.Take(ctx)
	if w.lease.Fence() != before {
		w.checked = false
	}
	return err
}

// runOnce calls [relayer.run] and retries soon when another worker changed a record.
func (w *relayer) runOnce(ctx context.Context) (time.Duration, error) {
	pause, err := w.run(ctx)
	if errors.Is(err, ErrChanged) {
		return changedPause, nil
	}
	return pause, err
}

// run does what there is to do, and says when to look again if nothing happens until then.
func (w *relayer) run(ctx context.Context) (time.Duration, error) {
	r := w.rail
	if r.halted() != nil {
		return idle, nil
	}
	waiting, pause, err := r.waiting(ctx)
	if err != nil {
		return 0, err
	}
	pending, err := r.records.pendingTxs(ctx, w.address)
	if err != nil {
		return 0, err
	}
	out, err := r.records.opsIn(ctx, 1, Sent)
	if err != nil {
		return 0, err
	}
	if len(waiting) == 0 && len(pending) == 0 && len(out) == 0 {
		w.quick = 0
		return pause, w.lease.Release(ctx)
	}
	if err := w.hold(ctx); err != nil {
		return 0, err // a process that has the lease sees the operation, or its lease ends
	}
	now, err := w.look(ctx)
	if err != nil {
		return 0, err
	}
	open, err := w.settle(ctx, now, pending)
	if err != nil {
		return 0, err
	}
	later, err := w.send(ctx, now, open)
	if err != nil {
		return 0, err
	}
	return min(pause, later), nil
}

// pollPause returns the pause until pending transactions are checked again. A new head wakes the relayer earlier.
func (w *relayer) pollPause() time.Duration {
	w.quick++
	if w.rail.cfg.Embedded {
		return backoff.Double(40*time.Millisecond, time.Second, w.quick)
	}
	return backoff.Double(500*time.Millisecond, 2*time.Second, w.quick)
}

// outlook is what the chain says of a relayer.
type outlook struct {
	head    *types.Header
	nonce   uint64 // of the next transaction that a block can hold
	balance *big.Int
}

var errRelayerCode = errors.New("chain: the relayer account has code, and transaction pools accept only one pending transaction from such an account")

func (w *relayer) look(ctx context.Context) (outlook, error) {
	r := w.rail
	var v outlook
	var code []byte
	err := r.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		// The head first: a nonce that is not used now was not used at that block.
		if v.head, err = c.HeaderByNumber(ctx, nil); err != nil {
			return err
		}
		return together(
			func() (err error) { v.nonce, err = c.NonceAt(ctx, w.address, nil); return err },
			func() (err error) { v.balance, err = c.BalanceAt(ctx, w.address, nil); return err },
			func() (err error) {
				if !w.checked {
					code, err = c.CodeAt(ctx, w.address, nil)
				}
				return err
			},
		)
	})
	if err != nil || w.checked {
		return v, err
	}
	if len(code) > 0 {
		alarm.Log(ctx, r.log, alarm.RelayerHasCode, "a relayer account has contract code, so it is not used", "relayer", w.address)
		return v, errRelayerCode
	}
	if err := r.sameChain(ctx); err != nil {
		return v, err
	}
	w.checked = true
	return v, nil
}

// send brings what waits into new transactions, until enough are in flight. open is how many are.
func (w *relayer) send(ctx context.Context, now outlook, open int) (time.Duration, error) {
	r := w.rail
	for {
		waiting, pause, err := r.waiting(ctx)
		if err == nil {
			waiting, err = w.sensible(ctx, waiting)
		}
		switch {
		case err != nil:
			return 0, err
		case len(waiting) == 0 && open == 0:
			return pause, w.lease.Release(ctx)
		case len(waiting) == 0, open >= maxInFlight:
			return min(pause, w.pollPause()), nil
		case now.head.BaseFee != nil && now.head.BaseFee.Cmp(r.cfg.MaxBaseFee) > 0:
			w.warn("the base fee is above the cap; no transactions are sent", "base_fee", now.head.BaseFee)
			return 2 * time.Second, nil
		case time.Now().Before(w.poorTo):
			return time.Until(w.poorTo), nil
		}
		if window := r.cfg.BatchWindow - r.cfg.Clock().Sub(waiting[0].UpdatedAt); window > 0 && len(waiting) < w.most {
			return min(window, r.cfg.BatchWindow), nil
		}
		mine := r.outbox.claim(r.take(waiting, w.most))
		if len(mine) == 0 {
			return 50 * time.Millisecond, nil // another relayer has them
		}
		sent, err := w.dispatch(ctx, now, mine)
		if err != nil {
			return 0, err
		}
		if sent {
			open++
			w.quick = 0
		}
	}
}

// dispatch brings operations that were claimed into one new transaction: it is stored, and then sent.
func (w *relayer) dispatch(ctx context.Context, now outlook, ops []*Op) (bool, error) {
	defer w.rail.outbox.release(ops) // also after a panic, which ends the turn and not the process
	b, err := w.assemble(ctx, ops)
	if err != nil || b == nil {
		return false, err
	}
	tip, feeCap := w.rail.cfg.fees(now.head.BaseFee)
	if cost := new(big.Int).Mul(feeCap, new(big.Int).SetUint64(b.gas)); now.balance.Cmp(cost) < 0 {
		w.beg(ctx)
		return false, nil
	}
	nonce, err := w.next(ctx, now.nonce)
	if err != nil {
		return false, err
	}
	tx, err := w.store(ctx, now, nonce, b, tip, feeCap, nil)
	if err != nil {
		return false, err
	}
	return true, w.broadcast(ctx, now, tx)
}

// next is the nonce of the next new transaction.
func (w *relayer) next(ctx context.Context, chain uint64) (uint64, error) {
	highest, any, err := store.MaxChainNonce(ctx, w.rail.cfg.Store, toll.Address(w.address))
	if err != nil || !any {
		return chain, err
	}
	return max(uint64(highest)+1, chain), nil
}

// beg says that this relayer cannot pay. What waits is left to the others.
func (w *relayer) beg(ctx context.Context) {
	alarm.Log(ctx, w.rail.log, alarm.RelayerLow, "the balance of a relayer is too low to send transactions", "relayer", w.address)
	w.poorTo = time.Now().Add(poor)
	w.rail.work.Fire()
}

// warn says something at most once a minute.
func (w *relayer) warn(text string, args ...any) {
	if w.seldom() {
		w.rail.log.Warn(text, append(args, "relayer", w.address)...)
	}
}

// seldom reports whether a minute has passed since it did.
func (w *relayer) seldom() bool {
	if time.Since(w.warned) < time.Minute {
		return false
	}
	w.warned = time.Now()
	return true
}
