package chain

import (
	"fmt"
	"log/slog"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
)

// Rail is the crypto rail of one environment. Its methods may be called at the same time, and in several processes that share a database.
type Rail struct {
	*delegations
	*readiness
	cfg     *Config
	chain   *reader
	records *records
	chainID *big.Int
	log     *slog.Logger
	work    signals     // wake the relayers: there are operations to send, or transactions may be mined
	moved   jobs.Signal // wakes the tracker: there is a new block, or a new operation to look for
	outbox  outbox
	waiters rail.Waiters // for operations
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
	id, db := new(big.Int).SetUint64(cfg.ChainID), &records{cfg: &cfg}
	chain := &reader{cfg: &cfg, chainID: id, lanes: make(chan struct{}, maxReads)}
	r := &Rail{
		delegations: &delegations{cfg: &cfg, chain: chain, records: db, chainID: id, known: map[common.Hash]struct{}{}},
		readiness:   &readiness{cfg: &cfg, chain: chain, low: map[common.Address]bool{}},
		cfg:         &cfg, chain: chain, records: db, chainID: id, log: cfg.Log, work: make(signals, len(cfg.Relayers)), moved: jobs.NewSignal(),
		outbox: outbox{taken: map[string]bool{}, pauses: pauses{}},
	}
	for i := range r.work {
		r.work[i] = jobs.NewSignal()
	}
	return r, nil
}

func (r *Rail) Connect(o rail.Orders) { r.cfg.Orders = o }

// Open gives the rail the endpoints over which it reaches the chain, once, before its loops run.
func (r *Rail) Open(pool *endpoints.Pool) { r.cfg.Pool = pool }

// Loops returns the relayers, which send operations, and the tracker, which follows the chain. Any
// number of processes may run them; a lease lets one of them work at a time.
func (r *Rail) Loops() []jobs.Loop {
	t := &tracker{
		rail: r, lease: jobs.NewLease(r.cfg.Store, r.cfg.Clock, "tracker"), chunk: maxChunk, done: map[logID]uint64{},
		unclear: pauses{}, asked: pauses{}, spoilt: map[string]bool{},
	}
	loops := []jobs.Loop{
		{Name: "chain.heads", Run: jobs.Do(r.listen)},
		{Name: "chain.tracker", Wake: r.moved, Lease: t.lease, Run: t.runOnce},
	}
	for i, address := range r.cfg.Relayers {
		w := r.newRelayer(address)
		loops = append(loops, jobs.Loop{Name: fmt.Sprintf("chain.relayer.%d", i+1), Wake: r.work[i], Lease: w.lease, Run: w.runOnce})
	}
	return loops
}

// signals wake several loops.
type signals []jobs.Signal

func (s signals) Fire() {
	for _, one := range s {
		one.Fire()
	}
}
