//go:build !nodevchain

package devchain

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/holiman/uint256"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// The answers in this file were recorded on a node of go-ethereum v1.17.10 with the same genesis, keys, clock and transactions. An update
// of go-ethereum may change them: -update writes the answers of this chain, and the commit says why each change is right.
const answersFile = "testdata/answers.json"

var updateAnswers = flag.Bool("update", false, "write "+answersFile)

// stream is a source of bytes that are the same in each run.
type stream struct {
	n    uint64
	rest []byte
}

func (s *stream) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if len(s.rest) == 0 {
			s.n++
			sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, s.n))
			s.rest = sum[:]
		}
		c := copy(p[n:], s.rest)
		s.rest = s.rest[c:]
		n += c
	}
	return len(p), nil
}

// ask posts a JSON-RPC message and returns the answer with sorted members.
func ask(t *testing.T, url, message string) string {
	t.Helper()
	response := must.Get(http.Post(url, "application/json", strings.NewReader(message)))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return fmt.Sprintf("status %d: %s", response.StatusCode, body)
	}
	text := goField.ReplaceAllStringFunc(string(must.Get(json.Marshal(value))(t)), func(found string) string {
		return "field " + strings.ToLower(found[strings.LastIndex(found, ".")+1:])
	})
	if len(text) > 1000 {
		return fmt.Sprintf("%s... %d bytes, SHA-256 %x", text[:300], len(text), sha256.Sum256([]byte(text)))
	}
	return text
}

// goField finds the name of a field in an error of encoding/json, which writes the names that the field has in Go.
var goField = regexp.MustCompile(`Go struct field \S+`)

// question is one request of the recording.
type question struct{ name, method, params string }

// history is a chain with one transaction of each kind, and what the questions name.
type history struct {
	c      *Chain
	sender *sender
	other  *sender
	txs    map[string]*types.Transaction
	raw    map[string]string // transactions that are refused
	gone   common.Hash       // a block that a reorganization replaced
}

var (
	// Returns its call data as revert data, calls nothing.
	reverter = common.FromHex("0x365f5f37365ffd")
	// Returns the word at storage slot 0, plus the time.
	reader = common.FromHex("0x5f5442015f5260205ff3")
)

func newHistory(t *testing.T) *history {
	t.Helper()
	k := newClock(testStart)
	c := start(t, Config{HTTP: "127.0.0.1:0", Now: k.Now, random: new(stream)})
	h := &history{c: c, txs: map[string]*types.Transaction{}, raw: map[string]string{}}
	chain := new(big.Int).SetUint64(c.ChainID())
	h.sender = &sender{key: must.Get(crypto.ToECDSA(bytes.Repeat([]byte{1}, 32)))(t), chain: chain}
	h.other = &sender{key: must.Get(crypto.ToECDSA(bytes.Repeat([]byte{2}, 32)))(t), chain: chain}
	must.Get(c.Fund(t.Context(), h.sender.address(), ether(10)))(t)
	must.Get(c.Mint(t.Context(), contracts.USDC(c.id), h.sender.address(), big.NewInt(5_000_000)))(t)
	signer := types.LatestSignerForChainID(chain)
	put := func(name string, data types.TxData) {
		t.Helper()
		tx := must.Get(types.SignNewTx(h.sender.key, signer, data))(t)
		send(t, c, tx)
		mined(t, c, tx.Hash())
		h.sender.nonce++
		h.txs[name] = tx
	}
	to, usdc, fee := common.Address{0: 0xaa, 19: 1}, contracts.USDC(c.id), big.NewInt(1e9)
	put("legacy", &types.LegacyTx{Nonce: 0, GasPrice: fee, Gas: 21_000, To: &to, Value: big.NewInt(7)})
	put("access", &types.AccessListTx{ChainID: chain, Nonce: 1, GasPrice: fee, Gas: 40_000, To: &to, Value: big.NewInt(8),
		AccessList: types.AccessList{{Address: usdc, StorageKeys: []common.Hash{{31: 1}}}}})
	put("token", &types.DynamicFeeTx{ChainID: chain, Nonce: 2, GasTipCap: big.NewInt(3), GasFeeCap: fee, Gas: 100_000, To: &usdc, Data: transfer(to, 1_000_000)})
	put("failed", &types.DynamicFeeTx{ChainID: chain, Nonce: 3, GasTipCap: big.NewInt(2), GasFeeCap: fee, Gas: 100_000, To: &usdc, Data: transfer(to, 9_000_000)})
	put("create", &types.DynamicFeeTx{ChainID: chain, Nonce: 4, GasTipCap: big.NewInt(1), GasFeeCap: fee, Gas: 100_000,
		Data: append(common.FromHex("0x600a600c5f39600a5ff300000000"[:26]), reader...)})
	code := contracts.EntryPoint
	authorization := must.Get(types.SignSetCode(h.other.key, types.SetCodeAuthorization{ChainID: *uint256.MustFromBig(chain), Address: code}))(t)
	put("setcode", &types.SetCodeTx{ChainID: uint256.MustFromBig(chain), Nonce: 5, GasTipCap: uint256.NewInt(1), GasFeeCap: uint256.MustFromBig(fee), Gas: 100_000,
		To: to, Value: uint256.NewInt(0), AuthList: []types.SetCodeAuthorization{authorization}})
	must.Do(t, c.Advance(time.Hour))
	h.gone = head(t, c).Hash()
	must.Do(t, c.Reorg(1, false))
	for i := range uint64(5) {
		put(fmt.Sprint("more", i), &types.DynamicFeeTx{ChainID: chain, Nonce: 6 + i, GasTipCap: big.NewInt(int64(10 + i)), GasFeeCap: fee, Gas: 100_000, To: &usdc, Data: transfer(to, int64(i))})
	}
	// It pays less than the base fee and waits.
	waiting := must.Get(types.SignNewTx(h.sender.key, signer, &types.DynamicFeeTx{ChainID: chain, Nonce: 11, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(100), Gas: 21_000, To: &to}))(t)
	send(t, c, waiting)
	h.txs["waiting"] = waiting
	refused := func(name string, key *sender, data types.TxData) {
		tx := must.Get(types.SignNewTx(key.key, signer, data))(t)
		h.raw[name] = hexutil.Encode(must.Get(tx.MarshalBinary())(t))
	}
	dynamic := func(nonce uint64, feeCap, tip, gas, value int64) types.TxData {
		return &types.DynamicFeeTx{ChainID: chain, Nonce: nonce, GasTipCap: big.NewInt(tip), GasFeeCap: big.NewInt(feeCap), Gas: uint64(gas), To: &to, Value: big.NewInt(value)}
	}
	refused("nonce too low", h.sender, dynamic(0, 1e9, 1, 21_000, 0))
	refused("replacement underpriced", h.sender, dynamic(11, 101, 1, 21_000, 0))
	refused("no money", h.other, dynamic(1, 1e9, 1, 21_000, 1))
	refused("intrinsic gas", h.sender, dynamic(12, 1e9, 1, 20_000, 0))
	refused("gas above the cap", h.sender, dynamic(12, 1e9, 1, int64(params.MaxTxGas)+1, 0))
	refused("gas above the block", h.sender, dynamic(12, 1e9, 1, gasLimit+1, 0))
	refused("tip above fee", h.sender, dynamic(12, 10, 11, 21_000, 0))
	refused("no tip", h.sender, dynamic(12, 1e9, 0, 21_000, 0))
	h.raw["already known"] = hexutil.Encode(must.Get(waiting.MarshalBinary())(t))
	h.raw["mined"] = hexutil.Encode(must.Get(h.txs["token"].MarshalBinary())(t))
	unprotected := must.Get(types.SignNewTx(h.sender.key, types.HomesteadSigner{}, &types.LegacyTx{Nonce: 12, GasPrice: fee, Gas: 21_000, To: &to}))(t)
	h.raw["unprotected"] = hexutil.Encode(must.Get(unprotected.MarshalBinary())(t))
	foreign := must.Get(types.SignNewTx(h.sender.key, types.LatestSignerForChainID(big.NewInt(1)), &types.LegacyTx{Nonce: 12, GasPrice: fee, Gas: 21_000, To: &to}))(t)
	h.raw["another chain"] = hexutil.Encode(must.Get(foreign.MarshalBinary())(t))
	h.raw["no transaction"] = "0x0203"
	h.raw["empty"] = "0x"
	return h
}

func transfer(to common.Address, amount int64) []byte {
	data := append(common.FromHex("0xa9059cbb"), common.LeftPadBytes(to.Bytes(), 32)...)
	return append(data, common.LeftPadBytes(big.NewInt(amount).Bytes(), 32)...)
}

// questions contains the requests of the rail, viem, ethers, and the contract tests, and requests that fail.
func (h *history) questions(t *testing.T) []question {
	t.Helper()
	var all []question
	add := func(name, method string, parameters ...any) {
		if parameters == nil {
			parameters = []any{}
		}
		all = append(all, question{name, method, string(must.Get(json.Marshal(parameters))(t))})
	}
	type object = map[string]any
	c := h.c
	usdc, me, to := contracts.USDC(c.id), h.sender.address(), common.Address{0: 0xaa, 19: 1}
	unknown := common.Hash{31: 9}
	tip := head(t, c)
	number := func(n uint64) string { return hexutil.EncodeUint64(n) }
	add("", "eth_chainId")
	add("", "eth_blockNumber")
	add("", "net_version")
	add("", "net_listening")
	add("", "web3_sha3", "0x68656c6c6f")
	add("", "eth_syncing")
	add("", "eth_accounts")
	add("", "eth_gasPrice")
	add("", "eth_maxPriorityFeePerGas")
	add("", "eth_blobBaseFee")
	add("many", "eth_feeHistory", "0x400", "latest", []float64{10, 50, 90})
	add("without rewards", "eth_feeHistory", "0x3", "latest", nil)
	add("empty rewards", "eth_feeHistory", "0x3", "latest", []float64{})
	add("of a number", "eth_feeHistory", 2, "0x3", []float64{25})
	add("finalized", "eth_feeHistory", "0x1", "finalized", []float64{25})
	add("none", "eth_feeHistory", "0x0", "latest", []float64{})
	add("beyond", "eth_feeHistory", "0x1", "0xffff", []float64{})
	add("falling", "eth_feeHistory", "0x1", "latest", []float64{50, 20})
	add("over", "eth_feeHistory", "0x1", "latest", []float64{101})
	for n := range tip.Number.Uint64() + 1 {
		add("hashes", "eth_getBlockByNumber", number(n), false)
		add("whole", "eth_getBlockByNumber", number(n), true)
		hash := c.chain.GetHeaderByNumber(n).Hash()
		add("whole", "eth_getBlockByHash", hash, true)
	}
	for _, tag := range []string{"latest", "safe", "finalized", "earliest"} {
		add("tag", "eth_getBlockByNumber", tag, false)
	}
	add("unknown", "eth_getBlockByNumber", "0xffff", false)
	add("unknown", "eth_getBlockByHash", unknown, false)
	add("replaced", "eth_getBlockByHash", h.gone, false)
	add("wrong number", "eth_getBlockByNumber", "0x", false)
	add("wrong tag", "eth_getBlockByNumber", "newest", false)
	add("one parameter", "eth_getBlockByNumber", "latest")
	for _, name := range []string{"legacy", "access", "token", "failed", "create", "setcode", "more4", "waiting"} {
		add(name, "eth_getTransactionByHash", h.txs[name].Hash())
		add(name, "eth_getTransactionReceipt", h.txs[name].Hash())
	}
	add("unknown", "eth_getTransactionByHash", unknown)
	add("unknown", "eth_getTransactionReceipt", unknown)
	add("short", "eth_getTransactionReceipt", "0x1234")
	add("none", "eth_getTransactionReceipt")
	for name, at := range map[string]any{
		"latest": "latest", "number": number(tip.Number.Uint64() - 2), "hash": object{"blockHash": tip.Hash()}, "genesis": "0x0", "unknown": "0xffff",
		"unknown hash": object{"blockHash": unknown}, "replaced": object{"blockHash": h.gone}, "safe": "safe", "finalized": "finalized",
		"replaced, canonical": object{"blockHash": h.gone, "requireCanonical": true}, "earliest": "earliest",
	} {
		add(name, "eth_getBalance", me, at)
		add(name, "eth_getCode", h.other.address(), at)
		add(name, "eth_getTransactionCount", me, at)
		add(name, "eth_getStorageAt", usdc, "0x0", at)
		add(name, "eth_call", object{"to": usdc, "data": hexutil.Bytes(balanceOf(me))}, at)
	}
	add("pending", "eth_getTransactionCount", me, "pending")
	add("no block", "eth_getBalance", me)
	add("no block", "eth_getCode", usdc)
	add("no block", "eth_getTransactionCount", me)
	add("no block", "eth_getStorageAt", usdc, "0x0")
	add("long slot", "eth_getStorageAt", usdc, hexutil.Encode(make([]byte, 33)), "latest")
	add("wrong slot", "eth_getStorageAt", usdc, "0xzz", "latest")
	add("wrong address", "eth_getBalance", "0x12", "latest")

	stateOf := func(code []byte) object { return object{to.Hex(): object{"code": hexutil.Bytes(code)}} }
	call := func(name string, message object, more ...any) {
		add(name, "eth_call", append([]any{message, "latest"}, more...)...)
		if len(more) > 1 {
			return // only eth_call takes block overrides
		}
		add(name, "eth_estimateGas", append([]any{message, "latest"}, more...)...)
		block := object{"calls": []any{message}}
		if len(more) > 0 {
			block["stateOverrides"] = more[0]
		}
		add(name, "eth_simulateV1", object{"blockStateCalls": []any{block}}, "latest")
	}
	call("plain transfer", object{"from": me, "to": common.Address{19: 99}, "value": "0x5"})
	call("transfer of too much", object{"from": me, "to": common.Address{19: 99}, "value": "0xffffffffffffffffffff"})
	call("token", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1))})
	call("token, data", object{"from": me, "to": usdc, "data": hexutil.Bytes(transfer(to, 1))})
	call("token, gas", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "gas": "0x186a0"})
	call("token, little gas", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "gas": "0x6000"})
	call("token, very little gas", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "gas": "0x600"})
	call("token, gas above the cap", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "gas": "0x2faf080"})
	call("token, fees", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "maxFeePerGas": "0x3b9aca00", "maxPriorityFeePerGas": "0x1"})
	call("token, gas price", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "gasPrice": "0x3b9aca00"})
	call("token, low fees", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x1"})
	call("token, both fees", object{"from": me, "to": usdc, "gasPrice": "0x1", "maxFeePerGas": "0x1"})
	call("token, tip above fee", object{"from": me, "to": usdc, "maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x2"})
	call("token, fees of the poor", object{"from": common.Address{19: 98}, "to": usdc, "input": hexutil.Bytes(balanceOf(me)), "gasPrice": "0x3b9aca00"})
	call("token, revert", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 9_000_000))})
	call("nonce", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "nonce": "0x3"})
	call("chain", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "chainId": "0x14a34"})
	call("other chain", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "chainId": "0x1"})
	call("access list", object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1)), "accessList": []any{object{"address": usdc, "storageKeys": []any{}}}})
	call("creation", object{"from": me, "input": hexutil.Bytes(append(common.FromHex("0x600a600c5f39600a5ff3000000"[:24]), reader...))})
	call("no sender", object{"to": usdc, "input": hexutil.Bytes(balanceOf(me))})
	call("empty", object{})
	call("code", object{"from": me, "to": to, "input": "0x01020304"}, stateOf(reverter))
	call("code, empty revert", object{"from": me, "to": to}, stateOf(reverter))
	call("code, invalid", object{"from": me, "to": to}, stateOf([]byte{0xfe}))
	call("code, endless", object{"from": me, "to": to, "gas": "0x186a0"}, stateOf(common.FromHex("0x5b5f56")))
	call("code, stack", object{"from": me, "to": to}, stateOf([]byte{0x50}))
	call("code, time", object{"from": me, "to": to}, stateOf(reader))
	call("code, static write", object{"from": me, "to": to}, stateOf(common.FromHex("0x60015f55")))
	call("code, log", object{"from": me, "to": to}, stateOf(common.FromHex("0x60015f5260205fa0")))
	call("balance", object{"from": common.Address{19: 97}, "to": to, "value": "0x5"}, object{common.Address{19: 97}.Hex(): object{"balance": "0x10"}})
	call("state", object{"from": me, "to": to}, object{to.Hex(): object{"code": hexutil.Bytes(reader), "state": object{common.Hash{}.Hex(): common.Hash{31: 5}}}})
	call("difference", object{"from": me, "to": to}, object{to.Hex(): object{"code": hexutil.Bytes(reader), "stateDiff": object{common.Hash{}.Hex(): common.Hash{31: 6}}, "nonce": "0x5"}})
	call("both states", object{"from": me, "to": to}, object{to.Hex(): object{"state": object{}, "stateDiff": object{}}})
	call("account code", object{"from": usdc, "to": usdc, "input": hexutil.Bytes(balanceOf(me))})
	call("precompile", object{"from": me, "to": common.Address{19: 2}, "input": "0x01"})
	call("precompile, replaced", object{"from": me, "to": common.Address{19: 2}, "input": "0x01"}, object{common.Address{19: 2}.Hex(): object{"code": hexutil.Bytes(reverter)}})
	authorization := h.txs["setcode"].SetCodeAuthorizations()[0]
	call("authorization", object{"from": me, "to": to, "authorizationList": []any{authorization}})
	call("block of overrides", object{"from": me, "to": to}, stateOf(reader), object{"time": "0x1", "number": "0x1000"})
	call("wrong field", object{"from": "0x1"})
	call("wrong data", object{"from": me, "to": to, "input": "0x1"})
	add("no block", "eth_call", object{"to": usdc, "data": hexutil.Bytes(balanceOf(me))})
	add("no block", "eth_estimateGas", object{"to": usdc, "data": hexutil.Bytes(balanceOf(me))})
	add("unknown block", "eth_estimateGas", object{"to": usdc}, "0xffff")
	add("no call", "eth_call")

	two := []any{
		object{"calls": []any{object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 1))}, object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 9_000_000))}}},
		object{"calls": []any{object{"from": me, "to": usdc, "input": hexutil.Bytes(transfer(to, 2))}}},
	}
	add("two blocks", "eth_simulateV1", object{"blockStateCalls": two}, "latest")
	add("no block", "eth_simulateV1", object{"blockStateCalls": two[:1]})
	add("no blocks", "eth_simulateV1", object{"blockStateCalls": []any{}}, "latest")
	add("unknown block", "eth_simulateV1", object{"blockStateCalls": two}, "0xffff")
	add("nothing", "eth_simulateV1", object{}, "latest")
	add("unknown override", "eth_simulateV1", object{"blockStateCalls": []any{object{"stateOverrides": object{to.Hex(): object{"color": "0x1"}}, "calls": []any{}}}}, "latest")
	add("many blocks", "eth_simulateV1", object{"blockStateCalls": make([]object, 257)}, "latest")
	add("gas of a block", "eth_simulateV1", object{"blockStateCalls": []any{object{"calls": []any{object{"from": me, "to": to, "gas": "0x4000000"}}}}}, "latest")

	topic, padded := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)")), common.BytesToHash(to.Bytes())
	for name, filter := range map[string]object{
		"all":            {"fromBlock": "0x0", "toBlock": "latest"},
		"topic":          {"fromBlock": "0x0", "toBlock": number(tip.Number.Uint64()), "address": []any{usdc}, "topics": []any{[]any{topic}}},
		"one address":    {"fromBlock": "0x0", "address": usdc},
		"receiver":       {"fromBlock": "0x0", "topics": []any{nil, nil, padded}},
		"either":         {"fromBlock": "0x0", "topics": []any{[]any{topic, unknown}, nil, []any{padded, unknown}}},
		"anything":       {"fromBlock": "0x0", "topics": []any{[]any{nil, topic}}},
		"nothing":        {"fromBlock": "0x0", "topics": []any{unknown}},
		"head":           {},
		"tags":           {"fromBlock": "earliest", "toBlock": "safe"},
		"finalized":      {"fromBlock": "finalized", "toBlock": "finalized"},
		"block":          {"blockHash": tip.Hash()},
		"unknown block":  {"blockHash": unknown},
		"replaced block": {"blockHash": h.gone},
		"block and from": {"blockHash": tip.Hash(), "fromBlock": "0x0"},
		"backward":       {"fromBlock": "0x5", "toBlock": "0x1"},
		"backward tag":   {"fromBlock": "latest", "toBlock": "0x1"},
		"future":         {"fromBlock": "0x1", "toBlock": "0xffff"},
		"all future":     {"fromBlock": "0xffff", "toBlock": "0xfffff"},
		"from future":    {"fromBlock": "0xffff"},
		"pending":        {"fromBlock": "pending"},
		"five topics":    {"fromBlock": "0x0", "topics": []any{nil, nil, nil, nil, nil}},
		"wrong topic":    {"fromBlock": "0x0", "topics": []any{"0x12"}},
		"number topic":   {"fromBlock": "0x0", "topics": []any{5}},
		"wrong address":  {"fromBlock": "0x0", "address": "0x12"},
		"number address": {"fromBlock": "0x0", "address": 5},
		"many addresses": {"fromBlock": "0x0", "address": make([]common.Address, maxLogValues+1)},
		"many topics":    {"fromBlock": "0x0", "topics": []any{make([]common.Hash, maxLogValues+1)}},
	} {
		add(name, "eth_getLogs", filter)
	}
	add("unknown", "eth_getFilterChanges", "0x1")
	add("unknown", "eth_getFilterLogs", "0x1")
	add("unknown", "eth_uninstallFilter", "0x1")
	for name, raw := range h.raw {
		add(name, "eth_sendRawTransaction", raw)
	}
	add("odd", "eth_sendRawTransaction", "0x123")
	add("", "eth_nothing")
	add("", "debug_setHead", "0x1")
	add("surplus", "eth_chainId", 1)
	add("surplus", "eth_blockNumber", "latest")
	return all
}

func balanceOf(account common.Address) []byte {
	return append(common.FromHex("0x70a08231"), common.LeftPadBytes(account.Bytes(), 32)...)
}

func TestAnswersEqualTheRecording(t *testing.T) {
	h := newHistory(t)
	got := map[string]string{}
	for _, q := range h.questions(t) {
		name := q.method + " " + q.name
		if q.method == "eth_getBlockByNumber" || q.method == "eth_getBlockByHash" || q.method == "eth_feeHistory" {
			name += " " + q.params
		}
		if _, twice := got[name]; twice {
			t.Fatalf("two questions are named %q", name)
		}
		got[name] = ask(t, h.c.URL(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, q.method, q.params))
	}
	for name, message := range map[string]string{
		"batch":       `[{"jsonrpc":"2.0","id":1,"method":"eth_chainId"},{"jsonrpc":"2.0","id":2,"method":"eth_nothing"}]`,
		"empty batch": `[]`,
		"no JSON":     `{"jsonrpc"`,
		"no method":   `{"jsonrpc":"2.0","id":1}`,
		"no array":    `{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":"x"}`,
		"big batch":   "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"},`, 1000) + `{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}]`,
		"big body":    `{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":["` + strings.Repeat("x", 6<<20) + `"]}`,
	} {
		got[name] = ask(t, h.c.URL(), message)
	}
	if *updateAnswers {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		must.Do(t, encoder.Encode(got))
		must.Do(t, os.MkdirAll("testdata", 0o755))
		must.Do(t, os.WriteFile(answersFile, text.Bytes(), 0o644))
		return
	}
	var want map[string]string
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(answersFile))(t), &want))
	for name, answer := range want {
		if got[name] != answer {
			t.Errorf("%s:\n got %s\nwant %s", name, got[name], answer)
		}
	}
	for name := range got {
		if _, known := want[name]; !known {
			t.Errorf("%s: no answer is recorded", name)
		}
	}
}
