package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
)

// Events of a token about authorizations (EIP-3009).
var (
	topicUsed     = topic("AuthorizationUsed(address,bytes32)")
	topicCanceled = topic("AuthorizationCanceled(address,bytes32)")
)

// searchBack is how long before a sale was ordered, and before its end, its authorization may have been carried out. One that
// ends within an hour is hardly older.
const searchBack = 2 * time.Hour

// saleKey names an authorization on the chain: a token takes each nonce of a payer once.
type saleKey struct {
	token, payer common.Address
	nonce        common.Hash
}

func (o *Op) saleKey() saleKey { return saleKey{o.Token, o.Payer, o.Sale.Nonce} }

// parseAuthorization reads a log that says that the nonce of an authorization is used up.
func parseAuthorization(l *types.Log) (saleKey, bool) {
	if l.Removed || len(l.Topics) != 3 || l.Topics[0] != topicUsed && l.Topics[0] != topicCanceled {
		return saleKey{}, false
	}
	return saleKey{l.Address, address(l.Topics[1]), l.Topics[2]}, true
}

// used reads whether a token has used up the nonce of an authorization. [errAnswer] where there is no such token.
func (r *Rail) used(ctx context.Context, op *Op) (bool, error) {
	var n *big.Int
	err := r.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		n, err = view(ctx, c, op.Token, "authorizationState(address,bytes32)", common.LeftPadBytes(op.Payer[:], 32), op.Sale.Nonce[:])
		return err
	})
	return err == nil && n.Sign() != 0, err
}

// fate is what the logs of a token say became of an authorization.
type fate byte

const (
	unused    fate = iota // nothing
	carried               // it moved the money of the sale
	otherwise             // its nonce was used for another transfer
	canceled              // its nonce was cancelled
)

// fateAt reads what a log at a place says of the authorization of a sale. It is carried out where the transfer of the sale
// follows the use of its nonce, as the next log of the token about either, in the same transaction: whoever sent that, and
// whatever else is in it. So no transfer counts for two sales, and [moved] leaves out all that this counts.
func fateAt(ctx context.Context, c *endpoints.Conn, op *Op, at Place) (fate, error) {
	logs, err := tokenLogs(ctx, c, op.Token, at, topicUsed, topicCanceled, topicTransfer)
	if err != nil {
		return unused, err
	}
	i := slices.IndexFunc(logs, func(l types.Log) bool { return l.Index == at.LogIndex })
	if i < 0 {
		return unused, nil
	}
	if key, ok := parseAuthorization(&logs[i]); !ok || key != op.saleKey() {
		return unused, nil
	}
	if logs[i].Topics[0] == topicCanceled {
		return canceled, nil
	}
	if i+1 < len(logs) && transfers(&logs[i+1], op.Payer, op.Payments[0]) {
		return carried, nil
	}
	return otherwise, nil
}

// tokenLogs are the logs of a token with one of these topics in the transaction of a place, in their order.
func tokenLogs(ctx context.Context, c *endpoints.Conn, token common.Address, at Place, topics ...common.Hash) ([]types.Log, error) {
	logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &at.Hash, Addresses: []common.Address{token}, Topics: [][]common.Hash{topics}})
	logs = slices.DeleteFunc(logs, func(l types.Log) bool {
		return l.Address != token || l.BlockHash != at.Hash || l.TxHash != at.Tx || l.Removed || len(l.Topics) == 0
	})
	slices.SortFunc(logs, func(a, b types.Log) int { return cmp.Compare(a.Index, b.Index) })
	return logs, err
}

// transfers reports whether a log of a token is the transfer of a payment.
func transfers(l *types.Log, from common.Address, p Payment) bool {
	return len(l.Topics) == 3 && l.Topics[0] == topicTransfer && len(l.Data) == 32 && address(l.Topics[1]) == from && address(l.Topics[2]) == p.To &&
		new(big.Int).SetBytes(l.Data).Cmp(p.Amount) == 0
}

// search looks for the transaction that has carried an authorization out.
func (r *Rail) search(ctx context.Context, op *Op) (at Place, found bool, err error) {
	err = r.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		at, found, err = carriedOut(ctx, c, op)
		return err
	})
	return at, found, err
}

// searchForAll is [Rail.search], on live as two endpoints say it: one that hides a log must not end a sale that is paid.
func (r *Rail) searchForAll(ctx context.Context, op *Op) (at Place, found bool, err error) {
	var mu sync.Mutex
	said := map[common.Hash]Place{}
	digest, err := r.cfg.Pool.Agree(ctx, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		at, found, err := carriedOut(ctx, c, op)
		if err != nil || !found {
			return common.Hash{}, err
		}
		digest := saleEvidence(op, at, carried)
		mu.Lock()
		defer mu.Unlock()
		said[digest] = at
		return digest, nil
	})
	if err != nil {
		return Place{}, false, away(err)
	}
	at, found = said[digest]
	return at, found, nil
}

// carriedOut is [Rail.search] as one endpoint says it: from the end of the authorization, or the head, back to some time before the
// sale and before that end. A sale may be begun long after its end, when its process had stopped.
func carriedOut(ctx context.Context, c *endpoints.Conn, op *Op) (at Place, found bool, err error) {
	topics := [][]common.Hash{{topicUsed}, {common.BytesToHash(op.Payer[:])}, {op.Sale.Nonce}}
	head, err := c.HeaderByNumber(ctx, nil)
	if err != nil {
		return Place{}, false, err
	}
	since := min(head.Time, op.Before, uint64(max(op.CreatedAt.Unix(), 0)))
	since -= min(since, uint64(searchBack/time.Second))
	to, err := lastBefore(ctx, c, head, op.Before)
	if err != nil {
		return Place{}, false, err
	}
	for chunk := uint64(maxChunk); ; {
		from := to - min(to, chunk-1)
		logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{
			FromBlock: new(big.Int).SetUint64(from), ToBlock: new(big.Int).SetUint64(to), Addresses: []common.Address{op.Token}, Topics: topics,
		})
		if _, refused := errors.AsType[rpc.Error](err); refused && chunk > 1 {
			chunk /= 2
			continue
		}
		if err != nil {
			return Place{}, false, err
		}
		for _, l := range logs {
			if what, err := fateAt(ctx, c, op, placeOf(&l)); err != nil || what == carried {
				return placeOf(&l), err == nil, err
			}
		}
		if from == 0 || len(logs) > 0 {
			return Place{}, false, nil
		}
		first, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(from))
		if err != nil || first.Time < since {
			return Place{}, false, err
		}
		to = from - 1
	}
}

// lastBefore returns the number of the last block before a time, or one at most [maxChunk] after it.
func lastBefore(ctx context.Context, c *endpoints.Conn, head *types.Header, end uint64) (uint64, error) {
	low, high := uint64(0), head.Number.Uint64()
	for head.Time >= end && high-low > maxChunk {
		middle := low + (high-low)/2
		h, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(middle))
		if err != nil {
			return 0, err
		}
		if h.Time < end {
			low = middle
		} else {
			high = middle
		}
	}
	return high, nil
}

// wanted are the authorizations of sales that are under way.
func wanted(ops []*Op) map[saleKey]string {
	all := map[saleKey]string{}
	for _, op := range ops {
		if op.Kind == KindSale {
			all[op.saleKey()] = op.ID
		}
	}
	return all
}

// saleQueries are the queries for what becomes of authorizations.
func saleQueries(sales map[saleKey]string) []ethereum.FilterQuery {
	keys := slices.Collect(maps.Keys(sales))
	var queries []ethereum.FilterQuery
	for some := range slices.Chunk(keys, maxTopics) {
		var tokens []common.Address
		var payers, nonces []common.Hash
		for _, k := range some {
			tokens, payers, nonces = append(tokens, k.token), append(payers, common.BytesToHash(k.payer[:])), append(nonces, k.nonce)
		}
		slices.SortFunc(tokens, common.Address.Cmp)
		queries = append(queries, ethereum.FilterQuery{
			Addresses: slices.Compact(tokens), Topics: [][]common.Hash{{topicUsed, topicCanceled}, payers, nonces},
		})
	}
	return queries
}

// sold notes what a log says became of the authorization of a sale.
func (t *tracker) sold(ctx context.Context, op *Op, at Place) error {
	r := t.rail
	landed := op.State == Included || op.State == Confirmed || op.State == Final
	if op.State == Created || landed && op.Place == at || op.Failure != nil && op.Failure.Place == at {
		return nil
	}
	var what fate
	err := r.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		what, err = fateAt(ctx, c, op, at)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case what == unused:
		r.log.Warn("a log about an authorization is not there when it is asked for again", "order", op.ID, "block", at.Block)
		return nil
	case what == carried:
		if op.State == Failed {
			r.log.Error("alarm: a sale that had failed has moved money after all", "order", op.ID, "tx", at.Tx)
		}
		op.State, op.Place, op.Tx, op.Failure = Included, at, at.Tx, nil
	case op.State == Failed:
		return nil // it was decided before, and says the same
	default:
		f := takenNonce("the nonce of the authorization was used for another transfer")
		if what == canceled {
			f = takenNonce("the authorization was cancelled")
		}
		f.Place = at
		op.State, op.Place, op.Failure = Sent, Place{}, f
	}
	if _, err := t.step(ctx, op); err != nil {
		return err
	}
	return t.write(ctx, op)
}

// ran notes that the operation of a sale has run. What became of the sale the logs of the token say, which stand before the event:
// an operation that fails because others were faster is no failure of the sale.
func (t *tracker) ran(op *Op, e *event, reason string) {
	id := logID{e.place.Hash, e.place.LogIndex}
	if _, told := t.done[id]; told {
		return
	}
	t.done[id] = e.place.Block
	switch landed := op.Place != (Place{}); {
	case landed && (!e.success || op.Place.Tx == e.place.Tx):
	case e.success:
		t.rail.log.Error("alarm: the operation of a sale ran, and its token has not carried the authorization out", "order", op.ID, "tx", e.place.Tx)
	default:
		t.rail.log.Warn("the operation of a sale has failed", "order", op.ID, "tx", e.place.Tx, "reason", reason)
	}
}

// saleEvidence is what two endpoints are asked for: the fate of an authorization at a place.
func saleEvidence(op *Op, at Place, what fate) common.Hash {
	if what == unused {
		return common.Hash{}
	}
	return crypto.Keccak256Hash([]byte{byte(what)}, []byte(op.ID), at.Hash[:], at.Tx[:],
		new(big.Int).SetUint64(at.Block).FillBytes(make([]byte, 8)), new(big.Int).SetUint64(uint64(at.LogIndex)).FillBytes(make([]byte, 8)))
}

// ended ends a sale without storing it when a finalized block is past the end of its authorization, which nobody has had carried
// out: until then anybody can.
func (t *tracker) ended(ctx context.Context, op *Op) (bool, error) {
	r := t.rail
	if op.Failure != nil || op.State != Sent && op.State != Signed || uint64(max(0, r.cfg.Clock().Unix())) < op.Before {
		return false, nil
	}
	final := t.tag(ctx, "finalized")
	if final == nil || final.Time < op.Before {
		return false, nil
	}
	used, err := t.usedForAll(ctx, op)
	if err != nil {
		return false, err
	}
	if used {
		at, found, err := r.searchForAll(ctx, op)
		if err != nil {
			return false, err
		}
		if found {
			op.State, op.Place, op.Tx = Included, at, at.Tx
			return true, nil
		}
		r.log.Error("alarm: a token says that an authorization is used, and no log tells for what", "order", op.ID, "token", op.Token)
	}
	op.State, op.Failure = Failed, saleFailed(toll.CodePaymentRequired, wordBefore, "the authorization ended before it was carried out")
	op.Failure.Place = Place{Block: final.Number.Uint64(), Hash: final.Hash()}
	return true, nil
}

// usedForAll is [Rail.used], on live as two endpoints say it: one that lies must not end a sale that is paid.
func (t *tracker) usedForAll(ctx context.Context, op *Op) (bool, error) {
	r := t.rail
	if r.cfg.Embedded {
		used, err := r.used(ctx, op)
		if errors.Is(err, errAnswer) {
			return false, nil // a token that is not there has moved nothing
		}
		return used, err
	}
	found, err := r.cfg.Pool.Agree(ctx, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		n, err := view(ctx, c, op.Token, "authorizationState(address,bytes32)", common.LeftPadBytes(op.Payer[:], 32), op.Sale.Nonce[:])
		if errors.Is(err, errAnswer) {
			return common.Hash{}, nil
		}
		if err != nil {
			return common.Hash{}, err
		}
		return common.BigToHash(n), nil
	})
	if err != nil {
		return false, fmt.Errorf("whether the authorization of %s is used: %w", op.ID, err)
	}
	return found != (common.Hash{}), nil
}

// include takes a signed operation whose payment is on the chain already to Included.
func (o *Op) include(operation *userop.Operation, chainID *big.Int) {
	o.State, o.Operation, o.Hash, o.Tx = Included, operation, operation.Hash(chainID), o.Place.Tx
}
