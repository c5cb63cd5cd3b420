package chaintest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// Anvil is a chain of another make, with the contracts, the tokens and the rules of the embedded one. It has the methods of devchain.Chain.
type Anvil struct {
	url    string
	client *rpc.Client
	id     uint64
	bank   common.Address // its key is the node's
	placed uint64         // blocks up to this one hold the contracts
}

// StartAnvil runs a node that ends with the test. The test is skipped where the program cannot be had.
func StartAnvil(t testing.TB, chainID uint64) *Anvil {
	t.Helper()
	program, missing, err := anvilProgram(t.Context())
	if err != nil {
		t.Fatalf("anvil: %v", err)
	}
	if missing != "" {
		t.Skipf("not run: the program anvil is not available: %s", missing)
	}
	url := runAnvil(t, program, []string{
		"--port", "0", "--chain-id", fmt.Sprint(chainID), "--hardfork", "osaka", "--enable-tx-gas-limit",
		"--gas-limit", "60000000", "--base-fee", "5000000", "--accounts", "1", "--balance", "1000000000", "--no-cors", "--slots-in-an-epoch", "1",
	})
	client, err := rpc.DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http"))
	if err != nil {
		t.Fatalf("anvil: %v", err)
	}
	t.Cleanup(client.Close)
	a := &Anvil{url: url, client: client, id: chainID}
	if err := a.deploy(t.Context()); err != nil {
		t.Fatalf("anvil: %v", err)
	}
	return a
}

func (a *Anvil) deploy(ctx context.Context) error {
	var accounts []common.Address
	if err := a.client.CallContext(ctx, &accounts, "eth_accounts"); err != nil {
		return err
	}
	if len(accounts) != 1 {
		return fmt.Errorf("%d accounts", len(accounts))
	}
	a.bank = accounts[0]
	tokens, err := contracts.DevTokens(a.id)
	if err != nil {
		return err
	}
	for address, code := range tokens {
		if err := a.client.CallContext(ctx, nil, "anvil_setCode", address, hexutil.Bytes(code)); err != nil {
			return err
		}
	}
	for _, c := range contracts.Deployments(a.id) {
		data := append(c.Salt.Bytes(), c.InitCode...)
		if _, err := a.send(ctx, &contracts.Create2Deployer, nil, data, 1<<24); err != nil {
			return fmt.Errorf("deploying %s: %w", c.Name, err)
		}
	}
	if wrong := contracts.Check(ctx, ethclient.NewClient(a.client), a.id); len(wrong) > 0 {
		return fmt.Errorf("code of the contracts: %v", wrong)
	}
	return a.client.CallContext(ctx, (*hexutil.Uint64)(&a.placed), "eth_blockNumber")
}

// send makes a transaction of the bank and waits until it is in a block.
func (a *Anvil) send(ctx context.Context, to *common.Address, wei *big.Int, data []byte, gas uint64) (common.Hash, error) {
	var hash common.Hash
	err := a.client.CallContext(ctx, &hash, "eth_sendTransaction", map[string]any{
		"from": a.bank, "to": to, "value": (*hexutil.Big)(wei), "data": hexutil.Bytes(data), "gas": hexutil.Uint64(gas),
	})
	if err != nil {
		return common.Hash{}, err
	}
	receipt, err := a.mined(ctx, hash)
	if err == nil && receipt.Status != types.ReceiptStatusSuccessful {
		err = fmt.Errorf("transaction %v failed", hash)
	}
	return hash, err
}

// mined waits until a transaction is in a block: the node makes it a moment after it took the transaction.
func (a *Anvil) mined(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := ethclient.NewClient(a.client)
	for {
		receipt, err := c.TransactionReceipt(ctx, hash)
		if !errors.Is(err, ethereum.NotFound) {
			return receipt, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("transaction %v: %w", hash, ctx.Err())
		}
	}
}

// Client speaks to the node over a WebSocket, on which it tells of new heads as the embedded chain does.
func (a *Anvil) Client() *rpc.Client { return a.client }

// URL is where the node is served.
func (a *Anvil) URL() string { return a.url }

// ChainID is that of the signatures the chain takes.
func (a *Anvil) ChainID() uint64 { return a.id }

func (a *Anvil) Genesis() common.Hash {
	var block struct{ Hash common.Hash }
	if err := a.client.Call(&block, "eth_getBlockByNumber", "0x0", false); err != nil {
		return common.Hash{}
	}
	return block.Hash
}

// Mint makes base units of a development token.
func (a *Anvil) Mint(ctx context.Context, token, to common.Address, amount *big.Int) (common.Hash, error) {
	data := slices.Concat(crypto.Keccak256([]byte("mint(address,uint256)"))[:4], common.LeftPadBytes(to[:], 32), common.LeftPadBytes(amount.Bytes(), 32))
	return a.send(ctx, &token, nil, data, 300_000)
}

func (a *Anvil) Fund(ctx context.Context, to common.Address, wei *big.Int) (common.Hash, error) {
	return a.send(ctx, &to, wei, nil, 300_000)
}

// Advance moves the time of the chain on and makes a block at it.
func (a *Anvil) Advance(d time.Duration) error {
	if err := a.client.Call(nil, "evm_increaseTime", int64(d/time.Second)); err != nil {
		return err
	}
	return a.client.Call(nil, "evm_mine")
}

// Reorg replaces the last n blocks by n+1 others. Their transactions come back in one of the new blocks, or, with drop, are forgotten.
func (a *Anvil) Reorg(n int, drop bool) error {
	ctx := context.Background()
	c := ethclient.NewClient(a.client)
	head, err := c.BlockNumber(ctx)
	if err != nil {
		return err
	}
	if n < 1 || uint64(n) > head-min(head, a.placed) {
		return fmt.Errorf("%d of %d blocks cannot be replaced; the first %d hold the contracts", n, head, a.placed)
	}
	var lost types.Transactions
	for number := head - uint64(n) + 1; number <= head; number++ {
		block, err := c.BlockByNumber(ctx, new(big.Int).SetUint64(number))
		if err != nil {
			return err
		}
		lost = append(lost, block.Transactions()...)
	}
	if drop {
		if err := a.client.Call(nil, "anvil_dropAllTransactions"); err != nil {
			return err
		}
	}
	if err := a.client.Call(nil, "anvil_reorg", n, []any{}); err != nil {
		return err
	}
	if drop {
		return a.client.Call(nil, "evm_mine")
	}
	for _, tx := range lost {
		if err := c.SendTransaction(ctx, tx); err != nil && !strings.Contains(err.Error(), "already imported") {
			return fmt.Errorf("restoring a transaction: %w", err)
		}
		if _, err := a.mined(ctx, tx.Hash()); err != nil {
			return err
		}
	}
	if len(lost) == 0 {
		return a.client.Call(nil, "evm_mine")
	}
	return nil
}

// Close is for those who treat all chains alike: the node ends with the test.
func (a *Anvil) Close() error { return nil }
