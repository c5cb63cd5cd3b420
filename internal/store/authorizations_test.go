package store_test

import (
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestAuthorizations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		a := &store.Authorization{
			ChainID: 84532, Asset: toll.USDCSandbox, Payer: bob, Nonce: [32]byte{1}, OrderID: toll.NewUUID(), Receiver: toll.Address{7},
			Value: toll.UnitsOf(1_000_000), ValidAfter: 1, ValidBefore: 1_790_000_000, Signature: []byte{1, 2, 3}, CreatedAt: noon,
		}
		insert := func(change func(a *store.Authorization)) error {
			other := *a
			if change != nil {
				change(&other)
			}
			return st.Tx(ctx, func(tx *store.Tx) error { return store.InsertAuthorization(ctx, tx, &other) })
		}
		if _, err := store.AuthorizationOfOrder(ctx, st, a.OrderID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("before it is there: %v", err)
		}
		for range 2 {
			must.Do(t, insert(nil))
		}
		same(t, must.Get(store.AuthorizationOfOrder(ctx, st, a.OrderID))(t), a)
		same(t, must.Get(store.AuthorizationByNonce(ctx, st, a.ChainID, a.Asset, a.Payer, a.Nonce))(t), a)
		for what, change := range map[string]func(a *store.Authorization){
			"another order":       func(o *store.Authorization) { o.OrderID = toll.NewUUID() },
			"another receiver":    func(o *store.Authorization) { o.Receiver = bob },
			"another value":       func(o *store.Authorization) { o.Value = toll.UnitsOf(1) },
			"another start":       func(o *store.Authorization) { o.ValidAfter = 0 },
			"another end":         func(o *store.Authorization) { o.ValidBefore++ },
			"another signature":   func(o *store.Authorization) { o.Signature = []byte{1, 2, 4} },
			"all another's later": func(o *store.Authorization) { o.OrderID, o.Value = toll.NewUUID(), toll.UnitsOf(2) },
		} {
			var taken *store.AuthorizationTaken
			if err := insert(change); !errors.As(err, &taken) || taken.OrderID != a.OrderID {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := insert(func(o *store.Authorization) { o.Nonce[0] = 2 }); !store.IsUnique(err) {
			t.Errorf("a second one for the order: %v", err)
		}
		for what, change := range map[string]func(a *store.Authorization){
			"nonce": func(o *store.Authorization) { o.Nonce[31] = 1 },
			"payer": func(o *store.Authorization) { o.Payer = toll.Address{9} },
			"asset": func(o *store.Authorization) { o.Asset = toll.EURCSandbox },
			"chain": func(o *store.Authorization) { o.ChainID = 8453 },
		} {
			err := insert(func(o *store.Authorization) { o.OrderID = toll.NewUUID(); change(o) })
			if err != nil {
				t.Errorf("another %s: %v", what, err)
			}
		}
	})
}
