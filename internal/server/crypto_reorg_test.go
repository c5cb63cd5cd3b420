package server_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
)

func (m *bazaar) reorg(n int, drop bool) {
	m.Helper()
	must.Do(m, m.public.Reorg(n, drop))
}

// landed waits until the transaction of an order is in another block than before, and returns that one.
func (m *bazaar) landed(tx string, before common.Hash) (block common.Hash) {
	m.Helper()
	eventually(m.T, "the payment is in a block", func() bool {
		r, err := m.node.TransactionReceipt(m.Context(), common.HexToHash(tx))
		if err != nil || r.BlockHash == before {
			return false
		}
		head, err := m.node.HeaderByNumber(m.Context(), r.BlockNumber)
		block = r.BlockHash
		return err == nil && head.Hash() == block
	})
	return block
}

// Blocks change after credits were granted. A payment that comes back, or is brought back, is one payment and one grant.
// T56
func TestReorgOverHTTP(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		drop, delegated bool
		spent           toll.Credits
	}{
		"the payment stays in the pool":       {false, false, 0},
		"the payment is dropped":              {true, false, 0},
		"the payment is dropped, delegated":   {true, true, 0},
		"the payment is dropped after a burn": {true, true, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := publicBazaar(t, chaintest.New(t))
			to := receiver(1)
			plan, b := m.dollar(to), m.buyer("buys", 10_000_000)
			id := b.limit("usdc", 1000)
			var opts []client.OrderOption
			sender := b.Address
			if tt.delegated {
				opts, sender = append(opts, client.PaidBy(id)), m.service
			}
			o := b.buys(plan, opts...)
			if tt.spent > 0 {
				settled(t, m.builder, settlement(plan, b.access(plan, ""), "burns", tt.spent))
			}
			before := m.landed(o.TxHash, common.Hash{})
			m.reorg(1, tt.drop)
			m.landed(o.TxHash, before)
			m.ran(o.TxHash, sender)
			m.buyer("later", 1_000_000).buys(m.dollar(receiver(2))) // the service has read the chain again by then
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 1_000_000 || m.has(to, usdc) != 1_000_000 || m.has(b.Address, usdc) != 9_000_000 {
				t.Errorf("%d transfers of %d", n, sum)
			}
			if c := b.credits(plan); c.Total != 100 || c.Balance != 100-tt.spent {
				t.Errorf("%+v", c)
			}
			if r, err := b.Order(t.Context(), o.OrderID); err != nil || !isPaid(r.Status) || r.TxHash != o.TxHash {
				t.Errorf("%+v, %v", r, err)
			}
			b.buys(m.dollar(to), opts...)
			m.nonces(m.store)
			m.audited()
		})
	}
}

// The money of the buyer was in a block that goes, too: the payment cannot come back. Credits that are unspent are taken back, the
// others are a loss, the limit has its money again. When the buyer has money afterwards, a new order is another one.
// T56
func TestImpossibleOverHTTP(t *testing.T) {
	t.Parallel()
	for name, spent := range map[string]toll.Credits{"unspent": 0, "spent in part": 30, "spent": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			m := publicBazaar(t, chaintest.New(t))
			to := receiver(1)
			plan, b := m.dollar(to), m.buyer("buys", 0)
			id := b.limit("usdc", 1000)
			token := b.access(plan, "")
			m.give(b.Address, usdc, 1_000_000)
			o := b.buys(plan, client.PaidBy(id))
			if spent > 0 {
				settled(t, m.builder, settlement(plan, token, "burns", spent))
			}
			m.reorg(2, true)
			var r *toll.Order
			eventually(t, "the order has failed", func() bool {
				var err error
				r, err = b.Order(ctx, o.OrderID)
				return err == nil && r.Status == toll.OrderFailed
			})
			if n, _ := m.transfers(usdc, b.Address, to); n != 0 || m.has(to, usdc) != 0 || m.has(b.Address, usdc) != 0 {
				t.Errorf("%d transfers", n)
			}
			if c := b.credits(plan); c.Balance != 0 || c.Used != spent {
				t.Errorf("%+v", c)
			}
			var loss, taken int64
			if err := m.store.QueryRow(ctx, "SELECT loss, taken_back FROM orders WHERE order_id = $1", o.OrderID).Scan(&loss, &taken); err != nil || loss != int64(spent) || taken != int64(100-spent) {
				t.Errorf("loss %d, taken back %d, %v", loss, taken, err)
			}
			b.budget(id, 0, 0)
			m.audited()

			m.give(b.Address, usdc, 1_000_000)
			again := b.buys(plan, client.PaidBy(id))
			if again.OrderID == o.OrderID {
				t.Error("the order that has failed is paid")
			}
			m.buyer("later", 1_000_000).buys(m.dollar(receiver(2))) // the service has read the chain again by then
			if n, sum := m.transfers(usdc, b.Address, to); n != 1 || sum != 1_000_000 {
				t.Errorf("%d transfers of %d", n, sum)
			}
			if c := b.credits(plan); c.Balance != 100 {
				t.Errorf("%+v", c)
			}
			b.budget(id, 100, 1)
			m.nonces(m.store)
			m.audited()
		})
	}
}
