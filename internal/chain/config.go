package chain

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Config is what a rail is made of. Amounts of wei are for one unit of gas where nothing else is said.
type Config struct {
	Environment toll.Environment
	ChainID     uint64 // 0: that of the environment; another one is refused
	Embedded    bool   // the chain is inside this program; refused for [toll.Live]
	Pool        *endpoints.Pool
	// Start makes the chain usable before something is asked of it, and calls [Rail.Open]. nil: it is, over Pool.
	Start    func(ctx context.Context) error
	Store    *store.Store
	Signer   *signer.Signer
	Orders   rail.Orders      // see [Rail.Connect]
	Service  common.Address   // delegate of every delegation
	Relayers []common.Address // one at least
	Tokens   []common.Address // ERC-20 tokens of direct orders, beside USDC and EURC; they must revert when they move nothing

	// Confirmations are the blocks on top of the including one before credits are granted. A price above FastLimitCents, or
	// without cents, waits for a safe block instead. A top-up waits for TopUpConfirmations. The embedded chain waits for none.
	Confirmations      uint64
	TopUpConfirmations uint64
	FastLimitCents     int64

	MaxBaseFee   *big.Int      // wei; above it nothing is sent; nil: 1 gwei
	Tip          *big.Int      // wei; nil: 1,000,000
	RelayerFloor *big.Int      // wei in all; below it a relayer is not used; nil: what 500 delegated orders cost at MaxBaseFee
	BatchOps     int           // operations in a transaction at most; 0: 20
	BatchBytes   int           // bytes of its calldata at most; 0: 98304
	BatchWindow  time.Duration // for which a relayer waits for more operations
	VoidAfter    time.Duration // after which an order that was sent and does not land is made impossible; 0: 10 minutes

	Clock func() time.Time // nil: the clock of the machine
	Log   *slog.Logger     // nil: nothing is logged
	// At is called at the steps between which a process may end, by name. Tests panic in it.
	At func(step string)
}

const (
	orderGas    = 200_000 // of a delegated order, for the floor of relayers
	floorOrders = 500
)

// set fills in defaults and checks the rest.
func (c *Config) set() error {
	c.ChainID = cmp.Or(c.ChainID, uint64(c.Environment.ChainID()))
	switch {
	case c.ChainID != uint64(c.Environment.ChainID()):
		return errors.New("chain: the chain id does not match the environment")
	case c.Embedded && c.Environment == toll.Live:
		return errors.New("chain: the embedded chain cannot serve the live environment")
	case c.Pool == nil && c.Start == nil || c.Store == nil || c.Signer == nil:
		return errors.New("chain: endpoints, a store, and a signer are required")
	case c.Service == common.Address{} || len(c.Relayers) == 0 || slices.Contains(c.Relayers, c.Service):
		return errors.New("chain: a service account and at least one relayer are required, and they must be different accounts")
	case c.FastLimitCents < 0 || c.BatchOps < 0 || c.BatchBytes < 0 || c.BatchWindow < 0 || c.VoidAfter < 0:
		return errors.New("chain: a setting must not be negative")
	}
	c.Relayers, c.Tokens = slices.Clone(c.Relayers), slices.Clone(c.Tokens)
	c.MaxBaseFee = cmp.Or(c.MaxBaseFee, big.NewInt(1_000_000_000))
	c.Tip = cmp.Or(c.Tip, big.NewInt(1_000_000))
	if c.RelayerFloor == nil {
		price := new(big.Int).Add(c.MaxBaseFee, c.Tip)
		c.RelayerFloor = price.Mul(price, big.NewInt(orderGas*floorOrders))
	}
	c.BatchOps = cmp.Or(c.BatchOps, 20)
	c.BatchBytes = cmp.Or(c.BatchBytes, 96<<10)
	c.VoidAfter = cmp.Or(c.VoidAfter, 10*time.Minute)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Start == nil {
		c.Start = func(context.Context) error { return nil }
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	return nil
}

// depth is how deep the block of an order has to be before credits are granted: this many blocks on top of it or, when safe,
// not above the safe block.
func (c *Config) depth(op *Op) (confirmations uint64, safe bool) {
	switch {
	case c.Embedded:
		return 0, false
	case op.TopUp:
		return c.TopUpConfirmations, false
	case op.Pays() && (op.Cents == 0 || op.Cents > c.FastLimitCents):
		return 0, true
	}
	return c.Confirmations, false
}

// currency returns "usdc" or "eurc" for their tokens on this chain, else "".
func (c *Config) currency(token common.Address) string {
	switch token {
	case contracts.USDC(c.ChainID):
		return "usdc"
	case contracts.EURC(c.ChainID):
		return "eurc"
	}
	return ""
}

// token returns the token of a currency of delegations, the zero address for another one.
func (c *Config) token(currency string) common.Address {
	switch currency {
	case "usdc":
		return contracts.USDC(c.ChainID)
	case "eurc":
		return contracts.EURC(c.ChainID)
	}
	return common.Address{}
}

// maxRaise bounds what a transaction that does not land may come to cost: this many times the highest price of a new one.
const maxRaise = 10

// fees are what a new transaction pays for a unit of gas, in wei: twice the base fee and the tip at most.
func (c *Config) fees(base *big.Int) (tip, feeCap *big.Int) {
	tip = new(big.Int).Set(c.Tip)
	return tip, new(big.Int).Add(new(big.Int).Lsh(base, 1), tip)
}

// raised are the fees of a transaction that takes the place of another one. ok is false when they would be beyond all bounds.
func (c *Config) raised(old *types.Transaction, base *big.Int) (tip, feeCap *big.Int, ok bool) {
	tip, feeCap = c.fees(base)
	tip, feeCap = signer.Raised(old, tip, feeCap)
	_, most := c.fees(c.MaxBaseFee)
	return tip, feeCap, feeCap.Cmp(most.Mul(most, big.NewInt(maxRaise))) <= 0
}
