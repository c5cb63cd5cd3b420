package chaintest

import (
	"context"
	"math/big"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/must"
)

// Backend is a development chain of one kind or another. [devchain.Chain] is one.
type Backend interface {
	Client() *rpc.Client
	URL() string // over HTTP, on loopback
	ChainID() uint64
	Genesis() common.Hash

	// Mint makes base units of a development token, Fund gives wei. Both are in a block when they return.
	Mint(ctx context.Context, token, to common.Address, amount *big.Int) (common.Hash, error)
	Fund(ctx context.Context, to common.Address, wei *big.Int) (common.Hash, error)
	// Advance moves the clock of the chain on and makes a block at the new time.
	Advance(d time.Duration) error
	// Reorg replaces the last n blocks by n+1 others. With drop their transactions are forgotten.
	Reorg(n int, drop bool) error
}

// Chain is a chain of a test. The contracts of the rail and the development tokens are on it.
type Chain struct {
	Backend
	Kind string // "embedded" or "anvil"

	mu     sync.Mutex
	offset time.Duration
}

// Eth is the client with the methods of go-ethereum.
func (c *Chain) Eth() *ethclient.Client { return ethclient.NewClient(c.Client()) }

// Now is a clock that goes with the chain: the time of the machine, and what Advance added to it.
func (c *Chain) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// Advance moves the chain and the clock of Now on.
func (c *Chain) Advance(d time.Duration) error {
	c.mu.Lock()
	c.offset += d
	c.mu.Unlock()
	return c.Backend.Advance(d)
}

// Variable names the kind of chain that [New] returns, "embedded" or "anvil"; empty is the embedded one.
const Variable = "TOLL_TEST_CHAIN"

// New returns a chain with the id of Base Sepolia: the embedded one in memory, or of the kind that [Variable] names. The
// accounts have gas money. It makes no block but for transactions, Advance and Reorg, and ends with the test.
func New(t testing.TB, funded ...common.Address) *Chain {
	t.Helper()
	if os.Getenv(Variable) != "anvil" {
		return Embedded(t, funded...)
	}
	c := &Chain{Backend: StartAnvil(t, contracts.BaseSepolia), Kind: "anvil"}
	for _, account := range funded {
		must.Get(c.Fund(t.Context(), account, new(big.Int).Mul(big.NewInt(100), big.NewInt(1e18))))(t)
	}
	return c
}

// Embedded is [New] for tests of what only the embedded chain does. Say why. Where [Variable] names another kind, the test was run before.
func Embedded(t testing.TB, funded ...common.Address) *Chain {
	t.Helper()
	return Start(t, devchain.Config{Funded: funded})
}

// Start is [Embedded] with other settings.
func Start(t testing.TB, cfg devchain.Config) *Chain {
	t.Helper()
	if os.Getenv(Variable) == "anvil" {
		t.Skip("this test needs the embedded chain")
	}
	if cfg.HTTP == "" {
		cfg.HTTP = "127.0.0.1:0"
	}
	if cfg.Idle == 0 {
		cfg.Idle = -1
	}
	c := must.Get(devchain.Start(t.Context(), cfg))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the chain: %v", err)
		}
	})
	return &Chain{Backend: c, Kind: "embedded"}
}

// kinds make the chains of [Each].
var kinds = []struct {
	name string
	open func(t testing.TB) *Chain
}{
	{"embedded", func(t testing.TB) *Chain { return Embedded(t) }},
	{"anvil", func(t testing.TB) *Chain { return &Chain{Backend: StartAnvil(t, contracts.BaseSepolia), Kind: "anvil"} }},
}

// Each runs f as one subtest for each kind of chain, on a fresh one. Where [Variable] names a kind, the other tests are what
// is wanted, and f was run before.
func Each(t *testing.T, f func(t *testing.T, c *Chain)) {
	t.Helper()
	if os.Getenv(Variable) != "" {
		return
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) { f(t, kind.open(t)) })
	}
}
