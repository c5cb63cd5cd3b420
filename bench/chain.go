package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

const (
	// onChain is the service whose plan is paid on its embedded chain.
	onChain = "chain"
	// blockYardstick is the row that the rows of orders are measured by.
	blockYardstick = "transfer-chain"

	buyers     = 16     // each waits for its order before it makes the next
	orderPrice = 10_000 // base units of USDC: a cent
	orderGrant = 100    // credits
	limitCents = 1_000_000
	funds      = "1000000" // whole USDC of each buyer

	// A burst of blocks may bring the embedded chain ten minutes ahead of its clock, a second for each; from there on it makes
	// one a second. A slice stays below that, and the clock is moved after it.
	blocksPerSlice = 500
	afterSlice     = 15 * time.Minute
	chainSlice     = 3 // times the length of others: an order takes longer than a request
)

// shop is what a market on the chain has beside the others.
type shop struct {
	url      string // JSON-RPC of the chain
	receiver common.Address
	keys     []string // of the buyers
	limits   []string // their delegations
	answered int      // orders that were answered as paid
	sender   *ecdsa.PrivateKey
	nonce    uint64
}

// openShop makes a market whose plan costs money, with buyers that have it.
func openShop(ctx context.Context, r serviceRole) (_ *market, err error) {
	m := &market{engine: onChain, shop: &shop{}}
	if m.service, err = spawn("service-"+onChain, role{Service: &r}); err != nil {
		return nil, err
	}
	if err := m.stock(ctx); err != nil {
		_ = m.service.end() // the first error counts
		return nil, err
	}
	return m, nil
}

func (m *market) stock(ctx context.Context) error {
	names := []string{operator}
	for i := range buyers {
		names = append(names, "buyer "+strconv.Itoa(i))
	}
	a, err := m.service.say(order{Keys: names})
	if err != nil {
		return err
	}
	s := m.shop
	s.url, s.receiver = a.Chain, common.Address(a.Keys[0].Address)
	as := func(h holder) *client.Client { return client.New(h.Key, client.WithURL(m.url())) }
	m.builder = as(a.Keys[0])
	if s.sender, err = crypto.GenerateKey(); err != nil {
		return err
	}
	if _, err := m.builder.Faucet(ctx, client.FaucetParams{Address: toll.Address(crypto.PubkeyToAddress(s.sender.PublicKey)), ETH: "10"}); err != nil {
		return err
	}
	price := toll.Price{
		TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(orderPrice)}, Receivers: []toll.Address{a.Keys[0].Address}, IsCrypto: true,
	}
	got, err := m.builder.RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "Bench plan"}, Price: price, Credits: toll.CreditsConfig{Amount: orderGrant, MinAmount: 1, MaxAmount: 1},
	})
	if err != nil {
		return err
	}
	m.plan = got.PlanID
	s.keys, s.limits = make([]string, buyers), make([]string, buyers)
	err = together(buyers, func(i int) error {
		h := a.Keys[i+1]
		c := as(h)
		if _, err := c.Faucet(ctx, client.FaucetParams{USDC: funds}); err != nil {
			return err
		}
		d, err := c.CreateDelegation(ctx, client.DelegationParams{
			Provider: toll.ProviderCrypto, Currency: "usdc", SpendingLimit: limitCents, Lifetime: 300 * 24 * time.Hour,
		})
		if err == nil {
			s.keys[i], s.limits[i] = h.Key, d.DelegationID
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("fund the buyers and create delegations: %w", err)
	}
	// The first order of an account brings its code onto the chain, and that of a delegation is dearer too.
	for _, delegated := range []bool{false, true} {
		if err := m.orders(delegated).once(); err != nil {
			return fmt.Errorf("first orders: %w", err)
		}
		s.answered += buyers
	}
	return m.later(ctx)
}

// paidAnswer is in the answer to an order whose credits are there, be it confirmed or final, and to no other.
var paidAnswer = []byte(`"balance":{`)

// orders is a load of orders, each connection for a buyer.
func (m *market) orders(delegated bool) *load {
	l := &load{addr: m.service.addr, want: paidAnswer, limit: blocksPerSlice / buyers}
	for i, key := range m.shop.keys {
		body := "{}"
		if delegated {
			body = `{"delegationId":"` + m.shop.limits[i] + `"}`
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "POST /api/v1/protocol/plans/%s/order HTTP/1.1\r\nHost: %s\r\nUser-Agent: toll-bench\r\nContent-Length: %d\r\nAccept: application/json\r\n"+
			"Authorization: Bearer %s\r\nContent-Type: application/json\r\n\r\n%s", m.plan, m.service.addr, len(body), key, body)
		l.lanes = append(l.lanes, []message{{raw: b.Bytes()}})
	}
	return l
}

// later moves the clock, so that the chain is no longer ahead of it.
func (m *market) later(ctx context.Context) error {
	_, err := m.builder.AdvanceClock(ctx, afterSlice)
	return err
}

// chainScenarios are measured by the time of a block, not by the echo.
func (b *bench) chainScenarios() []*scenario {
	rest := func() error { return b.markets[onChain].later(context.Background()) }
	orders := func(delegated bool) func(b *bench) (*load, error) {
		return func(b *bench) (*load, error) { return b.markets[onChain].orders(delegated), nil }
	}
	return []*scenario{
		{name: blockYardstick, about: "a plain transfer, from sending to its receipt, one at a time", engine: onChain, run: b.transfers, rest: rest},
		{name: "order-chain", about: "an order that the wallet of its buyer pays", engine: onChain, orders: true, load: orders(false), rest: rest},
		{name: "order-delegated-chain", about: "an order through a delegation", engine: onChain, orders: true, load: orders(true), rest: rest},
	}
}

// transfers measures how long the chain takes by itself: the time of a block.
func (b *bench) transfers(_ *load, warm, window time.Duration) *slice {
	s := b.markets[onChain].shop
	out := newSlice(window)
	ctx, cancel := context.WithTimeout(context.Background(), warm+window+time.Minute)
	defer cancel()
	c, err := ethclient.DialContext(ctx, s.url)
	if err != nil {
		out.fault = err
		return out
	}
	defer c.Close()
	begin := time.Now().Add(warm)
	end := begin.Add(window)
	for range blocksPerSlice {
		before := time.Now()
		if before.After(end) {
			return out
		}
		if out.fault = s.transfer(ctx, c); out.fault != nil {
			return out
		}
		after := time.Now()
		out.answered++
		if before.After(begin) && !after.After(end) {
			out.done++
			out.add(after.Sub(before))
		}
	}
	out.window = time.Since(begin)
	return out
}

// transfer sends a wei and returns when it is in a block.
func (s *shop) transfer(ctx context.Context, c *ethclient.Client) error {
	chainID := big.NewInt(int64(toll.Sandbox.ChainID()))
	to := common.Address{0: 1}
	tx, err := types.SignNewTx(s.sender, types.LatestSignerForChainID(chainID), &types.DynamicFeeTx{
		ChainID: chainID, Nonce: s.nonce, GasTipCap: big.NewInt(1_000_000), GasFeeCap: big.NewInt(1_000_000_000), Gas: 21_000, To: &to, Value: big.NewInt(1),
	})
	if err != nil {
		return err
	}
	s.nonce++
	if err := c.SendTransaction(ctx, tx); err != nil {
		return err
	}
	for {
		receipt, err := c.TransactionReceipt(ctx, tx.Hash())
		switch {
		case err == nil && receipt.Status != types.ReceiptStatusSuccessful:
			return errors.New("a plain transfer reverted")
		case err == nil:
			return nil
		case !errors.Is(err, ethereum.NotFound):
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// onTheChain counts the transfers to the seller, and sums them up, by the logs of the token.
func (s *shop) onTheChain(ctx context.Context) (count int64, sum *big.Int, err error) {
	c, err := ethclient.DialContext(ctx, s.url)
	if err != nil {
		return 0, nil, err
	}
	defer c.Close()
	logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{
		FromBlock: new(big.Int), Addresses: []common.Address{common.Address(toll.Sandbox.USDC())},
		Topics: [][]common.Hash{{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}, nil, {common.BytesToHash(s.receiver[:])}},
	})
	if err != nil {
		return 0, nil, err
	}
	sum = new(big.Int)
	for _, l := range logs {
		sum.Add(sum, new(big.Int).SetBytes(l.Data))
	}
	return int64(len(logs)), sum, nil
}

// prove compares what was answered, what the chain has and what the ledger granted.
func (p *proof) prove(a *audit) []string {
	var faults []string
	p.Orders, p.Granted = a.Orders, a.Granted
	for _, n := range []struct {
		what      string
		got, want int64
	}{
		{"paid orders", a.Orders, int64(p.Paid)}, {"transfers on the chain", p.Transfers, int64(p.Paid)},
		{"credits granted", a.Granted, int64(p.Paid) * orderGrant}, {"base units received", p.Units, int64(p.Paid) * orderPrice},
	} {
		if n.got != n.want {
			faults = append(faults, fmt.Sprintf("%s: %d orders were answered as paid, but the number of %s is %d, not %d", onChain, p.Paid, n.what, n.got, n.want))
		}
	}
	return faults
}
