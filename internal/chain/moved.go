package chain

import (
	"cmp"
	"context"
	"errors"
	"math/big"
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
func moved(ctx context.Context, c *endpoints.Conn, chainID *big.Int, op *Op, at Position) (bool, error) {
	switch {
	case op.Kind != KindOrder:
		return true, nil
	case op.Token == common.Address{}:
		return kept(ctx, c, chainID, op.Payer, at)
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

// kept reports whether an account had our code when a transaction ran: the native token leaves no logs. Its code changes by an
// authorization that its key has signed, in whosever transaction (EIP-7702, "Behavior"). So it had, when it came into the block
// with our code, or with none and the authorization of ours that the chain takes, and when no authorization of other code is there
// up to the transaction. Whether the chain has taken one of these cannot be told from outside: other code may count up the nonce
// by which the next one is valid or not. Those whose nonce was over before the block were not. An endpoint that has forgotten the
// state before the block says nothing against it.
func kept(ctx context.Context, c *endpoints.Conn, chainID *big.Int, of common.Address, at Position) (bool, error) {
	var block *struct {
		Parent       common.Hash `json:"parentHash"`
		Transactions []struct {
			Hash           common.Hash                  `json:"hash"`
			From           common.Address               `json:"from"`
			Authorizations []types.SetCodeAuthorization `json:"authorizationList"`
		} `json:"transactions"`
	}
	if err := c.RPC.CallContext(ctx, &block, "eth_getBlockByHash", at.Hash, true); err != nil {
		return false, err
	}
	if block == nil {
		return false, ethereum.NotFound
	}
	var is account
	code, err := c.CodeAtHash(ctx, of, block.Parent)
	if err == nil {
		is.code = codeOf(code)
		is.nonce, err = c.NonceAtHash(ctx, of, block.Parent)
	}
	if _, forgotten := errors.AsType[rpc.Error](err); forgotten {
		is, err = account{code: codeOurs}, nil
	}
	if err != nil || is.code == codeForeign {
		return false, err
	}
	before := is.nonce
	for _, tx := range block.Transactions {
		if tx.From == of {
			is.nonce++
		}
		for _, a := range tx.Authorizations {
			by, err := a.Authority()
			here := a.ChainID.IsZero() || a.ChainID.CmpBig(chainID) == 0
			switch {
			case err != nil || by != of || !here || a.Nonce < before:
			case a.Address != contracts.AccountCode:
				return false, nil
			case a.Nonce == is.nonce:
				is.code = codeOurs
				is.nonce++
			}
		}
		if tx.Hash == at.Tx {
			return is.code == codeOurs, nil
		}
	}
	return false, nil
}

// made is [moved], asked of the best endpoint.
func (r *reader) made(ctx context.Context, op *Op, at Position) (bool, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (bool, error) { return moved(ctx, c, r.chainID, op, at) })
}

// movedNothing is the failure of an operation that ran and made no payment.
func movedNothing(op *Op) *Failure {
	return &Failure{
		Code: toll.CodeChainForeignCode, Reason: "The operation ran but moved no money, because the account had unsupported contract code.",
		Params: map[string]any{"address": toll.Address(op.Payer).String()},
	}
}
