package chain

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
)

func (r *Rail) relay(ctx context.Context, relayer common.Address) { <-ctx.Done() }
func (r *Rail) track(ctx context.Context)                         { <-ctx.Done() }

// void has the operation of an order that was sent made impossible.
func (r *Rail) void(ctx context.Context, op *Op) error { return nil }
