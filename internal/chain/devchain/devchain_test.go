//go:build !nodevchain

package devchain

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"go.uber.org/goleak"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// TestMain lets the test program be a process that runs a chain, and checks that closed chains leave nothing running.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	code := m.Run()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits until only the workers for signatures run. go-ethereum starts them once for each process.
func leaks() error {
	workers := goleak.IgnoreAnyFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache")
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(workers); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// patience limits how long a test waits for an event.
const patience = 2 * time.Minute

// start returns a chain without periodic empty blocks. The test closes it at its end.
func start(t *testing.T, cfg Config) *Chain {
	t.Helper()
	if cfg.Idle == 0 {
		cfg.Idle = -1
	}
	c := must.Get(Start(t.Context(), cfg))(t)
	t.Cleanup(func() {
		must.Check(t, c.Close(), "close")
	})
	return c
}

func client(c *Chain) *ethclient.Client { return ethclient.NewClient(c.Client()) }

func head(t *testing.T, c *Chain) *types.Header {
	t.Helper()
	return must.Get(client(c).HeaderByNumber(t.Context(), nil))(t)
}

func balance(t *testing.T, c *Chain, account common.Address) *big.Int {
	t.Helper()
	return must.Get(client(c).BalanceAt(t.Context(), account, nil))(t)
}

// sender is an account outside of the chain, with its own key.
type sender struct {
	key   *ecdsa.PrivateKey
	chain *big.Int
	nonce uint64
}

func newSender(t *testing.T, c *Chain) *sender {
	t.Helper()
	key := must.Get(crypto.GenerateKey())(t)
	s := &sender{key: key, chain: new(big.Int).SetUint64(c.ChainID())}
	must.Get(c.Fund(t.Context(), s.address(), ether(1)))(t)
	return s
}

func (s *sender) address() common.Address { return crypto.PubkeyToAddress(s.key.PublicKey) }

// pay signs a transfer of some wei at the next nonce.
func (s *sender) pay(t *testing.T, to common.Address, wei, feeCap int64) *types.Transaction {
	t.Helper()
	tx := must.Get(types.SignNewTx(s.key, types.LatestSignerForChainID(s.chain), &types.DynamicFeeTx{
		ChainID: s.chain, Nonce: s.nonce, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(feeCap), Gas: 21_000, To: &to, Value: big.NewInt(wei),
	}))(t)
	s.nonce++
	return tx
}

// mined waits for the receipt of a transaction and for the head to be there.
func mined(t *testing.T, c *Chain, tx common.Hash) *types.Receipt {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		receipt, err := client(c).TransactionReceipt(t.Context(), tx)
		if err == nil && head(t, c).Number.Cmp(receipt.BlockNumber) >= 0 {
			return receipt
		}
	}
	t.Fatalf("transaction %v is in no block", tx)
	return nil
}

func send(t *testing.T, c *Chain, tx *types.Transaction) {
	t.Helper()
	must.Do(t, client(c).SendTransaction(t.Context(), tx))
}

var testStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a time that the test moves.
type clock struct{ seconds atomic.Int64 }

func newClock(start time.Time) *clock {
	k := new(clock)
	k.seconds.Store(start.Unix())
	return k
}

func (k *clock) Now() time.Time       { return time.Unix(k.seconds.Load(), 0) }
func (k *clock) move(d time.Duration) { k.seconds.Add(int64(d / time.Second)) }

func TestTransactionIsMinedAtOnce(t *testing.T) {
	c := start(t, Config{})
	s := newSender(t, c)
	to := common.Address{0: 1, 19: 7}
	tx := s.pay(t, to, 5, 1e9)
	send(t, c, tx)
	receipt := mined(t, c, tx.Hash())
	if receipt.Status != types.ReceiptStatusSuccessful || balance(t, c, to).Int64() != 5 {
		t.Errorf("status %d, balance %v", receipt.Status, balance(t, c, to))
	}
	for tag, want := range map[string]uint64{"latest": receipt.BlockNumber.Uint64(), "safe": receipt.BlockNumber.Uint64(), "finalized": 0} {
		var header types.Header
		must.Do(t, c.Client().CallContext(t.Context(), &header, "eth_getBlockByNumber", tag, false))
		if header.Number.Uint64() != want {
			t.Errorf("%s is block %v, want %d", tag, header.Number, want)
		}
	}
}

func TestFinalizedMovesByEpochs(t *testing.T) {
	c := start(t, Config{})
	for head(t, c).Number.Uint64() < 2*epoch+1 {
		must.Do(t, c.Advance(0))
	}
	var header types.Header
	must.Do(t, c.Client().CallContext(t.Context(), &header, "eth_getBlockByNumber", "finalized", false))
	if header.Number.Uint64() != 2*epoch {
		t.Errorf("finalized is block %v", header.Number)
	}
}

func TestCheapTransactionWaitsAndIsReplaced(t *testing.T) {
	c := start(t, Config{})
	s := newSender(t, c)
	to := common.Address{0: 0xaa, 19: 8}
	cheap := s.pay(t, to, 1, 100)
	before := head(t, c).Number.Uint64()
	send(t, c, cheap)
	must.Do(t, c.mineDue())
	if now := head(t, c).Number.Uint64(); now != before || balance(t, c, to).Sign() != 0 {
		t.Fatalf("a transaction below the base fee: head %d, was %d", now, before)
	}
	s.nonce--
	dear := must.Get(types.SignNewTx(s.key, types.LatestSignerForChainID(s.chain), &types.DynamicFeeTx{
		ChainID: s.chain, Nonce: s.nonce, GasTipCap: big.NewInt(1000), GasFeeCap: big.NewInt(1e9), Gas: 21_000, To: &to, Value: big.NewInt(2),
	}))(t)
	send(t, c, dear)
	mined(t, c, dear.Hash())
	if got := balance(t, c, to).Int64(); got != 2 {
		t.Errorf("balance %d, want that of the replacement", got)
	}
}

func TestTimeTravel(t *testing.T) {
	k := newClock(testStart)
	c := start(t, Config{Now: k.Now})
	first := head(t, c).Time
	if want := uint64(k.Now().Unix()); first != want {
		t.Fatalf("the first block is at %d, the clock at %d", first, want)
	}

	must.Do(t, c.Advance(time.Hour))
	if got := head(t, c).Time; got != first+3600 {
		t.Errorf("after Advance(1h): %d s later", got-first)
	}
	k.move(24 * time.Hour)
	must.Do(t, c.Advance(0))
	if got := head(t, c).Time; got != first+3600+86400 {
		t.Errorf("after the clock moved by a day: %d s later", got-first)
	}

	at := head(t, c).Time
	k.move(-30 * 24 * time.Hour)
	for i := range uint64(3) {
		must.Do(t, c.Advance(0))
		if got := head(t, c).Time; got != at+i+1 {
			t.Errorf("with a clock that went back, block %d is %d s later", i, got-at)
		}
	}
	must.Do(t, c.Advance(time.Minute))
	if got := head(t, c).Time; got != at+3+60 {
		t.Errorf("Advance(1m) moved the chain by %d s", got-at-3)
	}
	if err := c.Advance(-time.Second); err == nil {
		t.Error("time went back")
	}
}

func TestClockMovesAnIdleChain(t *testing.T) {
	k := newClock(testStart)
	c := start(t, Config{Now: k.Now, Idle: 30 * time.Second})
	before := head(t, c)
	k.move(29 * time.Second)
	must.Do(t, c.mineDue())
	if now := head(t, c); now.Hash() != before.Hash() {
		t.Fatalf("a block after %d s", now.Time-before.Time)
	}
	k.move(24 * time.Hour)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if head(t, c).Time == uint64(k.Now().Unix()) {
			return
		}
	}
	t.Errorf("the head is at %d, the clock at %d", head(t, c).Time, k.Now().Unix())
}

func TestBurstsStayNearTheClock(t *testing.T) {
	k := newClock(testStart)
	c := start(t, Config{Now: k.Now})
	s := newSender(t, c)
	const by = 30 // blocks of the burst; then the clock goes back
	for head(t, c).Time < uint64(testStart.Unix())+by {
		must.Do(t, c.Advance(0))
	}
	k.move(-(maxAhead - by) * time.Second)
	before, begin := head(t, c).Number.Uint64(), time.Now()
	// Transactions that arrive while a block is made must wait for the next second.
	var last common.Hash
	for time.Since(begin) < 2500*time.Millisecond {
		tx := s.pay(t, payee, 5, 1e9)
		send(t, c, tx)
		last = tx.Hash()
		time.Sleep(time.Millisecond)
	}
	mined(t, c, last)
	made, seconds := head(t, c).Number.Uint64()-before, uint64(time.Since(begin)/time.Second)
	// One more for the part of a second, and one for a tick that waited when the first transaction came.
	if made > seconds+2 {
		t.Errorf("%d blocks within %d s", made, seconds)
	}
}

// A chain ahead of its clock makes one block per second. Even when senders fill these blocks, a block includes the faucet transaction.
func TestFaucetBehindOthersAhead(t *testing.T) {
	k := newClock(testStart)
	c := start(t, Config{Now: k.Now})
	s := newSender(t, c)
	limit := head(t, c).GasLimit
	full := limit/placementGas + 1 // so many fill a block
	var waiting []*types.Transaction
	for range 3 * full {
		// Its init code is invalid and uses all gas at once.
		tx := must.Get(types.SignNewTx(s.key, types.LatestSignerForChainID(s.chain), &types.DynamicFeeTx{
			ChainID: s.chain, Nonce: s.nonce, GasTipCap: big.NewInt(1000), GasFeeCap: big.NewInt(1e9), Gas: limit / full, Data: []byte{0xfe},
		}))(t)
		s.nonce++
		waiting = append(waiting, tx)
	}
	k.move(-2 * maxAhead * time.Second)
	c.mu.Lock()
	refused := errors.Join(c.pool.Add(waiting, true)...)
	before := c.chain.CurrentBlock().Number.Uint64()
	_, err := c.transact(t.Context(), []call{{to: payee, value: big.NewInt(7), gas: callGas}})
	made := c.chain.CurrentBlock().Number.Uint64() - before
	c.mu.Unlock()
	must.Do(t, errors.Join(refused, err))
	if got := balance(t, c, payee).Int64(); got != 7 || made < 3 {
		t.Errorf("after %d blocks the balance is %d", made, got)
	}
}

// An account can send a transaction as soon as the faucet has funded it.
func TestFaucetIsKnownToThePool(t *testing.T) {
	c := start(t, Config{})
	for range 30 {
		s := newSender(t, c)
		send(t, c, s.pay(t, payee, 5, 1e9))
	}
}

func TestEachChainHasItsGenesis(t *testing.T) {
	one, other := start(t, Config{}), start(t, Config{Dir: t.TempDir()})
	if one.Genesis() == other.Genesis() {
		t.Error("two chains have one genesis")
	}
	if one.ChainID() != contracts.BaseSepolia || other.ChainID() != contracts.BaseSepolia {
		t.Errorf("ids %d and %d", one.ChainID(), other.ChainID())
	}
}

func TestClosedChain(t *testing.T) {
	c := start(t, Config{})
	must.Do(t, errors.Join(c.Close(), c.Close()))
	_, minting := c.Mint(t.Context(), contracts.USDC(c.id), payee, big.NewInt(1))
	_, funding := c.Fund(t.Context(), common.Address{}, new(big.Int))
	for _, err := range []error{minting, funding, c.Advance(0), c.Reorg(1, false)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with an ended context: %v", err)
	}
}
