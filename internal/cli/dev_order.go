package cli

import (
	"context"
	"errors"
	"fmt"
	"math/big"
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
	subscriber, builder := m.subscriber, m.builder
	if _, err := subscriber.client.Faucet(ctx, client.FaucetParams{USDC: devFunds}); err != nil {
		return err
	}
	d, err := subscriber.client.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCrypto, Currency: "usdc", SpendingLimit: devLimitCents, Lifetime: devLimitTime,
	})
	if err != nil {
		return err
	}
	buyerBefore, err := usdc(ctx, subscriber)
	if err != nil {
		return err
	}
	sellerBefore, err := usdc(ctx, builder)
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
	buyerAfter, err := usdc(ctx, subscriber)
	if err != nil {
		return err
	}
	sellerAfter, err := usdc(ctx, builder)
	if err != nil {
		return err
	}
	s.facts("order", fmt.Sprintf("%s   %s after %d ms", order.OrderID, order.Status, took.Milliseconds()),
		"transaction", tx.String(), "block", fmt.Sprint(block), "credits", order.CreditsGranted.Text(),
		"subscriber", toll.FormatAmount(buyerBefore, usdcDecimals)+" USDC  ->  "+toll.FormatAmount(buyerAfter, usdcDecimals)+" USDC",
		"builder", toll.FormatAmount(sellerBefore, usdcDecimals)+" USDC  ->  "+toll.FormatAmount(sellerAfter, usdcDecimals)+" USDC")
	price := big.NewInt(devPrice)
	paid := new(big.Int).Sub(buyerBefore.Int(), buyerAfter.Int())
	got := new(big.Int).Sub(sellerAfter.Int(), sellerBefore.Int())
	if paid.Cmp(price) != 0 || got.Cmp(price) != 0 {
		return fmt.Errorf("the plan costs %s, the subscriber paid %s and the builder got %s", price, paid, got)
	}
	return nil
}

// usdc returns what the wallet of a person holds, in base units.
func usdc(ctx context.Context, p person) (toll.Units, error) {
	w, err := p.client.Wallet(ctx)
	if err != nil {
		return toll.Units{}, err
	}
	for _, b := range w.Balances {
		if b.Symbol == "USDC" {
			return b.Amount, nil
		}
	}
	return toll.Units{}, errors.New("the balances of the wallet cannot be read")
}
