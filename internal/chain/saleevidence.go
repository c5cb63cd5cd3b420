package chain

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
)

// Events of a token about authorizations (EIP-3009).
var (
	topicUsed     = topic("AuthorizationUsed(address,bytes32)")
	topicCanceled = topic("AuthorizationCanceled(address,bytes32)")
)

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
func (r *reader) used(ctx context.Context, op *Op) (bool, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (bool, error) { return authorizationUsed(ctx, c, op) })
}

// authorizationUsed is [reader.used] as one endpoint says it.
func authorizationUsed(ctx context.Context, c *endpoints.Conn, op *Op) (bool, error) {
	n, err := view(ctx, c, op.Token, "authorizationState(address,bytes32)", common.LeftPadBytes(op.Payer[:], 32), op.Sale.Nonce[:])
	return err == nil && n.Sign() != 0, err
}

// fate is what the logs of a token say became of an authorization; of any other operation, its event and its transfers.
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
func fateAt(ctx context.Context, c *endpoints.Conn, op *Op, at Position) (fate, error) {
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
func tokenLogs(ctx context.Context, c *endpoints.Conn, token common.Address, at Position, topics ...common.Hash) ([]types.Log, error) {
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

// search looks for the transaction that has carried an authorization out; the zero place says that none has. It goes back from the
// end of the authorization, or the head. A sale may be begun long after its end, when its process had stopped.
func (r *reader) search(ctx context.Context, op *Op) (Position, error) {
	head, err := r.cfg.Pool.Head(ctx, "latest")
	if err != nil {
		return Position{}, away(err)
	}
	newest := head.Number.Uint64()
	to := newest
	if head.Time >= op.Before {
		if to, err = r.lastBefore(ctx, newest, op.Before); err != nil {
			return Position{}, err
		}
	}
	topics := [][]common.Hash{{topicUsed}, {common.BytesToHash(op.Payer[:])}, {op.Sale.Nonce}}
	look := func(ctx context.Context, c *endpoints.Conn, from, to *big.Int) (Position, error) {
		logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{FromBlock: from, ToBlock: to, Addresses: []common.Address{op.Token}, Topics: topics})
		for i := range logs {
			at := positionOf(&logs[i])
			what, err := fateAt(ctx, c, op, at)
			if err != nil {
				return Position{}, err
			}
			if what == carried {
				return at, nil
			}
		}
		return Position{}, err
	}
	return backwards(ctx, r, to, to == newest, min(orderedBefore(op, head), op.Before), look)
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
func (t *tracker) sold(ctx context.Context, op *Op, at Position) error {
	r := t.rail
	landed := op.State == Included || op.State == Confirmed || op.State == Final
	if op.State == Created || landed && op.Position == at || op.Failure != nil && op.Failure.Position == at {
		return nil
	}
	what, err := ask(ctx, r.chain, func(ctx context.Context, c *endpoints.Conn) (fate, error) { return fateAt(ctx, c, op, at) })
	if err != nil {
		return err
	}
	switch {
	case what == unused:
		r.log.WarnContext(ctx, "a log of an authorization is missing on the second read", "order", op.ID, "block", at.Block)
		return nil
	case what == carried:
		if op.State == Failed {
			alarm.Log(ctx, r.log, alarm.LatePayment, "a failed purchase moved money after all", "order", op.ID, "tx", at.Tx)
		}
		op.State, op.Position, op.Tx, op.Failure = Included, at, at.Tx, nil
	case op.State == Failed:
		return nil // it was decided before, and says the same
	default:
		f := takenNonce("The nonce of the authorization was used for another transfer.")
		if what == canceled {
			f = takenNonce("The authorization was canceled.")
		}
		f.Position = at
		op.State, op.Position, op.Failure = Sent, Position{}, f
	}
	if _, err := t.step(ctx, op); err != nil {
		return err
	}
	return t.write(ctx, op)
}

// ran notes that the operation of a sale has run. What became of the sale the logs of the token say, which stand before the event:
// an operation that fails because others were faster is no failure of the sale.
func (t *tracker) ran(ctx context.Context, op *Op, e *event, reason string) {
	id := logID{e.place.Hash, e.place.LogIndex}
	if _, told := t.done[id]; told {
		return
	}
	t.done[id] = e.place.Block
	switch landed := op.Position != (Position{}); {
	case landed && (!e.success || op.Position.Tx == e.place.Tx):
	case e.success:
		alarm.Log(ctx, t.rail.log, alarm.ChainMovedNothing, "the operation of a purchase ran, but the token did not execute the authorization", "order", op.ID, "tx", e.place.Tx)
	default:
		t.rail.log.WarnContext(ctx, "the operation of a purchase has failed", "order", op.ID, "tx", e.place.Tx, "reason", reason)
	}
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
	used, err := r.chain.usedForAll(ctx, op)
	if err != nil {
		return false, err
	}
	if used {
		at, err := r.chain.search(ctx, op)
		if err != nil {
			return false, err
		}
		if at != (Position{}) {
			op.State, op.Position, op.Tx = Included, at, at.Tx
			return true, nil
		}
		alarm.Log(ctx, r.log, alarm.ChainOutcomeUnknown, "a token reports an authorization as used, but no log shows for which payment", "order", op.ID, "token", op.Token)
	}
	op.State, op.Failure = Failed, saleFailed(toll.CodePaymentRequired, wordBefore, "The authorization expired before it was carried out.")
	op.Failure.Position = Position{Block: final.Number.Uint64(), Hash: final.Hash()}
	return true, nil
}

// usedForAll is [reader.used], on live as two endpoints say it: one that lies must not end a sale that is paid. A token that is not
// there has moved nothing.
func (r *reader) usedForAll(ctx context.Context, op *Op) (bool, error) {
	return agree(ctx, r, func(ctx context.Context, c *endpoints.Conn) (bool, error) {
		used, err := authorizationUsed(ctx, c, op)
		if errors.Is(err, errAnswer) {
			err = nil
		}
		return used, err
	})
}

// include takes a signed operation whose payment is on the chain already to Included.
func (o *Op) include(operation *userop.Operation, chainID *big.Int) {
	o.State, o.Operation, o.Hash, o.Tx = Included, operation, operation.Hash(chainID), o.Position.Tx
}
