package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// eachBazaar runs f on the chain in the service, and on one of another make behind endpoints.
func eachBazaar(t *testing.T, f func(t *testing.T, m *bazaar)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		f(t, embeddedBazaar(t))
	})
	t.Run("anvil", func(t *testing.T) {
		t.Parallel()
		f(t, publicBazaar(t, &chaintest.Chain{Backend: chaintest.StartAnvil(t, contracts.BaseSepolia), Kind: "anvil"}))
	})
}

// Every kind of price that is paid on the chain, from the request to the balances of all.
func TestCryptoOrders(t *testing.T) {
	eachBazaar(t, func(t *testing.T, m *bazaar) {
		for n, tt := range []struct {
			name     string
			token    common.Address
			price    func(a, b, c toll.Address) toll.Price
			want     []int64 // of a, b and c, for one order
			cents    toll.Cents
			currency string // of the delegation; "" for none
		}{
			{"one receiver", usdc, func(a, _, _ toll.Address) toll.Price { return price(usdc, 1_000_000, a) }, []int64{1_000_000, 0, 0}, 100, "usdc"},
			{"shares, one of them nothing and one receiver twice", usdc, func(a, b, c toll.Address) toll.Price {
				return price(usdc, 333_333, a, 1, b, 0, c, 666_667, a)
			}, []int64{1_000_000, 1, 0}, 101, "usdc"},
			{"EURC", eurc, func(a, b, _ toll.Address) toll.Price { return price(eurc, 1_999_999, a, 1, b) }, []int64{1_999_999, 1, 0}, 200, "eurc"},
			{"native", common.Address{}, func(a, b, _ toll.Address) toll.Price { return price(common.Address{}, 2_000_000_000_000_001, a, 7, b) },
				[]int64{2_000_000_000_000_001, 7, 0}, 0, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				m := m.in(t)
				to := []toll.Address{receiver(byte(10*n + 1)), receiver(byte(10*n + 2)), receiver(byte(10*n + 3))}
				plan := m.plan(tt.price(to[0], to[1], to[2]), toll.CreditsDynamic(100, 1, 100))
				total := tt.want[0] + tt.want[1] + tt.want[2]
				b := m.buyer(tt.name, 0)
				m.give(b.Address, tt.token, 10*total)
				paid := func(orders int64) {
					t.Helper()
					if got := m.has(b.Address, tt.token); got != (10-orders)*total {
						t.Errorf("after %d orders of %d the buyer has %d of %d", orders, total, got, 10*total)
					}
					for i, a := range to {
						if got := m.has(a, tt.token); got != orders*tt.want[i] {
							t.Errorf("after %d orders receiver %d has %d", orders, i, got)
						}
					}
					if got := b.credits(plan).Balance; got != toll.Credits(100*orders) {
						t.Errorf("after %d orders %d credits", orders, got)
					}
				}
				stop := func() {}
				if tt.token == (common.Address{}) && m.public != nil { // what has no price in cents waits for a safe block
					stop = background(t, func(ctx context.Context) {
						time.Sleep(200 * time.Millisecond)
						_ = m.public.Backend.Advance(time.Second) // the order tells
					})
				}
				o := b.buys(plan)
				stop()
				m.ran(o.TxHash, b.Address)
				paid(1)
				if tt.currency == "" {
					id := b.limit("usdc", 1000)
					if _, err := b.OrderPlan(t.Context(), plan, client.PaidBy(id)); codeOf(err) != toll.CodeChainNativeDelegation {
						t.Errorf("a native plan with a limit in cents: %v", err)
					}
					paid(1)
					return
				}
				id := b.limit(tt.currency, 3*tt.cents-1)
				for n := range int64(2) {
					o := b.buys(plan, client.PaidBy(id))
					m.ran(o.TxHash, m.service)
					paid(n + 2)
				}
				b.budget(id, 2*tt.cents, 2)
				other := map[string]string{"usdc": "eurc", "eurc": "usdc"}[tt.currency]
				if _, err := b.OrderPlan(t.Context(), plan, client.PaidBy(b.limit(other, 1000))); codeOf(err) != toll.CodeUnsupportedScheme {
					t.Errorf("a limit in the other currency: %v", err)
				}
				paid(3)
			})
		}
		m.nonces(m.store)
		m.audited()
	})
}

// Credits that are missing are bought on the chain when they are set aside, when they are burned, and one by one.
func TestCryptoTopUps(t *testing.T) {
	eachBazaar(t, func(t *testing.T, m *bazaar) {
		ctx := t.Context()
		t.Run("verify with hold", func(t *testing.T) {
			m := m.in(t)
			to := receiver(1)
			plan := m.plan(price(usdc, 1_000_000, to), toll.CreditsDynamic(10, 1, 10))
			b := m.buyer("holds", 10_000_000)
			id := b.limit("usdc", 250)
			token := b.access(plan, id)
			v, err := m.builder.Verify(ctx, &x402.VerifyRequest{PaymentRequired: accepts(plan), AccessToken: token, MaxAmount: toll.Credits(4).Ptr(), Hold: true, HoldSecs: 60})
			if err != nil || !v.IsValid {
				t.Fatalf("verify: %+v, %v", v, err)
			}
			if c := b.credits(plan); c.Balance != 10 || c.Held != 4 {
				t.Errorf("%+v", c)
			}
			r := settled(t, m.builder, settlement(plan, token, v.AgentRequestID, 3))
			m.ran(r.OrderTx, m.service)
			if c := b.credits(plan); c.Balance != 7 || c.Held != 0 || c.Used != 3 {
				t.Errorf("%+v", c)
			}
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 1_000_000 || m.has(b.Address, usdc) != 9_000_000 {
				t.Errorf("%d transfers of %d in all", n, sum)
			}
			b.budget(id, 100, 1)
		})
		t.Run("settle", func(t *testing.T) {
			m := m.in(t)
			to := receiver(2)
			plan := m.plan(price(usdc, 1_000_000, to), toll.CreditsDynamic(10, 1, 10))
			b := m.buyer("settles", 10_000_000)
			id := b.limit("usdc", 250)
			token := b.access(plan, id)
			first := settled(t, m.builder, settlement(plan, token, "first", 7))
			m.ran(first.OrderTx, m.service)
			second := settled(t, m.builder, settlement(plan, token, "second", 3))
			third := settled(t, m.builder, settlement(plan, token, "third", 1))
			m.ran(third.OrderTx, m.service)
			if second.OrderTx != "" || third.OrderTx == first.OrderTx {
				t.Errorf("orders %q, %q, %q", first.OrderTx, second.OrderTx, third.OrderTx)
			}
			for range 3 { // of one request there is one order and one burn
				if again := settled(t, m.builder, settlement(plan, token, "first", 7)); string(again.Raw) != string(first.Raw) {
					t.Errorf("the repeat is %s, was %s", again.Raw, first.Raw)
				}
			}
			r, err := m.builder.Settle(ctx, settlement(plan, token, "fourth", 10))
			if err != nil || r.Success || r.Code != toll.CodeDelegationInsufficient {
				t.Errorf("beyond the limit: %+v, %v", r, err)
			}
			if c := b.credits(plan); c.Balance != 9 || c.Used != 11 {
				t.Errorf("%+v", c)
			}
			if n, sum := m.transfers(usdc, b.Address, to); n != 2 || sum != 2_000_000 {
				t.Errorf("%d transfers of %d in all", n, sum)
			}
			b.budget(id, 200, 2)
		})
		t.Run("take-backs of the builder", func(t *testing.T) {
			m := m.in(t)
			to := receiver(9)
			plan := m.plan(price(usdc, 1_000_000, to), toll.CreditsDynamic(20, 1, 10))
			b := m.buyer("loses nothing", 30_000_000)
			id := b.limit("usdc", 2500)
			token := b.access(plan, id)
			for i := range 20 {
				settled(t, m.builder, settlement(plan, token, fmt.Sprint("drain", i), 1))
				if left := toll.Credits(19 - i); left > 0 {
					if _, err := m.builder.TakeBack(ctx, plan, b.Address, left); codeOf(err) != toll.CodeCreditsNotFree {
						t.Errorf("credits that were paid are taken back: %v", err)
					}
				}
			}
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 1_000_000 || m.has(b.Address, usdc) != 29_000_000 {
				t.Errorf("%d transfers of %d in all", n, sum)
			}
			b.budget(id, 100, 1)
		})
		t.Run("many requests at once", func(t *testing.T) {
			m := m.in(t)
			to := receiver(3)
			plan := m.plan(price(usdc, 1_000_000, to), toll.CreditsDynamic(10, 1, 10))
			b := m.buyer("crowd", 10_000_000)
			token := b.access(plan, b.limit("usdc", 1000))
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					req := settlement(plan, token, "crowd-"+string(rune('a'+i)), 1)
					for end := time.Now().Add(patience); ; {
						r, err := m.builder.Settle(ctx, req)
						if err == nil && r.Success {
							return
						}
						if !again(r, err) || time.Now().After(end) {
							t.Errorf("settle: %+v, %v", r, err)
							return
						}
					}
				})
			}
			wg.Wait()
			n, sum := m.transfers(usdc, b.Address, to)
			if c := b.credits(plan); c.Used != 20 || int64(c.Total) != 10*int64(n) || sum != int64(n)*1_000_000 || n != 2 {
				t.Errorf("%d orders for %d USDC and %+v", n, sum, c)
			}
		})
		t.Run("pay as you go", func(t *testing.T) {
			m := m.in(t)
			to := receiver(4)
			p := price(usdc, 2_001, to)
			p.TemplateAddress = toll.PayAsYouGoTemplate
			plan := m.plan(p, toll.CreditsDynamic(1, 1, 10))
			b := m.buyer("goes", 1_000_000)
			id := b.limit("usdc", 10)
			token := b.access(plan, id)
			must.Get(b.OrderPlan(ctx, plan))(t)
			r := settled(t, m.builder, settlement(plan, token, "walk", 7))
			m.ran(r.OrderTx, m.service)
			if c := b.credits(plan); c.Balance != 0 || c.Used != 7 {
				t.Errorf("%+v", c)
			}
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 7*2_001 || m.has(b.Address, usdc) != 1_000_000-7*2_001 {
				t.Errorf("%d transfers of %d in all", n, sum)
			}
			b.budget(id, 2, 1) // 1.4007 cents
		})
		m.nonces(m.store)
		m.audited()
	})
}

// again reports whether the outcome of a settlement is open, so that the same call is to be repeated.
func again(r *x402.SettleResponse, err error) bool {
	if err != nil {
		return toll.AsError(err).HTTPStatus() == 503
	}
	return r.ErrorReason == x402.ReasonPending
}

// Two hundred orders at once.
func TestCryptoOrders_Concurrent(t *testing.T) {
	m := embeddedBazaar(t)
	const buyers, plans = 20, 10
	var catalogue []toll.PlanID
	for k := range plans {
		catalogue = append(catalogue, m.plan(price(usdc, 100_000+k, receiver(byte(k+1)), 7, receiver(100)), toll.CreditsDynamic(10, 1, 10)))
	}
	single := m.buyer("single", 1_000_000)
	single.buys(catalogue[0]) // its account and that of the service have code afterwards
	single.buys(catalogue[0], client.PaidBy(single.limit("usdc", 100)))
	began := time.Now()
	single.buys(catalogue[0])
	one := time.Since(began)
	var all []*buyer
	var delegations []string
	for i := range buyers {
		b := m.buyer("buyer "+string(rune('a'+i)), 10_000_000)
		all, delegations = append(all, b), append(delegations, b.limit("usdc", 1000))
	}
	txs := make([]string, buyers*plans)
	began = time.Now()
	var wg sync.WaitGroup
	for i, b := range all {
		for k, plan := range catalogue {
			wg.Go(func() {
				var opts []client.OrderOption
				if k%2 == 1 {
					opts = append(opts, client.PaidBy(delegations[i]))
				}
				o, err := b.OrderPlan(t.Context(), plan, opts...)
				if err == nil && o.HTTPStatus == 202 {
					o, err = b.WaitOrder(t.Context(), o.OrderID)
				}
				if err != nil || !isPaid(o.Status) {
					t.Errorf("order %d of buyer %d: %+v, %v", k, i, o, err)
					return
				}
				txs[i*plans+k] = o.TxHash
			})
		}
	}
	wg.Wait()
	took := time.Since(began)
	if t.Failed() {
		return
	}
	t.Logf("one order %v, %d orders %v: %.1f times as long, %.2f of one for each", one, len(txs), took, float64(took)/float64(one), float64(took)/float64(one)/float64(len(txs)))
	want := int64(0)
	for k, plan := range catalogue {
		want += 100_000 + int64(k) + 7
		orders := int64(buyers)
		if k == 0 {
			orders += 3
		}
		if got := m.has(receiver(byte(k+1)), usdc); got != orders*(100_000+int64(k)) {
			t.Errorf("receiver %d has %d after %d orders", k, got, orders)
		}
		for i, b := range all {
			sender := b.Address
			if k%2 == 1 {
				sender = m.service
			}
			m.ran(txs[i*plans+k], sender)
			if c := b.credits(plan); c.Balance != 10 {
				t.Errorf("buyer %d has %d credits of plan %d", i, c.Balance, k)
			}
		}
	}
	for i, b := range all {
		if got := m.has(b.Address, usdc); got != 10_000_000-want {
			t.Errorf("buyer %d has %d, want %d", i, got, 10_000_000-want)
		}
	}
	if got := m.has(receiver(100), usdc); got != 7*(buyers*plans+3) {
		t.Errorf("the receiver of all has %d", got)
	}
	if n := m.nonces(m.store); n > buyers*plans/2 {
		t.Errorf("%d transactions for %d orders", n, len(txs))
	}
	m.audited()
}
