package chain

import (
	"context"
	"log/slog"
	"math/big"
	"sync"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/rail"
)

// Rail is the crypto rail of one environment. Its methods may be called at the same time, and in several processes that share
// a database.
type Rail struct {
	cfg     Config
	chainID *big.Int
	log     *slog.Logger
	work    signal // there are operations to send, or transactions that may be mined
	moved   signal // the chain, or what is looked for on it, may have moved
	outbox  outbox
	lanes   chan struct{} // reads of the chain under way
	stopped atomic.Pointer[error]

	mu      sync.Mutex
	watches map[string]map[chan struct{}]struct{} // by operation
	ready   readiness

	delegations map[common.Hash]struct{} // that are stored
}

// maxReads is how many reads of the chain are under way at a time.
const maxReads = 8

var (
	_ rail.Rail      = (*Rail)(nil)
	_ rail.Delegator = (*Rail)(nil)
)

// New returns a rail, or an error when the configuration cannot be used. It asks no endpoint.
func New(cfg Config) (*Rail, error) {
	if err := cfg.set(); err != nil {
		return nil, err
	}
	return &Rail{
		cfg: cfg, chainID: new(big.Int).SetUint64(cfg.ChainID), log: cfg.Log, watches: map[string]map[chan struct{}]struct{}{},
		lanes: make(chan struct{}, maxReads), ready: readiness{low: map[common.Address]bool{}}, delegations: map[common.Hash]struct{}{},
	}, nil
}

// Run sends operations and follows the chain until ctx ends. Any number of processes may run; leases say which of them is at
// what. It returns nil when ctx ended.
func (r *Rail) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, relayer := range r.cfg.Relayers {
		wg.Go(func() { r.relay(ctx, relayer) })
	}
	wg.Go(func() { r.track(ctx) })
	wg.Wait()
	return nil
}

// watch returns a channel that is closed at the next change of an operation by this process. The caller calls stop.
func (r *Rail) watch(id string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[id] == nil {
		r.watches[id] = map[chan struct{}]struct{}{}
	}
	r.watches[id][c] = struct{}{}
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.watches[id], c); len(r.watches[id]) == 0 {
			delete(r.watches, id)
		}
	}
}

// changed wakes who waits for these operations.
func (r *Rail) changed(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		for c := range r.watches[id] {
			close(c)
		}
		delete(r.watches, id)
	}
}

// signal wakes all who wait for it.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

// next returns a channel that is closed by the next call of fire.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
