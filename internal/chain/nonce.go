package chain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
)

// uses reads how often the EntryPoint has counted the nonce key of an operation up (ERC-4337, "Semi-abstracted Nonce Support"),
// on live as two endpoints say it.
func (r *Rail) uses(ctx context.Context, op *Op) (uint64, error) {
	nonce, err := r.cfg.Pool.Agree(ctx, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		n, err := view(ctx, c, contracts.EntryPoint, "getNonce(address,uint192)", common.LeftPadBytes(op.Sender[:], 32), common.LeftPadBytes(op.NonceKey[:], 32))
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

// ran looks for the event of the operation that used the nonce of an order, whosever operation it was, from the head back to some
// time before the order. On live two endpoints have to say the same of each block. There is none of a nonce that the account has
// counted up without an operation.
func (r *Rail) ran(ctx context.Context, op *Op) (e event, found bool, err error) {
	head, err := r.cfg.Pool.Head(ctx, "latest")
	if err != nil {
		return event{}, false, err
	}
	since := min(head.Time, uint64(max(op.CreatedAt.Unix(), 0)))
	since -= min(since, uint64(searchBack/time.Second))
	nonce := userop.Nonce(op.NonceKey)
	for to, chunk := head.Number.Uint64(), uint64(maxChunk); ; {
		from := to - min(to, chunk-1)
		query := ethereum.FilterQuery{
			FromBlock: new(big.Int).SetUint64(from), ToBlock: new(big.Int).SetUint64(to), Addresses: []common.Address{contracts.EntryPoint},
			Topics: [][]common.Hash{{topicRun}, nil, {common.BytesToHash(op.Sender[:])}},
		}
		var mu sync.Mutex
		said := map[common.Hash]event{}
		digest, err := r.cfg.Pool.Agree(ctx, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
			logs, err := c.FilterLogs(ctx, query)
			for i := range logs {
				if e, ok := parseEvent(&logs[i]); ok && e.sender == op.Sender && e.nonce.Cmp(nonce) == 0 {
					mu.Lock()
					defer mu.Unlock()
					said[e.digest()] = e
					return e.digest(), nil
				}
			}
			return common.Hash{}, err
		})
		if _, refused := errors.AsType[rpc.Error](err); refused && chunk > 1 {
			chunk /= 2
			continue
		}
		if err != nil {
			return event{}, false, err
		}
		if e, ok := said[digest]; ok {
			return e, true, nil
		}
		first, err := r.header(ctx, from)
		if err != nil || from == 0 || first.Time < since {
			return event{}, false, err
		}
		to = from - 1
	}
}

// usedUp says that the account of an order that nobody was shown has used its nonce for something else. nil without an error: it
// may be that the order was paid, by a process whose records are lost, and a person has to look.
func (r *Rail) usedUp(ctx context.Context, op *Op) (*Failure, error) {
	if op.Sender == r.cfg.Service {
		return nil, nil
	}
	e, found, err := r.ran(ctx, op)
	if err == nil && found && e.success {
		var paid bool
		if paid, err = r.made(ctx, op, e.place); paid {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &Failure{Code: toll.CodeChainFailed, Reason: "the account has used the nonce of the order for something else"}, nil
}

// voided reports whether a void whose block is final has made its order impossible. The nonce of the order says so, and not that
// no event of the order is known, which an endpoint may hide: the void has counted it up, and nobody else. Where somebody else did
// as well, the operation of the order is looked for once more. A void that has not counted it up has failed.
func (t *tracker) voided(ctx context.Context, void *Op) (bool, error) {
	r := t.rail
	order, err := r.cfg.Journal.Op(ctx, orderOfVoid(void.ID))
	if err != nil || order.State != Signed && order.State != Sent {
		return err == nil, err
	}
	uses, err := r.uses(ctx, order)
	if err == nil && uses == 1 {
		return true, nil
	}
	var e event
	var found bool
	if err == nil && uses > 1 {
		e, found, err = r.ran(ctx, order)
	}
	switch {
	case err != nil:
		r.log.Warn("whether an order was made impossible is not known yet", "order", order.ID, "err", err)
		return false, ctx.Err()
	case uses == 0:
		f := movedNothing(void)
		f.Place = void.Place
		void.State, void.Place, void.Failure = Failed, Place{}, f
		return false, nil
	case found && e.of(order):
		return true, t.happened(ctx, order, &e, "")
	case found:
		return true, nil
	case order.Sender != r.cfg.Service && (order.Tx == common.Hash{} || r.cfg.Embedded || r.cfg.Pool.Agrees()):
		return true, nil // its holder has counted it up
	}
	r.log.Error("alarm: the nonce of an order is used, and no endpoint tells for what", "order", order.ID)
	return false, nil
}
