package store_test

import (
	"testing"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestPing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		if err := st.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
