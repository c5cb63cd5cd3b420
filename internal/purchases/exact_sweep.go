package purchases

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
)

const (
	// exactLife is how long the answer to a payment is kept after the end of its authorization. The authorization itself is kept
	// for ever, so that it pays nothing else afterwards, unless the chain says that it never can.
	exactLife = 30 * 24 * time.Hour
	// exactSlice is how many payments one transaction of a sweep removes.
	exactSlice = 500
)

// Sweep removes payments to other servers that nobody asks about any more, 30 days after their authorizations ended, and reports
// whether there may be more. Any number of processes may do this on one database.
func (x *Exact) Sweep(ctx context.Context) (more bool, err error) {
	before := x.clock().Add(-exactLife)
	dead, err := x.deadPayments(ctx, before)
	if err != nil {
		return false, err
	}
	n, err := store.DropExactPayments(ctx, x.store, before, exactSlice, dead)
	return n+int64(len(dead)) >= exactSlice, err
}

// deadPayments returns those of the payments that a sweep is about to remove which were verified and never made, and never can be. Of
// what the chain does not tell now nothing is known.
func (x *Exact) deadPayments(ctx context.Context, before time.Time) (dead []*store.Authorization, err error) {
	seller := x.checkout.Seller()
	if seller == nil {
		return nil, nil
	}
	all, err := store.UnaskedAuthorizations(ctx, x.store, before, exactSlice)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.ChainID != x.brand.Environment.ChainID() {
			continue
		}
		is, err := seller.Dead(ctx, checkout.SaleOf(a))
		if err != nil {
			x.log.WarnContext(ctx, "cannot check whether authorizations can still be executed", "err", err)
			break
		}
		if is {
			dead = append(dead, a)
		}
	}
	return dead, nil
}
