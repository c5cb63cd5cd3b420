package chain

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/endpoints"
)

// searchBack is how long before an order was placed, or an authorization ends, its payment may have been made. An authorization
// that ends within an hour is hardly older.
const searchBack = 2 * time.Hour

// agree returns what f finds, on live as two endpoints say it: one that lies, or hides something, must neither pay an order nor end
// it. That they do not agree is [toll.CodeChainUnreachable].
func agree[T comparable](ctx context.Context, r *reader, f func(ctx context.Context, c *endpoints.Conn) (T, error)) (T, error) {
	found, err := endpoints.Agree(ctx, r.cfg.Pool, f)
	return found, away(err)
}

// blockTime is the time of a block, in Unix seconds, as endpoints agree on it.
func (r *reader) blockTime(ctx context.Context, number uint64) (uint64, error) {
	return agree(ctx, r, func(ctx context.Context, c *endpoints.Conn) (uint64, error) {
		header, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(number))
		if err != nil {
			return 0, err
		}
		return header.Time, nil
	})
}

// lastBefore returns the number of the last block before a time, or one at most [maxChunk] after it. high is a block after that time.
func (r *reader) lastBefore(ctx context.Context, high, end uint64) (uint64, error) {
	for low := uint64(0); high-low > maxChunk; {
		middle := low + (high-low)/2
		switch at, err := r.blockTime(ctx, middle); {
		case err != nil:
			return 0, err
		case at < end:
			low = middle
		default:
			high = middle
		}
	}
	return high, nil
}

// backwards looks for something in ranges of blocks, as endpoints agree on each: from a block down to [searchBack] before a time.
// The zero value says that there is none. With toHead the first range ends at the newest block of each endpoint, so that none can say
// that the head is an old block.
func backwards[T comparable](
	ctx context.Context, r *reader, to uint64, toHead bool, since uint64,
	look func(ctx context.Context, c *endpoints.Conn, from, to *big.Int) (T, error),
) (found T, err error) {
	since -= min(since, uint64(searchBack/time.Second))
	last := new(big.Int).SetUint64(to)
	if toHead {
		last = nil
	}
	for chunk := uint64(maxChunk); ; {
		from := to - min(to, chunk-1)
		found, err := agree(ctx, r, func(ctx context.Context, c *endpoints.Conn) (T, error) {
			return look(ctx, c, new(big.Int).SetUint64(from), last)
		})
		if _, refused := errors.AsType[rpc.Error](err); refused && chunk > 1 {
			if chunk /= 2; chunk == 1 {
				last = new(big.Int).SetUint64(to) // some endpoints tell one block at a time
			}
			continue
		}
		var none T
		if err != nil || found != none {
			return found, err
		}
		began, err := r.blockTime(ctx, from)
		if err != nil || from == 0 || began < since {
			return none, err
		}
		to, last = from-1, new(big.Int).SetUint64(from-1)
	}
}

// orderedBefore is the time since which the payment of an operation may be on the chain, but for [searchBack].
func orderedBefore(op *Op, head *types.Header) uint64 {
	return min(head.Time, uint64(max(op.CreatedAt.Unix(), 0)))
}
