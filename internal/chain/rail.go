package chain

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
)

// Rail is the crypto rail of one environment. Its methods may be called at the same time, and in several processes that share a database.
type Rail struct {
	cfg     Config
	chainID *big.Int
	log     *slog.Logger
	work    signals     // wake the relayers: there are operations to send, or transactions may be mined
	moved   jobs.Signal // wakes the tracker: there is a new block, or a new operation to look for
	outbox  outbox
	lanes   chan struct{} // bounds concurrent reads of the chain
	stopped atomic.Pointer[error]

	waiters rail.Waiters // for operations

	mu    sync.Mutex
	ready readiness

	delegations map[common.Hash]struct{} // known to be stored; a cache
}

// maxReads bounds concurrent reads of the chain.
const maxReads = 8

var (
	_ rail.Rail      = (*Rail)(nil)
	_ rail.Delegator = (*Rail)(nil)
	_ rail.Seller    = (*Rail)(nil)
)

// New returns a rail, or an error when the configuration cannot be used. It asks no endpoint.
func New(cfg Config) (*Rail, error) {
	if err := cfg.set(); err != nil {
		return nil, err
	}
	r := &Rail{
		cfg: cfg, chainID: new(big.Int).SetUint64(cfg.ChainID), log: cfg.Log,
		work: make(signals, len(cfg.Relayers)), moved: jobs.NewSignal(), lanes: make(chan struct{}, maxReads),
		outbox: outbox{taken: map[string]bool{}, rests: rests{}},
		ready:  readiness{low: map[common.Address]bool{}}, delegations: map[common.Hash]struct{}{},
	}
	for i := range r.work {
		r.work[i] = jobs.NewSignal()
	}
	return r, nil
}

// Connect implements [rail.Rail].
func (r *Rail) Connect(o rail.Orders) { r.cfg.Orders = o }

// Open gives the rail the endpoints over which it reaches the chain, once, before its loops run.
func (r *Rail) Open(pool *endpoints.Pool) { r.cfg.Pool = pool }

// start makes the chain usable. Errors have status 503.
func (r *Rail) start(ctx context.Context) error { return r.cfg.Start(ctx) }

// Loops returns the relayers, which send operations, and the tracker, which follows the chain. Any
// number of processes may run them; a lease lets one of them work at a time.
func (r *Rail) Loops() []jobs.Loop {
	t := &tracker{
		rail: r, lease: jobs.NewLease(r.cfg.Store, r.cfg.Clock, "tracker"), chunk: maxChunk, done: map[logID]uint64{},
		unclear: rests{}, asked: rests{}, spoilt: map[string]bool{},
	}
	loops := []jobs.Loop{
		{Name: "chain.heads", Turn: jobs.Do(r.listen)},
		{Name: "chain.tracker", Wake: r.moved, Lease: t.lease, Turn: t.turn},
	}
	for i, address := range r.cfg.Relayers {
		w := r.newRelayer(address)
		loops = append(loops, jobs.Loop{Name: fmt.Sprintf("chain.relayer.%d", i+1), Wake: r.work[i], Lease: w.lease, Turn: w.turn})
	}
	return loops
}

// changed wakes the callers of this process that wait for these operations.
func (r *Rail) changed(ids ...string) { r.waiters.Wake(ids...) }

// signals wake several loops.
type signals []jobs.Signal

func (s signals) Fire() {
	for _, one := range s {
		one.Fire()
	}
}
