package chaintest

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

func (d *Double) lie(l lie) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = append(slices.Clone(d.lies), l)
}

// ErrPass as the error of an answer of one's own lets the chain answer.
var ErrPass = errors.New("chaintest: pass the call to the chain")

// Answer answers a method by itself. f may return nil, nil for null, a [Refusal], and [ErrPass].
func (d *Double) Answer(method string, f func(params []json.RawMessage) (any, error)) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		if m != method {
			return pass(ctx, m, params)
		}
		v, err := f(params)
		if err == ErrPass {
			return pass(ctx, m, params)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
}

// Refuse answers the next n requests with this method with a JSON-RPC error and does not pass them on; all with a negative n.
func (d *Double) Refuse(n int, method, message string) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		if m != method {
			return pass(ctx, m, params)
		}
		d.mu.Lock()
		refused := n != 0
		if n > 0 {
			n--
		}
		d.mu.Unlock()
		if refused {
			return nil, &Refusal{Code: -32000, Message: message}
		}
		return pass(ctx, m, params)
	})
}

// NonceTooLow refuses the next n transactions as if their nonce was used, and does not pass them on.
func (d *Double) NonceTooLow(n int) {
	d.Refuse(n, "eth_sendRawTransaction", "nonce too low: next nonce 7, tx nonce 6")
}

// Swallow takes transactions, answers with their hash and does not pass them on.
func (d *Double) Swallow() {
	d.Answer("eth_sendRawTransaction", func(params []json.RawMessage) (any, error) {
		var raw hexutil.Bytes
		var tx types.Transaction
		if err := json.Unmarshal(params[0], &raw); err != nil {
			return nil, err
		}
		if err := tx.UnmarshalBinary(raw); err != nil {
			return nil, err
		}
		return tx.Hash(), nil
	})
}

// ChainID says that the chain is another one.
func (d *Double) ChainID(id uint64) {
	d.Answer("eth_chainId", func([]json.RawMessage) (any, error) { return hexutil.Uint64(id), nil })
}

// InventLogs adds logs to every answer of eth_getLogs, whatever was asked for.
func (d *Double) InventLogs(logs ...types.Log) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		result, err := pass(ctx, m, params)
		if m != "eth_getLogs" || err != nil {
			return result, err
		}
		var all []json.RawMessage
		if err := json.Unmarshal(result, &all); err != nil {
			return nil, err
		}
		for _, l := range logs {
			if l.Topics == nil {
				l.Topics = []common.Hash{}
			}
			text, err := json.Marshal(l)
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
		return json.Marshal(all)
	})
}

// InventReceipt answers with this receipt for its transaction.
func (d *Double) InventReceipt(r *types.Receipt) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		var hash common.Hash
		if m != "eth_getTransactionReceipt" || json.Unmarshal(params[0], &hash) != nil || hash != r.TxHash {
			return pass(ctx, m, params)
		}
		told := *r
		if told.Logs == nil {
			told.Logs = []*types.Log{}
		}
		return json.Marshal(&told)
	})
}

// ForgeBlocks changes every block from this number on, so that its hash is another one.
func (d *Double) ForgeBlocks(from uint64) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		result, err := pass(ctx, m, params)
		if m != "eth_getBlockByNumber" || err != nil {
			return result, err
		}
		return forge(result, from)
	})
}

func forge(result json.RawMessage, from uint64) (json.RawMessage, error) {
	var block map[string]json.RawMessage
	var number hexutil.Uint64
	if err := json.Unmarshal(result, &block); err != nil || block == nil {
		return result, err
	}
	if err := json.Unmarshal(block["number"], &number); err != nil || uint64(number) < from {
		return result, err
	}
	block["extraData"] = json.RawMessage(`"0x6c6965"`)
	changed, err := json.Marshal(block)
	if err != nil {
		return nil, err
	}
	var head types.Header
	if err := json.Unmarshal(changed, &head); err != nil {
		return nil, err
	}
	block["hash"], err = json.Marshal(head.Hash())
	if err != nil {
		return nil, err
	}
	return json.Marshal(block)
}

// Override makes eth_call, eth_estimateGas and eth_simulateV1 see this value in a storage slot of an account. What the
// request overrides itself stays.
func (d *Double) Override(account common.Address, slot, value common.Hash) {
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		var err error
		switch m {
		case "eth_call", "eth_estimateGas":
			params = slices.Clone(params)
			if len(params) == 1 {
				params = append(params, json.RawMessage(`"latest"`))
			}
			if len(params) == 2 {
				params = append(params, nil)
			}
			params[2], err = addOverride(params[2], account, slot, value)
		case "eth_simulateV1":
			params = slices.Clone(params)
			params[0], err = addOverrideToBlocks(params[0], account, slot, value)
		}
		if err != nil {
			return nil, err
		}
		return pass(ctx, m, params)
	})
}

// Pause makes calls see a paused contract whose flag is the byte after the address in slot 1, as the DelegationManager's is.
func (d *Double) Pause(manager common.Address) {
	d.Override(manager, common.BigToHash(big.NewInt(1)), common.BigToHash(new(big.Int).Lsh(big.NewInt(1), 160)))
}

func addOverride(overrides json.RawMessage, account common.Address, slot, value common.Hash) (json.RawMessage, error) {
	accounts := map[string]map[string]json.RawMessage{}
	if len(overrides) > 0 {
		if err := json.Unmarshal(overrides, &accounts); err != nil {
			return nil, err
		}
	}
	key := account.Hex()
	for have := range accounts {
		if strings.EqualFold(have, key) {
			key = have
		}
	}
	if accounts[key] == nil {
		if accounts == nil {
			accounts = map[string]map[string]json.RawMessage{}
		}
		accounts[key] = map[string]json.RawMessage{}
	}
	slots := map[common.Hash]common.Hash{}
	if diff := accounts[key]["stateDiff"]; diff != nil {
		if err := json.Unmarshal(diff, &slots); err != nil {
			return nil, err
		}
	}
	slots[slot] = value
	diff, err := json.Marshal(slots)
	if err != nil {
		return nil, err
	}
	accounts[key]["stateDiff"] = diff
	return json.Marshal(accounts)
}

func addOverrideToBlocks(request json.RawMessage, account common.Address, slot, value common.Hash) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(request, &all); err != nil {
		return nil, err
	}
	var blocks []map[string]json.RawMessage
	if err := json.Unmarshal(all["blockStateCalls"], &blocks); err != nil || len(blocks) == 0 {
		return request, err
	}
	changed, err := addOverride(blocks[0]["stateOverrides"], account, slot, value)
	if err != nil {
		return nil, err
	}
	blocks[0]["stateOverrides"] = changed
	if all["blockStateCalls"], err = json.Marshal(blocks); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Freeze stops the chain that is seen at this block: later ones, and what is in them, do not exist.
func (d *Double) Freeze(at uint64) {
	number := json.RawMessage(`"` + hexutil.EncodeUint64(at) + `"`)
	d.lie(func(ctx context.Context, m string, params []json.RawMessage, pass answerer) (json.RawMessage, error) {
		params = slices.Clone(params)
		for i, p := range params {
			if tag := string(p); tag == `"latest"` || tag == `"pending"` {
				params[i] = number
			}
		}
		switch m {
		case "eth_blockNumber":
			return number, nil
		case "eth_getLogs":
			var err error
			if params[0], err = freezeFilter(params[0], at); err != nil {
				return nil, err
			}
		case "eth_getBlockByNumber":
			var n hexutil.Uint64
			if json.Unmarshal(params[0], &n) == nil && uint64(n) > at {
				return nil, nil
			}
		}
		result, err := pass(ctx, m, params)
		if err != nil || m != "eth_getTransactionReceipt" && m != "eth_getBlockByHash" && m != "eth_getBlockByNumber" {
			return result, err
		}
		var where struct {
			Receipt *hexutil.Uint64 `json:"blockNumber"`
			Block   *hexutil.Uint64 `json:"number"`
		}
		if err := json.Unmarshal(result, &where); err != nil {
			return nil, err
		}
		for _, n := range []*hexutil.Uint64{where.Receipt, where.Block} {
			if n == nil || uint64(*n) <= at {
				continue
			}
			if m == "eth_getBlockByNumber" { // "safe" or "finalized"
				params[0] = number
				return pass(ctx, m, params)
			}
			return nil, nil
		}
		return result, nil
	})
}

func freezeFilter(filter json.RawMessage, at uint64) (json.RawMessage, error) {
	var f map[string]json.RawMessage
	if err := json.Unmarshal(filter, &f); err != nil {
		return nil, err
	}
	number := json.RawMessage(`"` + hexutil.EncodeUint64(at) + `"`)
	if _, one := f["blockHash"]; one {
		return filter, nil
	}
	for _, end := range []string{"fromBlock", "toBlock"} {
		var n hexutil.Uint64
		if v, ok := f[end]; ok && json.Unmarshal(v, &n) != nil {
			f[end] = number // a tag
		}
	}
	var to hexutil.Uint64
	if v, ok := f["toBlock"]; !ok || json.Unmarshal(v, &to) == nil && uint64(to) > at {
		f["toBlock"] = number
	}
	return json.Marshal(f)
}
