package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// Head returns the block that a tag names: "latest", "safe" or "finalized". A chain that has no such block yet answers with a
// JSON-RPC error or [ethereum.NotFound].
//
// With [Config.Agree], "safe" and "finalized" are the newest block that one endpoint names so and that another one, which is
// as far, has at the same height with the same hash; [ErrDisagree] when there is none.
func (p *Pool) Head(ctx context.Context, tag string) (*types.Header, error) {
	number, ok := tags[tag]
	if !ok {
		return nil, fmt.Errorf("endpoints: unknown block tag %q", tag)
	}
	if p.cfg.Agree && tag != "latest" {
		return p.agreed(ctx, big.NewInt(int64(number)))
	}
	return Get(ctx, p, header(big.NewInt(int64(number))))
}

var tags = map[string]rpc.BlockNumber{
	"latest": rpc.LatestBlockNumber, "safe": rpc.SafeBlockNumber, "finalized": rpc.FinalizedBlockNumber,
}

// header asks for the header of a block.
func header(number *big.Int) func(ctx context.Context, c *Conn) (*types.Header, error) {
	return func(ctx context.Context, c *Conn) (*types.Header, error) { return c.HeaderByNumber(ctx, number) }
}

// noteDisagreement stores whether the endpoints disagree, and logs a change.
func (p *Pool) noteDisagreement(now bool) {
	p.mu.Lock()
	before := p.split
	p.split = now
	p.mu.Unlock()
	switch {
	case now && !before:
		p.cfg.Log.Error("the endpoints of the chain do not agree: orders wait until they do")
	case before && !now:
		p.cfg.Log.Info("the endpoints of the chain agree again")
	}
}

func (p *Pool) agreed(ctx context.Context, number *big.Int) (*types.Header, error) {
	views, answer := all(ctx, p, header(number))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(views) == 0 && answer != nil {
		return nil, answer
	}
	if len(views) == 0 {
		return nil, fmt.Errorf("%w (none of %d)", ErrNone, len(p.endpoints))
	}
	slices.SortStableFunc(views, func(a, b found[*types.Header]) int { return b.value.Number.Cmp(a.value.Number) })
	for i, v := range views {
		for j, w := range views {
			// Only one that is as far can confirm: what lies beyond its own safe block may still change.
			if i == j || w.value.Number.Cmp(v.value.Number) < 0 {
				continue
			}
			there, why, err := get(ctx, w.from, header(v.value.Number))
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err == nil && why == "" && there.Hash() == v.value.Hash() {
				p.noteDisagreement(false)
				return v.value, nil
			}
		}
	}
	if len(views) > 1 {
		p.noteDisagreement(true)
	}
	return nil, fmt.Errorf("%w (%d of %d answered)", ErrDisagree, len(views), len(p.endpoints))
}

// found is what one endpoint answered.
type found[T any] struct {
	from  *endpoint
	value T
}

// all asks all endpoints at once. The error is an answer in place of a value, when one gave it.
func all[T any](ctx context.Context, p *Pool, f func(ctx context.Context, c *Conn) (T, error)) (values []found[T], answer error) {
	var mu sync.Mutex
	p.each(func(e *endpoint) {
		v, why, err := get(ctx, e, f)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case why != "":
		case err != nil:
			answer = err
		default:
			values = append(values, found[T]{e, v})
		}
	})
	return values, answer
}

// each runs f with all endpoints at once and waits.
func (p *Pool) each(f func(e *endpoint)) {
	var wg sync.WaitGroup
	for _, e := range p.endpoints {
		wg.Go(func() { f(e) })
	}
	wg.Wait()
}

// Agrees reports whether two endpoints have to say the same, as [Config.Agree] demands.
func (p *Pool) Agrees() bool { return p.cfg.Agree }

// Agree runs f with all endpoints at once and returns the value that most of them give: with [Config.Agree] at least two, else
// the only one there is. Endpoints that gave another value than the one that is returned rest for a while. It is [ErrDisagree]
// when there is no such value.
func Agree[T comparable](ctx context.Context, p *Pool, f func(ctx context.Context, c *Conn) (T, error)) (most T, err error) {
	if !p.cfg.Agree {
		return Get(ctx, p, f)
	}
	var none T
	values, answer := all(ctx, p, f)
	said := map[T][]*endpoint{}
	for _, v := range values {
		said[v.value] = append(said[v.value], v.from)
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	counts := make([]int, 0, len(said))
	for h, from := range said {
		counts = append(counts, len(from))
		if len(from) > len(said[most]) {
			most = h
		}
	}
	slices.SortFunc(counts, func(a, b int) int { return cmp.Compare(b, a) })
	switch {
	case len(said) == 0 && answer != nil:
		return none, answer
	case len(said) == 0:
		return none, fmt.Errorf("%w (none of %d)", ErrNone, len(p.endpoints))
	case len(counts) == 1 && counts[0] < 2:
		return none, fmt.Errorf("%w (1 of %d answered)", ErrDisagree, len(p.endpoints))
	case counts[0] < 2 || len(counts) > 1 && counts[1] == counts[0]:
		p.noteDisagreement(true)
		return none, ErrDisagree
	}
	p.noteDisagreement(false)
	for h, from := range said {
		if h == most {
			continue
		}
		for _, e := range from {
			e.suspend("the response of the endpoint differs from the other endpoints")
		}
	}
	return most, nil
}
