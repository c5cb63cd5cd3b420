package chaintest

import (
	"math/big"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain"
)

func saleOf(id string, change func(*chain.Op)) *chain.Op {
	op := opOf(id)
	op.Kind, op.DelegationID, op.Authorization, op.TopUp = chain.KindSale, "", nil, false
	op.Payments, op.Before = []chain.Payment{{To: common.Address{5}, Amount: big.NewInt(1_000_000)}}, 1_790_000_000
	op.Sale = &chain.SaleTerms{After: 1_780_000_000, Nonce: common.Hash{8}, Signature: make([]byte, 65)}
	if change != nil {
		change(op)
	}
	return op
}

// testSales lets an authorization pay one order, for ever.
func testSales(t *testing.T, j chain.Journal) {
	ctx := t.Context()
	first := add(t, j, saleOf("a", nil))
	same(t, "a sale", first, func() *chain.Op { op := saleOf("a", nil); op.Version = first.Version; return op }())
	same(t, "the sale again", add(t, j, saleOf("a", nil)), first)
	_, err := j.AddOp(ctx, saleOf("b", nil))
	wants(t, "its authorization for another order", err, chain.ErrSold)
	if _, err := j.Op(ctx, "b"); err == nil {
		t.Error("the other order is there")
	}
	_, err = j.AddOp(ctx, saleOf("b", func(op *chain.Op) { op.Payments[0].Amount = big.NewInt(2) }))
	wants(t, "its nonce with other content", err, chain.ErrSold)
	update(t, j, first, func(op *chain.Op) { op.State = chain.Failed })
	_, err = j.AddOp(ctx, saleOf("b", nil))
	wants(t, "its authorization after it has failed", err, chain.ErrSold)
	add(t, j, saleOf("nonce", func(op *chain.Op) { op.Sale.Nonce[31] = 1 }))
	add(t, j, saleOf("payer", func(op *chain.Op) { op.Payer[0]++ }))
	add(t, j, saleOf("token", func(op *chain.Op) { op.Token[0]++ }))
	if got := listed(j.Untold(ctx, 10)); got != "[a]" {
		t.Errorf("untold: %s", got)
	}

	var sold, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := j.AddOp(ctx, saleOf("race"+string(rune('0'+i)), func(op *chain.Op) { op.Sale.Nonce[31] = 2 }))
			switch {
			case err == nil:
				sold.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if sold.Load() != 1 || refused.Load() != 7 {
		t.Errorf("of eight orders at once %d have the authorization", sold.Load())
	}
}
