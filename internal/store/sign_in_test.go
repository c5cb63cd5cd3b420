package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestSignInCodes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		now := time.Unix(1_795_226_400, 0)
		put := func(hash string, ends, at time.Time) {
			t.Helper()
			c := store.SignInCode{Hash: []byte(hash), Address: toll.Address{7}, Challenge: "c", Redirect: "http://127.0.0.1:1/callback", ExpiresAt: ends}
			if err := st.Tx(ctx, func(tx *store.Tx) error { return store.InsertSignInCode(ctx, tx, c, at) }); err != nil {
				t.Fatal(err)
			}
		}
		take := func(hash string) (c store.SignInCode, err error) {
			err = st.Tx(ctx, func(tx *store.Tx) (err error) {
				c, err = store.TakeSignInCode(ctx, tx, []byte(hash))
				return err
			})
			return c, err
		}
		put("one", now.Add(time.Minute), now)
		put("two", now.Add(time.Minute), now)
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				c, err := take("one")
				switch {
				case err == nil:
					won.Add(1)
					if c.Address != (toll.Address{7}) || c.Challenge != "c" || c.Redirect != "http://127.0.0.1:1/callback" || !c.ExpiresAt.Equal(now.Add(time.Minute)) {
						t.Errorf("%+v", c)
					}
				case !errors.Is(err, store.ErrNotFound):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d callers got the code", won.Load())
		}
		put("three", now.Add(3*time.Minute), now.Add(2*time.Minute))
		if _, err := take("two"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a code that ended is still there: %v", err)
		}
		if _, err := take("three"); err != nil {
			t.Error(err)
		}
	})
}
