package auth

import (
	"context"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestEndKeyOnly_AboveEnds: nothing gets a parent that ends at the same time, as it would outlive that.
func TestEndKeyOnly_AboveEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		cfg, _ := testConfig()
		a := start(t, st, cfg)
		ctx := t.Context()
		first := newKey(t, a, KeyParams{})
		made := func(by toll.APIKey) toll.APIKey {
			return must.Get(a.CreateKey(ctx, Caller{Address: by.Address, KeyID: by.ID, Rights: by.Rights}.Maker(), KeyParams{}, nil))(t)
		}
		second := made(first)
		third := made(second)
		caller := Caller{Address: third.Address, KeyID: third.ID, Rights: third.Rights}

		done := make(chan error, 1)
		must.Do(t, st.Tx(ctx, func(tx *store.Tx) error { // the end of the first key, before it has read the keys that it made
			if _, err := store.RevokeAPIKey(ctx, tx, first.ID, a.clock()); err != nil {
				return err
			}
			go func() {
				_, err := a.EndKeyOnly(context.WithoutCancel(ctx), caller, second.ID)
				done <- err
			}()
			time.Sleep(200 * time.Millisecond) // the other call is at work, or waits for this one
			return nil
		}))
		if err := <-done; code(t, err) != toll.CodeNotAuthenticated {
			t.Errorf("the third key became one of the first, which has ended: %v", err)
		}
	})
}
