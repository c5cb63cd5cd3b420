package server

import (
	"context"

	"github.com/tollhq/toll/internal/store"
)

// WithBrand and KeepBrand are the two halves of a first start, before and after everything else.
func WithBrand(ctx context.Context, c Config, st *store.Store) (Config, error) {
	return c.withBrand(ctx, st, "")
}

func KeepBrand(
	ctx context.Context,
	c Config,
	st *store.Store,
) error {
	return c.keepBrand(ctx, st, "")
}
