package chaintest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

func dial(t *testing.T, d *chaintest.Double) *rpc.Client {
	t.Helper()
	c := must.Get(rpc.DialContext(t.Context(), d.URL))(t)
	t.Cleanup(c.Close)
	return c
}

// Without a fault the double is the chain: answers, errors with their data, batches.
func TestDouble_PassesOn(t *testing.T) {
	chain := chaintest.New(t)
	d := chaintest.NewDouble(t, chain.Client())
	c := dial(t, d)
	usdc := contracts.USDC(chain.ChainID())
	reverts := map[string]any{"to": usdc, "data": "0xa9059cbb" + // transfer(address,uint256) without a balance
		"0000000000000000000000000000000000000000000000000000000000000001" + "0000000000000000000000000000000000000000000000000000000000000001"}

	for _, args := range [][]any{{"eth_chainId"}, {"eth_getBlockByNumber", "latest", true}, {"eth_getTransactionReceipt", common.Hash{1}}} {
		var got, want json.RawMessage
		method := args[0].(string)
		if err := errors.Join(c.CallContext(t.Context(), &got, method, args[1:]...), chain.Client().CallContext(t.Context(), &want, method, args[1:]...)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
	got, want := c.CallContext(t.Context(), nil, "eth_call", reverts, "latest"), chain.Client().CallContext(t.Context(), nil, "eth_call", reverts, "latest")
	var gotData, wantData rpc.DataError
	if !errors.As(got, &gotData) || !errors.As(want, &wantData) || got.Error() != want.Error() || gotData.ErrorData() != wantData.ErrorData() ||
		got.(rpc.Error).ErrorCode() != want.(rpc.Error).ErrorCode() {
		t.Errorf("a revert: %v, want %v", got, want)
	}
	var id, number string
	batch := []rpc.BatchElem{{Method: "eth_chainId", Result: &id}, {Method: "eth_nothing"}, {Method: "eth_blockNumber", Result: &number}}
	must.Do(t, c.BatchCallContext(t.Context(), batch))
	if batch[0].Error != nil || batch[1].Error == nil || batch[2].Error != nil || id != "0x14a34" || number == "" {
		t.Errorf("a batch: %+v", batch)
	}
	if d.Calls("eth_chainId") != 2 || d.Calls("") != 5 {
		t.Errorf("%d calls of eth_chainId, %d requests", d.Calls("eth_chainId"), d.Calls(""))
	}
}

func TestDouble_Ways(t *testing.T) {
	chain := chaintest.New(t)
	faults := map[string]struct {
		set  func(d *chaintest.Double)
		fine func(err error, took time.Duration) bool
	}{
		"delay":    {func(d *chaintest.Double) { d.Delay(80 * time.Millisecond) }, func(err error, took time.Duration) bool { return err == nil && took >= 80*time.Millisecond }},
		"hang":     {func(d *chaintest.Double) { d.Hang() }, func(err error, took time.Duration) bool { return err != nil && took >= 400*time.Millisecond }},
		"drop":     {func(d *chaintest.Double) { d.Drop(-1) }, func(err error, _ time.Duration) bool { return err != nil }},
		"lose":     {func(d *chaintest.Double) { d.LoseAnswers(-1) }, func(err error, _ time.Duration) bool { return err != nil }},
		"page":     {func(d *chaintest.Double) { d.Page(http.StatusOK) }, func(err error, _ time.Duration) bool { return err != nil }},
		"status":   {func(d *chaintest.Double) { d.Status(503, "{}") }, func(err error, _ time.Duration) bool { return err != nil }},
		"redirect": {func(d *chaintest.Double) { d.Redirect("http://127.0.0.1:1/") }, func(err error, _ time.Duration) bool { return err != nil }},
		"flood":    {func(d *chaintest.Double) { d.Flood(1 << 20) }, func(err error, _ time.Duration) bool { return err != nil }},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			d := chaintest.NewDouble(t, chain.Client())
			h := &http.Client{}
			c := must.Get(rpc.DialOptions(t.Context(), d.URL, rpc.WithHTTPClient(h)))(t)
			t.Cleanup(h.CloseIdleConnections)
			ask := func(limit time.Duration) (time.Duration, error) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := ethclient.NewClient(c).BlockNumber(ctx)
				return time.Since(began), err
			}
			fault.set(d)
			limit := 2 * time.Minute
			if name == "hang" {
				limit = 400 * time.Millisecond
			}
			if took, err := ask(limit); !fault.fine(err, took) {
				t.Errorf("%v after %v", err, took)
			}
			d.Clear()
			if _, err := ask(2 * time.Minute); err != nil {
				t.Errorf("after Clear: %v", err)
			}
		})
	}
	d := chaintest.NewDouble(t, chain.Client())
	c := ethclient.NewClient(dial(t, d))
	d.Drop(2)
	for i, wantErr := range []bool{true, true, false} {
		if _, err := c.BlockNumber(t.Context()); (err != nil) != wantErr {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if d.Calls("eth_blockNumber") != 1 {
		t.Error("a dropped request reached the chain")
	}
	d.LoseAnswers(1)
	if _, err := c.BlockNumber(t.Context()); err == nil || d.Calls("eth_blockNumber") != 2 {
		t.Errorf("a lost answer: %v, %d calls", err, d.Calls("eth_blockNumber"))
	}
}

func TestDouble_Lies(t *testing.T) {
	chain := chaintest.New(t)
	hash := must.Get(chain.Fund(t.Context(), common.Address{1}, big.NewInt(1)))(t)
	receipt := must.Get(chain.Eth().TransactionReceipt(t.Context(), hash))(t)
	d := chaintest.NewDouble(t, chain.Client())
	c := ethclient.NewClient(dial(t, d))
	ctx := t.Context()

	d.ChainID(5)
	if id, err := c.ChainID(ctx); err != nil || id.Int64() != 5 {
		t.Errorf("chain id %v, %v", id, err)
	}
	d.InventLogs(types.Log{Address: common.Address{7}, TxHash: common.Hash{7}})
	if logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{Addresses: []common.Address{{9}}}); err != nil || len(logs) != 1 || logs[0].TxHash != (common.Hash{7}) {
		t.Errorf("logs %v, %v", logs, err)
	}
	other := *receipt
	other.TxHash = common.Hash{8}
	d.InventReceipt(&other)
	if r, err := c.TransactionReceipt(ctx, common.Hash{8}); err != nil || r.BlockHash != receipt.BlockHash {
		t.Errorf("receipt %v, %v", r, err)
	}
	if _, err := c.TransactionReceipt(ctx, common.Hash{9}); !errors.Is(err, ethereum.NotFound) {
		t.Errorf("another receipt: %v", err)
	}
	d.ForgeBlocks(receipt.BlockNumber.Uint64())
	for number, forged := range map[int64]bool{receipt.BlockNumber.Int64(): true, receipt.BlockNumber.Int64() - 1: false} {
		truth := must.Get(chain.Eth().HeaderByNumber(ctx, big.NewInt(number)))(t)
		if h, err := c.HeaderByNumber(ctx, big.NewInt(number)); err != nil || (h.Hash() != truth.Hash()) != forged {
			t.Errorf("block %d: forged %v, %v", number, forged, err)
		}
	}
	d.Clear()

	must.Do(t, chain.Advance(time.Second))
	later := must.Get(chain.Fund(ctx, common.Address{1}, big.NewInt(1)))(t)
	d.Freeze(receipt.BlockNumber.Uint64())
	if n, err := c.BlockNumber(ctx); err != nil || n != receipt.BlockNumber.Uint64() {
		t.Errorf("frozen at %d, %v", n, err)
	}
	for _, tag := range []*big.Int{nil, big.NewInt(-4)} {
		if h, err := c.HeaderByNumber(ctx, tag); err != nil || h.Hash() != receipt.BlockHash {
			t.Errorf("frozen, block %v: %v, %v", tag, h, err)
		}
	}
	if _, err := c.HeaderByNumber(ctx, new(big.Int).Add(receipt.BlockNumber, big.NewInt(1))); !errors.Is(err, ethereum.NotFound) {
		t.Errorf("frozen, a later block: %v", err)
	}
	if _, err := c.TransactionReceipt(ctx, later); !errors.Is(err, ethereum.NotFound) {
		t.Errorf("frozen, a later receipt: %v", err)
	}
	if b, err := c.BalanceAt(ctx, common.Address{1}, nil); err != nil || b.Int64() != 1 {
		t.Errorf("frozen, balance %v, %v", b, err)
	}
	d.Clear()
	if b, err := c.BalanceAt(ctx, common.Address{1}, nil); err != nil || b.Int64() != 2 {
		t.Errorf("after Clear, balance %v, %v", b, err)
	}
}

// Calls see a paused manager, even if they override other state.
func TestDouble_Pause(t *testing.T) {
	chain := chaintest.New(t)
	d := chaintest.NewDouble(t, chain.Client())
	c := dial(t, d)
	word := "0x0000000000000000000000000000000000000000000000000000000000000001"
	for _, overrides := range []map[string]any{
		nil,
		{common.Address{5}.Hex(): map[string]any{"balance": "0x1"}},
		{contracts.DelegationManager.Hex(): map[string]any{"balance": "0x1", "stateDiff": map[string]any{word[:len(word)-1] + "9": word}}},
	} {
		paused := func() string {
			t.Helper()
			args := []any{map[string]any{"to": contracts.DelegationManager, "data": "0x5c975abb"}, "latest"} // paused()
			if overrides != nil {
				args = append(args, overrides)
			}
			var out string
			must.Do(t, c.CallContext(t.Context(), &out, "eth_call", args...))
			return out
		}
		if paused() == word {
			t.Error("paused before")
		}
		d.Pause(contracts.DelegationManager)
		if paused() != word {
			t.Error("not paused")
		}
		d.Clear()
	}
}
