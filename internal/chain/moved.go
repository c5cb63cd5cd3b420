package chain

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
)

var (
	topicBegins   = topic("BeforeExecution()")
	topicTransfer = topic("Transfer(address,address,uint256)")
)

// moved reports whether an operation whose event, success=true, is at a place made its payments. The event alone does not say
// so: who has the key of an account can give it code that agrees to all and does nothing, also in the very transaction.
func moved(ctx context.Context, c *endpoints.Conn, op *Op, at Place) (bool, error) {
	switch {
	case op.Kind != KindOrder:
		return true, nil
	case op.Token == common.Address{}:
		return kept(ctx, c, op.Payer, at)
	}
	logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{
		BlockHash: &at.Hash, Addresses: []common.Address{contracts.EntryPoint, op.Token}, Topics: [][]common.Hash{{topicBegins, topicRun, topicTransfer, topicUsed}},
	})
	if err != nil {
		return false, err
	}
	slices.SortFunc(logs, func(a, b types.Log) int { return cmp.Compare(a.Index, b.Index) })
	left, authorized := slices.Clone(op.Payments), false
	for i := range logs {
		l := &logs[i]
		switch {
		case l.BlockHash != at.Hash || l.TxHash != at.Tx || l.Index >= at.LogIndex || l.Removed || len(l.Topics) == 0:
		case l.Address == contracts.EntryPoint:
			left = slices.Clone(op.Payments) // what came before was not this operation
		case l.Address != op.Token:
		case l.Topics[0] == topicUsed:
			authorized = true
		case authorized:
			authorized = false // the transfer of an authorization, which pays a sale and no order
		default:
			if n := slices.IndexFunc(left, func(p Payment) bool { return transfers(l, op.Payer, p) }); n >= 0 {
				left = slices.Delete(left, n, n+1)
			}
		}
	}
	return len(left) == 0, nil
}

func address(topic common.Hash) common.Address { return common.BytesToAddress(topic[:]) }

// kept reports whether an account had our code throughout a block: the native token leaves no logs. Each change of code counts up
// the nonce of the account. An endpoint that has forgotten the state of the block says nothing against it.
func kept(ctx context.Context, c *endpoints.Conn, of common.Address, at Place) (bool, error) {
	header, err := c.HeaderByHash(ctx, at.Hash)
	if err != nil {
		return false, err
	}
	var before, after account
	read := func(into *account, block common.Hash) error {
		code, err := c.CodeAtHash(ctx, of, block)
		if err == nil {
			into.code = codeOf(code)
			into.nonce, err = c.NonceAtHash(ctx, of, block)
		}
		return err
	}
	err = together(func() error { return read(&before, header.ParentHash) }, func() error { return read(&after, at.Hash) })
	if _, answer := errors.AsType[rpc.Error](err); answer {
		return true, nil
	}
	if err != nil || after.code != codeOurs {
		return false, err
	}
	return before.code == codeOurs && before.nonce == after.nonce || before.code == codeNone && before.nonce+1 == after.nonce, nil
}

// made is [moved], asked of the best endpoint.
func (r *Rail) made(ctx context.Context, op *Op, at Place) (paid bool, err error) {
	err = r.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		paid, err = moved(ctx, c, op, at)
		return err
	})
	return paid, err
}

// movedNothing is the failure of an operation that ran and made no payment.
func movedNothing(op *Op) *Failure {
	return &Failure{
		Code: toll.CodeChainForeignCode, Reason: "the operation ran and moved no money: the account has had other code",
		Params: map[string]any{"address": toll.Address(op.Payer).String()},
	}
}
