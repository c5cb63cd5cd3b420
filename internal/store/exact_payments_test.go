package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Payments go in slices, oldest first, once they ended long ago and the chain has nothing more to say of them. Their authorizations
// stay, so that they pay nothing else.
func TestDropExactPayments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		n := byte(0)
		keep := func(ends time.Time, op *store.ChainOp) *store.ExactPayment {
			n++
			p := &store.ExactPayment{ID: toll.NewUUID(), Server: bob, Content: toll.Hash{n}, Opened: n%2 == 0, EndsAt: ends}
			if op != nil {
				op.ID, op.Kind, op.NonceKey, op.UpdatedAt, op.Data = p.ID, "sale", []byte{n}, noon, []byte("{}")
				write(t, st, func(tx *store.Tx) error { _, err := store.InsertChainOp(ctx, tx, op); return err })
			}
			write(t, st, func(tx *store.Tx) error {
				return errors.Join(store.InsertExactPayment(ctx, tx, p), store.InsertAuthorization(ctx, tx, &store.Authorization{
					ChainID: 84532, Asset: toll.USDCSandbox, Payer: bob, Nonce: [32]byte{n}, OrderID: p.ID, Receiver: toll.Address{7},
					Value: toll.UnitsOf(1), ValidBefore: ends.Unix(), Signature: []byte{n}, CreatedAt: noon,
				}))
			})
			return p
		}
		last := noon.Add(-time.Microsecond)
		kept := []*store.ExactPayment{
			keep(noon, nil), keep(noon, &store.ChainOp{State: "final"}), keep(last, &store.ChainOp{State: "sent"}),
			keep(last, &store.ChainOp{State: "confirmed"}), keep(last, &store.ChainOp{State: "final", Undecided: true}),
		}
		gone := []*store.ExactPayment{
			keep(noon.Add(-time.Hour), nil), keep(last, &store.ChainOp{State: "final"}), keep(last, &store.ChainOp{State: "failed"}),
		}
		same(t, must.Get(store.ExactPaymentByID(ctx, st, gone[0].ID))(t), gone[0])
		left := func(of []*store.ExactPayment) (ids []string) {
			for _, p := range of {
				switch _, err := store.ExactPaymentByID(ctx, st, p.ID); {
				case err == nil:
					ids = append(ids, p.ID)
				case !errors.Is(err, store.ErrNotFound):
					t.Fatal(err)
				}
				must.Get(store.AuthorizationOfOrder(ctx, st, p.ID))(t)
			}
			return ids
		}
		if n := must.Get(store.DropExactPayments(ctx, st, noon, 1, nil))(t); n != 1 || slices.Contains(left(gone), gone[0].ID) {
			t.Errorf("the first slice removes %d, and leaves %q", n, left(gone))
		}
		if n := must.Get(store.DropExactPayments(ctx, st, noon, 9, nil))(t); n != 2 || len(left(gone)) > 0 || len(left(kept)) != len(kept) {
			t.Errorf("the rest are %d, which leaves %q and %q", n, left(gone), left(kept))
		}
		if n := must.Get(store.DropExactPayments(ctx, st, noon, 9, nil))(t); n != 0 {
			t.Errorf("%d more", n)
		}
	})
}

// With a payment that was only verified its authorization goes, once the chain says that it never pays. No other authorization does,
// whatever was said of it.
func TestDropDeadAuthorizations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		n := byte(0)
		keep := func(ends time.Time, op *store.ChainOp, answer string) string {
			n++
			p := &store.ExactPayment{ID: toll.NewUUID(), Server: bob, EndsAt: ends}
			if op != nil {
				op.ID, op.Kind, op.NonceKey, op.UpdatedAt, op.Data = p.ID, "sale", []byte{n}, noon, []byte("{}")
				write(t, st, func(tx *store.Tx) error { _, err := store.InsertChainOp(ctx, tx, op); return err })
			}
			write(t, st, func(tx *store.Tx) error {
				err := errors.Join(store.InsertExactPayment(ctx, tx, p), store.InsertAuthorization(ctx, tx, &store.Authorization{
					ChainID: 84532, Asset: toll.USDCSandbox, Payer: bob, Nonce: [32]byte{n}, OrderID: p.ID, Receiver: toll.Address{7},
					Value: toll.UnitsOf(1), ValidBefore: ends.Unix(), Signature: []byte{n}, CreatedAt: noon,
				}))
				if err == nil {
					err = store.PutSaleIdentifier(ctx, tx, &store.SaleIdentifier{Subscriber: bob, Identifier: p.ID, OrderID: p.ID})
				}
				if err == nil && answer != "" {
					_, err = store.AnswerExactPayment(ctx, tx, p.ID, []byte(answer))
				}
				return err
			})
			return p.ID
		}
		last := noon.Add(-time.Microsecond)
		second, first := keep(last, nil, ""), keep(noon.Add(-time.Hour), nil, "")
		others := []string{
			keep(last, &store.ChainOp{State: "failed"}, ""), keep(last, &store.ChainOp{State: "final"}, "{}"), keep(last, &store.ChainOp{State: "sent"}, ""),
			keep(last, nil, "{}"), keep(noon, nil, ""),
		}
		var unasked []string
		var dead []*store.Authorization
		for _, a := range must.Get(store.UnaskedAuthorizations(ctx, st, noon, 9))(t) {
			unasked = append(unasked, a.OrderID)
			dead = []*store.Authorization{a}
		}
		same(t, unasked, []string{first, second})
		same(t, len(must.Get(store.UnaskedAuthorizations(ctx, st, noon, 1))(t)), 1)

		there := func(id string) bool {
			_, err := store.AuthorizationOfOrder(ctx, st, id)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			_, named := store.SaleByIdentifier(ctx, st, bob, id)
			if errors.Is(named, store.ErrNotFound) != (err != nil) {
				t.Errorf("the name of a payment without its authorization, or that without it: %v, %v", named, err)
			}
			return err == nil
		}
		// One was found dead, and of the others that is said wrongly: they were settled meanwhile, or are no payments of this kind.
		order := toll.NewUUID()
		write(t, st, func(tx *store.Tx) error {
			return errors.Join(store.InsertAuthorization(ctx, tx, &store.Authorization{
				ChainID: 84532, Asset: toll.USDCSandbox, Payer: bob, OrderID: order, Value: toll.UnitsOf(1), Signature: []byte{1}, CreatedAt: noon,
			}), store.PutSaleIdentifier(ctx, tx, &store.SaleIdentifier{Subscriber: bob, Identifier: order, OrderID: order}))
		})
		for _, id := range append([]string{order}, others[:4]...) {
			dead = append(dead, &store.Authorization{OrderID: id, Payer: bob})
		}
		same(t, must.Get(store.DropExactPayments(ctx, st, noon, 9, dead))(t), int64(4))
		if there(second) || !there(first) || !there(order) {
			t.Errorf("the dead one %v, the one that nobody asked about %v, that of an order %v", there(second), there(first), there(order))
		}
		for i, id := range others {
			_, err := store.ExactPaymentByID(ctx, st, id)
			if left := err == nil; !there(id) || left != (i == 2 || i == 4) {
				t.Errorf("payment %d stays %v, its authorization %v", i, left, there(id))
			}
		}
	})
}

// Where more payments were only verified than are asked about at a time, the others stay until they are.
func TestDropExactPayments_NotAskedYet(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		for n := range byte(3) {
			id := toll.NewUUID()
			write(t, st, func(tx *store.Tx) error {
				return errors.Join(store.InsertExactPayment(ctx, tx, &store.ExactPayment{ID: id, Server: bob, EndsAt: noon.Add(-time.Hour)}),
					store.InsertAuthorization(ctx, tx, &store.Authorization{
						ChainID: 84532, Asset: toll.USDCSandbox, Payer: bob, Nonce: [32]byte{n}, OrderID: id, Receiver: toll.Address{7},
						Value: toll.UnitsOf(1), Signature: []byte{n}, CreatedAt: noon,
					}))
			})
		}
		dead := must.Get(store.UnaskedAuthorizations(ctx, st, noon, 2))(t)
		same(t, must.Get(store.DropExactPayments(ctx, st, noon, 2, dead))(t), int64(0))
		same(t, len(must.Get(store.UnaskedAuthorizations(ctx, st, noon, 2))(t)), 1)
	})
}
