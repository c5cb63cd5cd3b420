//go:build !nodevchain

package devchain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// Error codes of JSON-RPC and of the execution APIs (https://ethereum.github.io/execution-apis/).
const (
	codeReverted      = 3
	codeInvalidParams = -32602
)

// rpcError is an error with a code other than -32000.
type rpcError struct {
	code int
	text string
	data any
}

func (e *rpcError) Error() string  { return e.text }
func (e *rpcError) ErrorCode() int { return e.code }
func (e *rpcError) ErrorData() any { return e.data }

func invalidParams(format string, values ...any) error {
	return &rpcError{code: codeInvalidParams, text: fmt.Sprintf(format, values...)}
}

// blockAPI are the methods of eth that read blocks, transactions, receipts and accounts. A nil answer is null: the chain does not
// have it.
type blockAPI struct{ c *Chain }

func (a *blockAPI) ChainId() *hexutil.Big { return (*hexutil.Big)(a.c.chain.Config().ChainID) }

func (a *blockAPI) BlockNumber() hexutil.Uint64 {
	return hexutil.Uint64(a.c.chain.CurrentBlock().Number.Uint64())
}

func (a *blockAPI) Syncing() bool { return false }

func (a *blockAPI) Accounts() []common.Address { return []common.Address{} }

// GetBlockByNumber returns a block with its transactions, or with their hashes.
func (a *blockAPI) GetBlockByNumber(number rpc.BlockNumber, whole bool) (fields, error) {
	if number == rpc.PendingBlockNumber {
		block, _, _ := a.c.miner.Pending()
		if block == nil {
			return nil, errNoPending
		}
		result, err := a.blockFields(block, whole)
		if err != nil {
			return nil, err
		}
		for _, unknown := range []string{"hash", "nonce", "miner"} {
			result[unknown] = nil
		}
		return result, nil
	}
	header, err := a.header(number)
	if header == nil || err != nil {
		return nil, err
	}
	return a.blockFields(a.c.chain.GetBlock(header.Hash(), header.Number.Uint64()), whole)
}

// GetBlockByHash returns a block, which a reorganization may have replaced.
func (a *blockAPI) GetBlockByHash(hash common.Hash, whole bool) (fields, error) {
	block := a.c.chain.GetBlockByHash(hash)
	if block == nil {
		return nil, nil
	}
	return a.blockFields(block, whole)
}

// GetTransactionByHash returns a transaction of the chain or of the pool.
func (a *blockAPI) GetTransactionByHash(hash common.Hash) (fields, error) {
	if at, tx := a.c.chain.GetCanonicalTransaction(hash); tx != nil {
		return a.transactionFields(tx, a.c.chain.GetHeaderByHash(at.BlockHash), at.Index)
	}
	if tx := a.c.pool.Get(hash); tx != nil {
		return a.transactionFields(tx, nil, 0)
	}
	return nil, nil
}

// GetTransactionReceipt returns the receipt of a transaction of the chain.
func (a *blockAPI) GetTransactionReceipt(hash common.Hash) (fields, error) {
	at, tx := a.c.chain.GetCanonicalTransaction(hash)
	if tx == nil {
		return nil, nil
	}
	receipt, err := a.c.chain.GetCanonicalReceipt(tx, at.BlockHash, at.BlockIndex, at.Index)
	if err != nil {
		return nil, err
	}
	result, err := fieldsOf(receipt)
	if err != nil {
		return nil, err
	}
	if receipt.Logs == nil {
		result["logs"] = []*types.Log{}
	}
	delete(result, "root")
	if receipt.ContractAddress == (common.Address{}) {
		result["contractAddress"] = nil
	}
	from, err := types.Sender(types.LatestSigner(a.c.chain.Config()), tx)
	result["from"], result["to"], result["type"] = from, tx.To(), hexutil.Uint64(tx.Type())
	return result, err
}

// GetBalance returns the wei of an account.
func (a *blockAPI) GetBalance(account common.Address, at *rpc.BlockNumberOrHash) (*hexutil.Big, error) {
	db, _, err := a.state(at)
	if err != nil {
		return nil, err
	}
	return (*hexutil.Big)(db.GetBalance(account).ToBig()), db.Error()
}

// GetCode returns the code of an account.
func (a *blockAPI) GetCode(account common.Address, at *rpc.BlockNumberOrHash) (hexutil.Bytes, error) {
	db, _, err := a.state(at)
	if err != nil {
		return nil, err
	}
	return db.GetCode(account), db.Error()
}

// GetTransactionCount returns the next nonce of an account, with "pending" behind the transactions of the pool.
func (a *blockAPI) GetTransactionCount(account common.Address, at *rpc.BlockNumberOrHash) (*hexutil.Uint64, error) {
	if at != nil && at.BlockNumber != nil && *at.BlockNumber == rpc.PendingBlockNumber {
		nonce := hexutil.Uint64(a.c.pool.PoolNonce(account))
		return &nonce, nil
	}
	db, _, err := a.state(at)
	if err != nil {
		return nil, err
	}
	nonce := hexutil.Uint64(db.GetNonce(account))
	return &nonce, db.Error()
}

// GetStorageAt returns a word of the storage of an account.
func (a *blockAPI) GetStorageAt(account common.Address, key string, at *rpc.BlockNumberOrHash) (hexutil.Bytes, error) {
	db, _, err := a.state(at)
	if err != nil {
		return nil, err
	}
	digits := strings.TrimPrefix(strings.ToLower(key), "0x")
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	slot, err := hex.DecodeString(digits)
	switch {
	case len(digits) > 2*common.HashLength:
		return nil, invalidParams("storage key too long (want at most 32 bytes): %q", key)
	case err != nil:
		return nil, invalidParams("invalid hex in storage key: %q", key)
	}
	word := db.GetState(account, common.BytesToHash(slot))
	return word[:], db.Error()
}

var errNoPending = errors.New("pending block is not available")

// header returns the header of a block of the chain, or nil if the chain has no block with this number.
func (a *blockAPI) header(number rpc.BlockNumber) (*types.Header, error) {
	switch number {
	case rpc.PendingBlockNumber:
		block, _, _ := a.c.miner.Pending()
		if block == nil {
			return nil, errNoPending
		}
		return block.Header(), nil
	case rpc.LatestBlockNumber:
		return a.c.chain.CurrentBlock(), nil
	case rpc.SafeBlockNumber:
		return a.c.chain.CurrentSafeBlock(), nil
	case rpc.FinalizedBlockNumber:
		return a.c.chain.CurrentFinalBlock(), nil
	case rpc.EarliestBlockNumber:
		number = 0
	}
	return a.c.chain.GetHeaderByNumber(uint64(number)), nil
}

// state returns a copy of the accounts after a block, and the header of the block. Without a block it is the latest.
func (a *blockAPI) state(at *rpc.BlockNumberOrHash) (*state.StateDB, *types.Header, error) {
	number := rpc.LatestBlockNumber
	var header *types.Header
	var err error
	if at != nil && at.BlockHash != nil {
		hash := *at.BlockHash
		switch header = a.c.chain.GetHeaderByHash(hash); {
		case header == nil:
			err = errors.New("header for hash not found")
		case at.RequireCanonical && a.c.chain.GetCanonicalHash(header.Number.Uint64()) != hash:
			err = errors.New("hash is not currently canonical")
		}
	} else {
		if at != nil && at.BlockNumber != nil {
			number = *at.BlockNumber
		}
		if number == rpc.PendingBlockNumber {
			block, _, db := a.c.miner.Pending()
			if block == nil {
				return nil, nil, errNoPending
			}
			return db, block.Header(), nil
		}
		if header, err = a.header(number); header == nil && err == nil {
			err = errors.New("header not found")
		}
	}
	if err != nil {
		return nil, nil, err
	}
	db, err := a.c.chain.StateAt(header.Root, header.Number, header.Time)
	return db, header, err
}

// fields are the members of a JSON object.
type fields map[string]any

// fieldsOf returns the members that an object of go-ethereum has in JSON.
func fieldsOf(object json.Marshaler) (fields, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	result := fields{}
	for name, value := range members {
		if string(value) != "null" { // a member of another type of transaction, or of a later fork
			result[name] = value
		}
	}
	return result, nil
}

func (a *blockAPI) blockFields(block *types.Block, whole bool) (fields, error) {
	result, err := fieldsOf(block.Header())
	if err != nil {
		return nil, err
	}
	transactions := make([]any, len(block.Transactions()))
	for i, tx := range block.Transactions() {
		transactions[i] = tx.Hash()
		if whole {
			if transactions[i], err = a.transactionFields(tx, block.Header(), uint64(i)); err != nil {
				return nil, err
			}
		}
	}
	maps.Copy(result, fields{
		"size": hexutil.Uint64(block.Size()), "transactions": transactions, "uncles": []common.Hash{}, "withdrawals": block.Withdrawals(),
	})
	return result, nil
}

// transactionFields returns the members of a transaction in a block. With a nil header, the transaction is pending.
func (a *blockAPI) transactionFields(tx *types.Transaction, header *types.Header, index uint64) (fields, error) {
	result, err := fieldsOf(tx)
	if err != nil {
		return nil, err
	}
	from, err := types.Sender(types.LatestSigner(a.c.chain.Config()), tx)
	maps.Copy(result, fields{
		"from": from, "to": tx.To(), "gasPrice": (*hexutil.Big)(tx.GasPrice()),
		"blockHash": nil, "blockNumber": nil, "blockTimestamp": nil, "transactionIndex": nil,
	})
	if header != nil {
		maps.Copy(result, fields{
			"blockHash": header.Hash(), "blockNumber": (*hexutil.Big)(header.Number), "blockTimestamp": hexutil.Uint64(header.Time),
			"transactionIndex": hexutil.Uint64(index), "gasPrice": (*hexutil.Big)(pricePaid(tx, header.BaseFee)),
		})
	}
	return result, err
}

// pricePaid is the price of a unit of gas in a block (EIP-1559).
func pricePaid(tx *types.Transaction, baseFee *big.Int) *big.Int {
	price := new(big.Int).Add(tx.GasTipCap(), baseFee)
	if price.Cmp(tx.GasFeeCap()) > 0 {
		return tx.GasFeeCap()
	}
	return price
}

// sendAPI takes transactions.
type sendAPI struct{ c *Chain }

// SendRawTransaction puts a signed transaction into the pool.
func (a *sendAPI) SendRawTransaction(signed hexutil.Bytes) (common.Hash, error) {
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(signed); err != nil {
		return common.Hash{}, err
	}
	if !tx.Protected() {
		return common.Hash{}, errors.New("only replay-protected (EIP-155) transactions allowed over RPC")
	}
	return tx.Hash(), a.c.pool.Add([]*types.Transaction{tx}, false)[0]
}
