package rails

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/mirror"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// settingGenesis is the hash of block 0 of the chain that this database was used with, as text.
	settingGenesis = "chain_genesis"

	probeChain   = 3 * time.Second  // how long a start waits for the endpoints
	retryChain   = 5 * time.Second  // when a caller may try again whose chain was not started
	startChain   = 60 * time.Second // of one attempt
	lookEmbedded = 5 * time.Second  // between looks at the chain for /ready
	lookRPC      = 15 * time.Second
)

// errForeign says that the chain is not the one that the records of this database are about.
var errForeign = errors.New("the database was used with another chain")

// Chain is the chain of a service. It is started when it is first needed, or by [Chain.Start], and runs until its group stops;
// [Chain.Close] comes after. A service without a chain has one, too, which is off. Its methods may be called at the same time.
type Chain struct {
	cfg     ChainConfig
	deps    Deps
	source  chainSource
	missing string     // what to set when source is noChain
	keys    *chainKeys // nil: source is noChain
	burns   *burns     // nil: nothing is mirrored
	signer  *signer.Signer
	rail    *chain.Rail // nil: source is noChain

	wake jobs.Signal // of the loop that starts the chain

	mu      sync.Mutex
	needed  bool          // the chain is started as soon as possible
	running *runningChain // nil: not started
	attempt chan struct{} // closed when the next attempt to start has ended, and by Stop
	failure error         // of the last attempt
	closed  bool
	fault   error // of the last look
}

// runningChain is a chain that was started.
type runningChain struct {
	dev  *devchain.Chain // nil: not the embedded one
	pool *endpoints.Pool

	mirror *mirror.Publisher // nil: nothing is mirrored
	lease  *jobs.Lease       // of mirror
}

// NewChain checks the settings, and the endpoints as far as they answer, and makes the accounts of the service at the first
// start. It starts nothing.
func NewChain(ctx context.Context, cfg ChainConfig, deps Deps) (*Chain, error) {
	n := &Chain{cfg: cfg, deps: deps, wake: jobs.NewSignal(), attempt: make(chan struct{})}
	n.source, n.missing = cfg.source(n.env(), deps.Data)
	if n.source == noChain {
		if cfg.Mode == ChainEmbedded {
			return nil, errors.New(n.missing)
		}
		if cfg.Mode != ChainOff {
			deps.Log.WarnContext(ctx, "crypto plans cannot be ordered", "reason", n.missing)
		}
		return n, nil
	}
	known, err := n.genesis(ctx)
	if err != nil {
		return nil, err
	}
	if n.source == rpcChain {
		err = n.probe(ctx, known)
	} else if _, e := os.Stat(n.dir()); known != (common.Hash{}) && errors.Is(e, os.ErrNotExist) {
		err = n.otherChain() // a chain that is made now would have another genesis
	}
	if err != nil {
		return nil, err
	}
	if n.keys, err = openKeys(ctx, &n.deps, cfg.Relayers, cfg.Mirror); err != nil {
		return nil, fmt.Errorf("loading the chain keys: %w", err)
	}
	if err := n.connect(n.keys, nil); err != nil {
		return nil, err
	}
	if cfg.Mirror {
		n.burns, err = n.newBurns(ctx)
	}
	return n, err
}

// Rail returns the chain as checkout sees it, nil when it is off. What needs the chain starts it.
func (n *Chain) Rail() rail.Rail {
	if n.rail == nil {
		return nil
	}
	return n.rail
}

func (n *Chain) env() toll.Environment { return n.deps.Auth.Environment() }

// dir is where the embedded chain lies.
func (n *Chain) dir() string { return filepath.Join(n.deps.Data, "chain") }

// otherChain returns [errForeign] with what to do.
func (n *Chain) otherChain() error {
	return fmt.Errorf("%w: restore the earlier TOLL_CHAIN_RPC_URLS (--chain-rpc-urls) and TOLL_DATA (--data), or use a new database; "+
		"TOLL_CHAIN=off (--chain off) starts without crypto plans", errForeign)
}

// genesis returns the hash of block 0 that is known, or zero.
func (n *Chain) genesis(ctx context.Context) (common.Hash, error) {
	text, err := store.Setting(ctx, n.deps.Store, settingGenesis)
	return common.HexToHash(string(text)), store.NotFoundAs(err, nil)
}

// remember writes the genesis down at the first start, and refuses another one from then on.
func (n *Chain) remember(ctx context.Context, genesis common.Hash) error {
	var stored []byte
	err := n.deps.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		stored, err = store.PutSettingIfAbsent(ctx, tx, settingGenesis, []byte(genesis.Hex()))
		return err
	})
	if err == nil && common.HexToHash(string(stored)) != genesis {
		return n.otherChain()
	}
	return err
}

// probe refuses endpoints of another chain. Those that do not answer now are looked at when they do.
func (n *Chain) probe(ctx context.Context, known common.Hash) error {
	pool, err := n.pool(nil, common.Hash{})
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(ctx, probeChain)
	defer cancel()
	pool.Check(ctx)
	for _, e := range pool.Health() {
		if e.ChainID != 0 && e.ChainID != n.chainID() {
			env := n.env()
			return fmt.Errorf("the endpoint %s serves chain %d, but %s is chain %d: fix TOLL_CHAIN_RPC_URLS (--chain-rpc-urls), or the environment", e.Name, e.ChainID, env, n.chainID())
		}
	}
	if known == (common.Hash{}) {
		return nil
	}
	genesis, err := genesisOf(ctx, pool)
	if err == nil && genesis != known {
		return n.otherChain()
	}
	return nil
}

func (n *Chain) chainID() uint64 { return uint64(n.env().ChainID()) }

func (n *Chain) pool(dev *devchain.Chain, genesis common.Hash) (*endpoints.Pool, error) {
	cfg := endpoints.Config{ChainID: n.chainID(), Genesis: genesis, Log: n.deps.Log}
	if dev != nil {
		cfg.Clients, cfg.Idle, cfg.Clock = []*rpc.Client{dev.Client()}, true, n.deps.Clock
	} else {
		// Public chains have the time of the machine, however far the clock of a sandbox was moved.
		cfg.URLs, cfg.Clock, cfg.Agree = n.cfg.RPCURLs, n.deps.Machine, n.env() == toll.Live
	}
	return endpoints.New(cfg)
}

// genesisOf asks for the hash of block 0, on live two endpoints: one alone must not make a service remember another chain, or
// take its own for a foreign one.
func genesisOf(ctx context.Context, pool *endpoints.Pool) (common.Hash, error) {
	return endpoints.Agree(ctx, pool, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		head, err := c.HeaderByNumber(ctx, new(big.Int))
		if err != nil {
			return common.Hash{}, err
		}
		return head.Hash(), nil
	})
}

// need returns the chain, which is started when it does not run. Errors have status 503.
func (n *Chain) need(ctx context.Context) (*runningChain, error) {
	for {
		n.mu.Lock()
		r, attempt, failure, closed := n.running, n.attempt, n.failure, n.closed
		n.needed = true
		n.mu.Unlock()
		switch {
		case r != nil:
			return r, nil
		case closed:
			return nil, toll.NewError(toll.CodeUnavailable)
		case n.source == noChain:
			return nil, toll.NewError(toll.CodeChainUnreachable).WithHint(n.missing)
		case failure != nil:
			return nil, unusableChain(failure)
		}
		n.wake.Fire()
		select {
		case <-attempt:
		case <-ctx.Done():
			return nil, unusableChain(ctx.Err())
		}
	}
}

// unusableChain is what callers hear of a chain that could not be started.
func unusableChain(err error) error {
	e := toll.NewError(toll.CodeChainUnreachable).WithCause(err)
	e.RetryAfterSecs = int(retryChain / time.Second)
	switch {
	case errors.Is(err, errForeign), errors.Is(err, devchain.ErrForeign):
		e.Code = toll.CodeChainContracts
	case errors.Is(err, devchain.ErrOld):
		return e.WithHint("An older version of Toll made the chain of this data directory, and this version cannot read it. Start the sandbox with another data directory (TOLL_DATA, --data).")
	case errors.Is(err, devchain.ErrInUse):
		return e.WithHint("Another process runs the embedded chain of this data directory. To run several processes, set endpoints (TOLL_CHAIN_RPC_URLS, --chain-rpc-urls).")
	}
	return e
}

// start is one attempt to start the chain, if it is needed and does not run.
func (n *Chain) start(ctx context.Context) error {
	n.mu.Lock()
	due := n.needed && n.running == nil
	n.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startChain)
	defer cancel()
	r, err := n.open(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = err
	if err == nil {
		n.running = r
		n.deps.Jobs.Start(append(n.rail.Loops(), r.pool.Loop(), n.watch(r))...)
		if r.mirror != nil {
			n.deps.Jobs.Start(n.publish(r))
		}
	}
	if !n.closed {
		close(n.attempt)
		n.attempt = make(chan struct{})
	}
	return err
}

// open builds the chain, without anything that runs but the embedded chain itself.
func (n *Chain) open(ctx context.Context) (_ *runningChain, err error) {
	r := &runningChain{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if n.source == embeddedChain {
		r.dev, err = devchain.Start(ctx, devchain.Config{
			Dir: n.dir(), ChainID: n.chainID(), HTTP: n.cfg.HTTP, Now: n.deps.Clock,
			Funded: n.keys.senders(), Log: n.deps.Log,
		})
		if err != nil {
			return nil, err
		}
	}
	genesis, err := n.identify(ctx, r.dev)
	if err != nil {
		return nil, err
	}
	if r.pool, err = n.pool(r.dev, genesis); err != nil {
		return nil, err
	}
	n.rail.Open(r.pool)
	if n.burns != nil {
		cfg := n.cfg.rail(r.dev != nil)
		r.lease = jobs.NewLease(n.deps.Store, n.deps.Machine, leaseMirror)
		r.mirror = mirror.NewPublisher(mirror.Config{
			Pool: r.pool, Signer: n.signer, Operator: n.keys.mirror, Store: n.deps.Store, Lease: r.lease, Tip: cfg.Tip, MaxFee: cfg.MaxBaseFee,
			AtOnce: r.dev != nil, Log: n.deps.Log,
		})
	}
	n.deps.Log.InfoContext(ctx, "crypto rail", "network", n.env().Network(), "source", string(n.source), "genesis", genesis.Hex(),
		"service", n.keys.service.Hex(), "relayers", n.keys.relayers)
	return r, nil
}

// connect builds the rail with the accounts of k, and what signs for it. Without a pool it starts the chain when it needs it.
func (n *Chain) connect(k *chainKeys, pool *endpoints.Pool) (err error) {
	n.signer, err = signer.New(signer.Config{
		ChainID: new(big.Int).SetUint64(n.chainID()), Keys: k, Service: k.service, Relayers: k.relayers, Mirror: k.mirror,
		HourlyCents: n.cfg.hourlyCents(n.env()), Clock: n.deps.Clock, Log: n.deps.Log,
	})
	if err != nil {
		return err
	}
	cfg := n.cfg.rail(n.source == embeddedChain)
	cfg.Environment, cfg.ChainID, cfg.Pool, cfg.Store, cfg.Signer = n.env(), n.chainID(), pool, n.deps.Store, n.signer
	cfg.Service, cfg.Relayers = k.service, k.relayers
	cfg.Clock, cfg.Log, cfg.At = n.deps.Clock, n.deps.Log, n.deps.At
	if pool == nil {
		cfg.Start = func(ctx context.Context) error {
			_, err := n.need(ctx)
			return err
		}
	}
	n.rail, err = chain.New(cfg)
	return err
}

// identify makes sure that the chain is the one that this database knows.
func (n *Chain) identify(ctx context.Context, dev *devchain.Chain) (common.Hash, error) {
	if dev != nil {
		return dev.Genesis(), n.remember(ctx, dev.Genesis())
	}
	known, err := n.genesis(ctx)
	if err != nil {
		return common.Hash{}, err
	}
	pool, err := n.pool(nil, common.Hash{})
	if err != nil {
		return common.Hash{}, err
	}
	defer pool.Close()
	genesis, err := genesisOf(ctx, pool)
	switch {
	case errors.Is(err, endpoints.ErrDisagree) && known != (common.Hash{}):
		return known, nil // the pool leaves out those that have another one
	case err != nil:
		return common.Hash{}, err
	case known != (common.Hash{}) && known != genesis:
		return common.Hash{}, n.otherChain()
	}
	return genesis, n.remember(ctx, genesis)
}

func (r *runningChain) close() error {
	if r.pool != nil {
		r.pool.Close()
	}
	if r.dev != nil {
		return r.dev.Close()
	}
	return nil
}

// Close closes the chain, whose loops have stopped before. Calls that need it fail from now on, also those that wait for its start.
func (n *Chain) Close(context.Context) error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.attempt)
	}
	r := n.running
	n.running = nil
	n.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.close()
}
