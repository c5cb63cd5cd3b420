package rails

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// Start starts the chain with the service: one that endpoints serve, an embedded one that was asked for, and one that has work
// left from before. It returns at once. The rail is connected before.
func (n *Chain) Start(ctx context.Context) error {
	if n.source == noChain {
		return nil
	}
	wanted := n.source == rpcChain || n.cfg.Mode == ChainEmbedded || n.cfg.HTTP != "" || n.burns != nil
	if !wanted {
		var err error
		if wanted, err = n.unfinished(ctx); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.needed = wanted
	n.mu.Unlock()
	n.deps.Jobs.Start(jobs.Loop{Name: "chain.start", Wake: n.wake, Run: jobs.Do(n.start)})
	return nil
}

// unfinished reports whether operations wait for the chain, or it is to be read after a restore.
func (n *Chain) unfinished(ctx context.Context) (bool, error) {
	if mark, err := store.ReadRestoration(ctx, n.deps.Store); err != nil || mark != nil {
		read, e := ChainRead(ctx, n.deps.Store)
		if err = errors.Join(err, e); err != nil || !read {
			return true, err
		}
	}
	open, err := store.ChainOpsIn(ctx, n.deps.Store, 1, string(chain.Created), string(chain.Signed), string(chain.Sent), string(chain.Included), string(chain.Confirmed))
	return len(open) > 0, err
}

// Handle implements [Service].
func (n *Chain) Handle(q *jobs.Queue) {
	if n.rail != nil {
		q.Handle(store.JobDecide, n.rail.RetryDecision)
	}
}

// watch returns the loop that asks whether the chain can be used, so that a caller of /ready causes no request.
func (n *Chain) watch(r *runningChain) jobs.Loop {
	every := lookRPC
	if r.dev != nil {
		every = lookEmbedded
	}
	return jobs.Loop{Name: "chain.watch", Every: every, Run: jobs.Do(func(turn context.Context) error {
		ctx, cancel := context.WithTimeout(turn, lookRPC)
		defer cancel()
		err := n.rail.Ready(ctx)
		if turn.Err() != nil {
			return nil // the service stops
		}
		n.mu.Lock()
		n.fault = err
		n.mu.Unlock()
		return errors.Join(err, errors.Unwrap(err)) // for the log: the code, and its cause
	})}
}

// State is the word of /ready: off, ok or failing. An embedded chain that nobody needed yet is ok.
func (n *Chain) State() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.source == noChain:
		return "off"
	case n.failure != nil, n.fault != nil, n.running == nil && n.source == rpcChain:
		return "failing"
	}
	return "ok"
}

// Advance has the embedded chain, if it runs, make a block at the time to which the clock was moved.
func (n *Chain) Advance() error {
	n.mu.Lock()
	r := n.running
	n.mu.Unlock()
	if r == nil || r.dev == nil {
		return nil
	}
	return r.dev.Advance(0)
}

// codeOf returns the code of an error, "" when it has none.
func codeOf(err error) toll.Code {
	if e, ok := errors.AsType[*toll.Error](err); ok {
		return e.Code
	}
	return ""
}
