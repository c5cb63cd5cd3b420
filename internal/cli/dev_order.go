package cli

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

const (
	devFunds      = "5"       // whole USDC that the faucet gives
	devPrice      = 1_000_000 // base units of USDC that the plan costs
	devLimitCents = 300       // of the delegation
	devLimitTime  = time.Hour
	devChainWait  = time.Minute // until the chain runs
)

// chain says where the chain is.
func (m *market) chain() string {
	env := m.service.Environment()
	text := fmt.Sprintf("inside this program, id %d", env.ChainID())
	if url := m.service.Chain().URL(); url != "" {
		text += "   JSON-RPC " + url
	}
	return text
}

// awaitChain returns when the chain runs: reading a wallet needs it.
func (m *market) awaitChain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devChainWait)
	defer cancel()
	for {
		w, err := m.subscriber.client.Wallet(ctx)
		if err != nil {
			return err
		}
		if len(w.Balances) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the chain inside the program does not start; --log-level info says more")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// showOrder has the subscriber buy the plan on the chain, through a delegation.
func (m *market) showOrder(ctx context.Context, s *stage) error {
	s.heading("The subscriber buys the plan on the chain, through a delegation")
	subscriber := m.subscriber
	if _, err := subscriber.client.Faucet(ctx, client.FaucetParams{USDC: devFunds}); err != nil {
		return err
	}
	d, err := subscriber.client.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCrypto, Currency: "usdc", SpendingLimit: devLimitCents, Lifetime: devLimitTime,
	})
	if err != nil {
		return err
	}
	before, err := m.holdings(ctx)
	if err != nil {
		return err
	}
	s.facts("faucet", devFunds+".00 USDC for the wallet "+subscriber.address.String(),
		"delegation", d.DelegationID+"   the service may spend 3.00 USDC of it, for an hour")
	fmt.Fprintln(s.out)
	start := time.Now()
	order, err := subscriber.client.OrderPlan(ctx, m.planID, client.PaidBy(d.DelegationID))
	if err != nil {
		return err
	}
	took := time.Since(start)
	if order.Status != toll.OrderConfirmed && order.Status != toll.OrderFinal {
		if order, err = subscriber.client.WaitOrder(ctx, order.OrderID); err != nil {
			return err
		}
	}
	tx, err := toll.ParseHash(order.TxHash)
	if err != nil {
		return fmt.Errorf("the order has no transaction: %w", err)
	}
	block, err := m.service.Chain().BlockOf(ctx, tx)
	if err != nil {
		return fmt.Errorf("the transaction of the order is not on the chain: %w", err)
	}
	after, err := m.holdings(ctx)
	if err != nil {
		return err
	}
	change := func(before, after toll.Units) string {
		return toll.FormatAmount(before, usdcDecimals) + " USDC  ->  " + toll.FormatAmount(after, usdcDecimals) + " USDC"
	}
	s.facts("order", fmt.Sprintf("%s   %s after %d ms", order.OrderID, order.Status, took.Milliseconds()),
		"transaction", tx.String(), "block", fmt.Sprint(block), "credits", order.CreditsGranted.Text(),
		"subscriber", change(before.subscriber, after.subscriber), "builder", change(before.builder, after.builder))
	price := big.NewInt(devPrice)
	paid := new(big.Int).Sub(before.subscriber.Int(), after.subscriber.Int())
	got := new(big.Int).Sub(after.builder.Int(), before.builder.Int())
	if paid.Cmp(price) != 0 || got.Cmp(price) != 0 {
		return fmt.Errorf("the plan costs %s, the subscriber paid %s and the builder got %s", price, paid, got)
	}
	return nil
}

// holdings are what wallets hold, in base units of USDC.
type holdings struct{ subscriber, builder toll.Units }

func (m *market) holdings(ctx context.Context) (h holdings, err error) {
	for p, into := range map[*person]*toll.Units{&m.subscriber: &h.subscriber, &m.builder: &h.builder} {
		w, err := p.client.Wallet(ctx)
		if err != nil {
			return h, err
		}
		i := slices.IndexFunc(w.Balances, func(b toll.TokenBalance) bool { return b.Symbol == toll.CurrencyUSDC })
		if i < 0 {
			return h, errors.New("the balances of the wallet cannot be read")
		}
		*into = w.Balances[i].Amount
	}
	return h, nil
}
