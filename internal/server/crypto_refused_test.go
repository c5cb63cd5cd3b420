package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/x402"
)

// refuses asks for an order that must be refused with a code and its status, and moves nothing.
func (b *buyer) refuses(plan toll.PlanID, token common.Address, want toll.Code, opts ...client.OrderOption) *toll.Error {
	b.m.Helper()
	before := b.m.has(b.Address, token)
	caller := b.Client
	if want.Info().Status == http.StatusServiceUnavailable {
		caller = b.hasty
	}
	o, err := caller.OrderPlan(b.m.Context(), plan, opts...)
	for end := time.Now().Add(patience); codeOf(err) == toll.CodeChainUnreachable && want != toll.CodeChainUnreachable && time.Now().Before(end); {
		o, err = caller.OrderPlan(b.m.Context(), plan, opts...) // after a standstill, for some seconds
	}
	if codeOf(err) != want {
		b.m.Fatalf("%+v, %v, want %s", o, err, want)
	}
	if got := b.m.has(b.Address, token); got != before {
		b.m.Errorf("%s: the buyer had %d and has %d", want, before, got)
	}
	if c := b.credits(plan); c.Total != 0 {
		b.m.Errorf("%s: %+v", want, c)
	}
	e := toll.AsError(err)
	if info := want.Info(); e.HTTPStatus() != info.Status {
		b.m.Errorf("%s: status %d, want %d", want, e.HTTPStatus(), info.Status)
	}
	return e
}

// What cannot be paid is refused with its code; no money moves, and what was reserved is given back.
// T65
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	m := embeddedBazaar(t)
	ctx := t.Context()
	to := receiver(1)
	plan := m.dollar(to)

	t.Run("no money", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("poor", 999_999)
		e := b.refuses(plan, usdc, toll.CodeChainBalance)
		if e.Params["needed"] != "1000000" || e.Params["available"] != "999999" || e.Params["address"] != b.Address.String() || e.Params["token"] != toll.Address(usdc).String() {
			t.Errorf("%+v", e.Params)
		}
		id := b.limit("usdc", 100)
		b.refuses(plan, usdc, toll.CodeChainBalance, client.PaidBy(id))
		b.budget(id, 0, 0)
		r, err := m.builder.Settle(ctx, settlement(plan, b.access(plan, id), "poor", 1))
		if err != nil || r.Success || r.Code != toll.CodeTopUpRefused || !strings.HasPrefix(r.Details, string(toll.CodeChainBalance)) {
			t.Errorf("a top-up without money: %s, %v", r.Raw, err)
		}
		b.budget(id, 0, 0)
		m.give(b.Address, usdc, 1)
		b.buys(plan, client.PaidBy(id)) // the whole limit is there
		b.budget(id, 100, 1)
	})
	t.Run("limit", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("limited", 5_000_000)
		id := b.limit("usdc", 99)
		b.refuses(plan, usdc, toll.CodeDelegationInsufficient, client.PaidBy(id))
		b.budget(id, 0, 0)
	})
	t.Run("revoked", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("revokes", 5_000_000)
		id := b.limit("usdc", 500)
		must.Get(b.RevokeDelegation(ctx, id))(t)
		b.refuses(plan, usdc, toll.CodeDelegationRevoked, client.PaidBy(id))
	})
	t.Run("another one's", func(t *testing.T) {
		m := m.in(t)
		b, other := m.buyer("steals", 5_000_000), m.buyer("owns", 5_000_000)
		id := other.limit("usdc", 500)
		b.refuses(plan, usdc, toll.CodeDelegationNotFound, client.PaidBy(id))
		other.budget(id, 0, 0)
	})
	t.Run("other receiver", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("pins", 5_000_000)
		id := b.limit("usdc", 500, func(p *client.DelegationParams) { p.AllowedRecipients = []toll.Address{receiver(99)} })
		b.refuses(plan, usdc, toll.CodeDelegationPlanMismatch, client.PaidBy(id))
		b.budget(id, 0, 0)
	})
	t.Run("other plan", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("binds", 5_000_000)
		id := b.limit("usdc", 500, func(p *client.DelegationParams) { p.PlanID = m.dollar(receiver(98)) })
		b.refuses(plan, usdc, toll.CodeDelegationPlanMismatch, client.PaidBy(id))
	})
	t.Run("other currency", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("euro", 5_000_000)
		m.give(b.Address, eurc, 5_000_000)
		id := b.limit("eurc", 500)
		b.refuses(plan, usdc, toll.CodeUnsupportedScheme, client.PaidBy(id))
		b.budget(id, 0, 0)
		if got := m.has(b.Address, eurc); got != 5_000_000 {
			t.Errorf("%d of EURC", got)
		}
	})
	t.Run("token that is on no list", func(t *testing.T) {
		m := m.in(t)
		b := m.buyer("other token", 0)
		b.refuses(m.plan(price(common.Address{0x70}, 5, to), toll.CreditsDynamic(100, 1, 100)), usdc, toll.CodeChainToken)
	})
	t.Run("expired", func(t *testing.T) { // the clock of the service goes on, so this is the last
		m := m.in(t)
		b := m.buyer("late", 5_000_000)
		id := b.limit("usdc", 500)
		token := b.access(plan, id)
		advance(t, operator(t, m.server, m.url), time.Hour)
		b.refuses(plan, usdc, toll.CodeDelegationExpired, client.PaidBy(id))
		v, err := m.builder.Verify(ctx, &x402.VerifyRequest{PaymentRequired: accepts(plan), AccessToken: token, Hold: true})
		if err == nil && v.IsValid {
			t.Errorf("verify with hold: %+v", v)
		}
	})
	if got := m.has(to, usdc); got != 1_000_000 {
		t.Errorf("the receiver has %d for one order", got)
	}
	m.nonces(m.store)
	m.audited()
}

// Fifty orders at once with a limit for three of them: three are paid. What was spent of the limit elsewhere is found out when the
// chain refuses, and is known from then on.
// T64
func TestOverrunOverHTTP(t *testing.T) {
	t.Parallel()
	m := publicBazaar(t, chaintest.New(t))
	ctx := t.Context()
	b := m.buyer("overruns", 100_000_000)
	id := b.limit("usdc", 350)
	const n = 50
	var plans []toll.PlanID
	for range n {
		plans = append(plans, m.dollar(receiver(1)))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	paid, refused := 0, map[toll.Code]int{}
	for _, plan := range plans {
		wg.Go(func() {
			o, err := b.OrderPlan(ctx, plan, client.PaidBy(id))
			if err == nil && o.HTTPStatus == 202 {
				o, err = b.WaitOrder(ctx, o.OrderID)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused[codeOf(err)]++
			} else if isPaid(o.Status) {
				paid++
			}
		})
	}
	wg.Wait()
	if paid != 3 || refused[toll.CodeDelegationInsufficient] != n-3 {
		t.Errorf("%d are paid, refused are %v", paid, refused)
	}
	b.budget(id, 300, 3)
	if got := m.has(receiver(1), usdc); got != 3_000_000 {
		t.Errorf("the receiver has %d", got)
	}

	second := b.limit("usdc", 1000)
	b.buys(m.dollar(receiver(2)), client.PaidBy(second))
	var hash []byte
	must.Do(t, m.store.QueryRow(ctx, "SELECT hash FROM chain_delegations WHERE delegation_id = $1", second).Scan(&hash))
	// spentMap[manager][delegation], 9.50 of 10 USDC.
	outer := crypto.Keccak256(common.LeftPadBytes(contracts.DelegationManager[:], 32), make([]byte, 32))
	m.double.Override(contracts.ERC20TransferAmountEnforcer, crypto.Keccak256Hash(hash, outer), common.BigToHash(toll.UnitsOf(9_500_000).Int()))
	plan := m.dollar(receiver(2))
	b.refuses(plan, usdc, toll.CodeDelegationInsufficient, client.PaidBy(second))
	b.budget(second, 950, 1)
	if got := m.has(receiver(2), usdc); got != 1_000_000 {
		t.Errorf("the receiver has %d", got)
	}
	m.audited()
}

// While the manager of delegations is paused, an order waits with what it reserved; one that needs no delegation is paid. Afterwards
// the same order goes on.
func TestCryptoOrder_PausedManager(t *testing.T) {
	t.Parallel()
	m := publicBazaar(t, chaintest.New(t))
	ctx := t.Context()
	b := m.buyer("waits", 10_000_000)
	id := b.limit("usdc", 150)
	plan := m.dollar(receiver(1))
	m.double.Pause(contracts.DelegationManager)
	e := b.refuses(plan, usdc, toll.CodeChainPaused, client.PaidBy(id))
	if e.RetryAfterSecs == 0 || e.Params["orderId"] == nil {
		t.Errorf("%+v", e)
	}
	d, err := b.Delegation(ctx, id)
	if err != nil || d.AmountSpentCents != 0 || d.TransactionCount != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	// The rest of the limit is not enough for another order.
	b.refuses(m.dollar(receiver(2)), usdc, toll.CodeDelegationInsufficient, client.PaidBy(id))
	b.buys(m.dollar(receiver(3)))
	m.double.Clear()
	var o *toll.Order
	eventually(t, "the order goes on", func() bool {
		var err error
		o, err = b.OrderPlan(ctx, plan, client.PaidBy(id))
		return err == nil && isPaid(o.Status)
	})
	if o.OrderID != e.Params["orderId"] {
		t.Errorf("order %s, was %v", o.OrderID, e.Params["orderId"])
	}
	b.budget(id, 100, 1)
	if n, sum := m.transfers(usdc, b.Address, receiver(1)); n != 1 || sum != 1_000_000 {
		t.Errorf("%d transfers of %d", n, sum)
	}
	m.audited()
}

// A request whose credits are missing hears that the chain is away, and one whose order does not land that it is not decided. When the
// chain is back the same calls settle, each with one order and one burn.
// F12
func TestTopUpWaits(t *testing.T) {
	t.Parallel()
	m := publicBazaar(t, chaintest.New(t), func(c *server.Config) {
		c.WaitForOrders(time.Second)
		c.Metrics = true
	})
	ctx := t.Context()
	b := m.buyer("tops up", 10_000_000)
	for i, tt := range []struct {
		name  string
		fault func()
		code  toll.Code
	}{
		{"no endpoint", func() { m.double.Drop(-1) }, toll.CodeChainUnreachable},
		{"pending", m.double.Swallow, toll.CodeSettlementPending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := m.in(t)
			to := receiver(byte(i + 1))
			plan := m.dollar(to)
			id := b.limit("usdc", 1000)
			token := b.access(plan, id)
			req := settlement(plan, token, "waits", 7)
			tt.fault()
			quick := false
			for i, asked := 0, time.Now(); i < 2; {
				began := time.Now()
				r, err := m.hasty.Settle(ctx, req)
				quick = quick || time.Since(began) <= 30*time.Second
				if tt.code == toll.CodeSettlementPending {
					unsent := err == nil && r.Code == tt.code && r.Transaction == "" // on a machine that is busy, for some seconds
					if (unsent || codeOf(err) == toll.CodeChainUnreachable) && time.Since(asked) < patience {
						continue
					}
					if err != nil || r.Success || r.Code != tt.code || r.Transaction == "" {
						t.Errorf("settle: %+v, %v", r, err)
					}
				} else if e := toll.AsError(err); codeOf(err) != tt.code || e.HTTPStatus() != http.StatusServiceUnavailable || e.RetryAfterSecs == 0 {
					t.Errorf("settle: %+v, %v", r, err)
				}
				i++
			}
			if !quick {
				t.Error("no settle took less than 30 s")
			}
			if got := scrape(t, m.server); tt.code == toll.CodeSettlementPending && (strings.Contains(got, "\ntoll_settlements_pending_total 0\n") ||
				!regexp.MustCompile(`\ntoll_orders_open_by_state\{rail="crypto",state="[a-z]+"\} 1\n`).MatchString(got)) {
				t.Error("the metrics do not tell of the outcome that is not known, or of the order")
			}
			if c := b.credits(plan); c.Total != 0 {
				t.Errorf("%+v", c)
			}
			m.double.Clear()
			var r *x402.SettleResponse
			eventually(t, "the same call settles", func() bool {
				var err error
				if r, err = m.hasty.Settle(ctx, req); err == nil && r.Success {
					return true
				}
				if !again(r, err) {
					t.Fatalf("%+v, %v", r, err)
				}
				return false
			})
			m.ran(r.OrderTx, m.service)
			if c := b.credits(plan); c.Used != 7 || c.Total != 100 {
				t.Errorf("%+v", c)
			}
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 1_000_000 {
				t.Errorf("%d transfers of %d", n, sum)
			}
			b.budget(id, 100, 1)
		})
	}
	m.nonces(m.store)
	m.audited()
}
