//go:build !nodevchain

package devchain

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/consensus/beacon"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/txpool"
	"github.com/ethereum/go-ethereum/core/txpool/legacypool"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/leveldb"
	"github.com/ethereum/go-ethereum/miner"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gofrs/flock"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// Included reports whether the program contains the chain.
const Included = true

// Chain is a running chain. Its methods may be used by any number of goroutines.
type Chain struct {
	cfg    Config
	id     uint64
	log    *slog.Logger
	db     ethdb.Database
	chain  *core.BlockChain
	pool   *txpool.TxPool
	miner  *miner.Miner
	client *rpc.Client
	faucet *faucet
	url    string

	mu     sync.Mutex // one block, reorganisation or time travel at a time
	offset time.Duration
	placed uint64 // blocks up to this one hold the contracts and cannot be reorganised away
	closed bool

	stopped chan struct{}
	done    sync.WaitGroup
	closers []func() error // Close calls them in reverse order
}

// Start opens the chain of a directory, or creates it. When Start returns, the chain has the contracts with the code of the public
// networks, and the accounts of Config.Funded have ETH for gas. The context ends only the start.
//
// Errors: [ErrInUse], [ErrForeign], [ErrOld], [ErrAbsent], and errors of the directory and the address.
func Start(ctx context.Context, cfg Config) (*Chain, error) {
	c := &Chain{cfg: cfg, id: cfg.ChainID, log: cfg.Log, stopped: make(chan struct{})}
	c.id = cmp.Or(c.id, contracts.BaseSepolia)
	c.log = cmp.Or(c.log, slog.New(slog.DiscardHandler))
	if c.cfg.Now == nil {
		c.cfg.Now = time.Now
	}
	if c.cfg.random == nil {
		c.cfg.random = rand.Reader
	}
	c.cfg.Idle = cmp.Or(c.cfg.Idle, time.Minute)
	began := time.Now()
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the embedded chain: %w", err), c.Close())
	}
	c.run()
	if err := c.seed(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("preparing the embedded chain: %w", err)
	}
	c.log.Info("the embedded chain is running", "chain_id", c.id, "genesis", c.Genesis(), "head", c.chain.CurrentBlock().Number,
		"url", c.url, "took", time.Since(began).Round(time.Millisecond))
	return c, nil
}

// Files of the directory.
const (
	lockFile    = "LOCK"
	databaseDir = "blocks"
	oldNode     = "node/chaindata" // see ErrOld
)

// open reads the chain of the directory, or writes the first block, and serves it.
func (c *Chain) open() error {
	lock, err := lockDir(c.cfg.Dir)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, lock.Unlock)
	if c.db, err = openDatabase(c.cfg.Dir); err != nil {
		return err
	}
	c.closers = append(c.closers, c.db.Close)
	genesis, f, err := c.identity()
	if err != nil {
		return err
	}
	c.faucet = f
	// The hash scheme without pruning writes each block to the database at once. The default scheme loses all blocks of a killed process.
	c.chain, err = core.NewBlockChain(c.db, genesis, beacon.New(ethash.NewFaker()), &core.BlockChainConfig{
		StateScheme: rawdb.HashScheme, ArchiveMode: true, TrieCleanLimit: 16, SlowBlockThreshold: -1, // megabytes; log no slow blocks
	})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, func() error { c.chain.Stop(); return nil })
	// A pool with the default configuration refuses cheap transactions.
	pool := legacypool.DefaultConfig
	pool.NoLocals, pool.PriceLimit = true, 1
	c.pool, err = txpool.New(pool.PriceLimit, c.chain, []txpool.SubPool{legacypool.New(pool, c.chain)})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, c.pool.Close)
	// A block is built until its gas is used: with a shorter interval, a busy machine makes blocks without transactions that fit.
	c.miner = miner.New(backend{c}, miner.Config{
		ExtraData: []byte("toll"), GasCeil: gasLimit, GasPrice: common.Big1, Recommit: time.Hour,
	}, c.chain.Engine())
	c.mark(c.chain.CurrentBlock())
	return serve(c)
}

// backend gives the miner the chain and the pool.
type backend struct{ c *Chain }

func (b backend) BlockChain() *core.BlockChain { return b.c.chain }
func (b backend) TxPool() *txpool.TxPool       { return b.c.pool }

// lockDir makes a directory and locks it for this process. Without a directory there is nothing to lock.
func lockDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockFile))
	if dir == "" {
		return lock, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = ErrInUse
	}
	return lock, err
}

// openDatabase opens the database of a directory, which is locked, or makes one in memory.
func openDatabase(dir string) (ethdb.Database, error) {
	if dir == "" {
		return rawdb.NewMemoryDatabase(), nil
	}
	if _, err := os.Stat(filepath.Join(dir, oldNode)); err == nil {
		return nil, ErrOld
	}
	store, err := leveldb.New(filepath.Join(dir, databaseDir), 16, 64, "", false) // megabytes of cache, open files
	if err != nil {
		return nil, err
	}
	return rawdb.NewDatabase(store), nil
}

// syncLogs writes the log of the database from memory to the disk: LevelDB does so only for larger files, and go-ethereum has no option for it.
func syncLogs(dir string) error {
	if dir == "" {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(dir, databaseDir, "*.log"))
	if len(logs) == 0 {
		return errors.Join(err, errors.New("the database has no log"))
	}
	for _, path := range logs {
		log, failed := os.Open(path)
		if errors.Is(failed, fs.ErrNotExist) {
			continue // LevelDB has moved its content to a table
		}
		if failed == nil {
			failed = errors.Join(log.Sync(), log.Close())
		}
		err = errors.Join(err, failed)
	}
	return err
}

// seed deploys missing contracts, checks all, and funds the accounts of the configuration with gas.
func (c *Chain) seed(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.chain.CurrentBlock().Number.Uint64()
	if err := c.deploy(ctx); err != nil {
		return err
	}
	if now := c.chain.CurrentBlock().Number.Uint64(); now > head {
		c.placed = now
	}
	var wrong []error
	for _, mismatch := range contracts.Check(ctx, ethclient.NewClient(c.client), c.id) {
		wrong = append(wrong, mismatch)
	}
	return errors.Join(wrong...)
}

// Client calls the chain in process. It is closed with the chain.
func (c *Chain) Client() *rpc.Client { return c.client }

// URL returns the address of the JSON-RPC server, or "" without one.
func (c *Chain) URL() string { return c.url }

// ChainID returns the chain id, which signatures contain.
func (c *Chain) ChainID() uint64 { return c.id }

// Genesis returns the hash of the first block, which is random for each new chain.
func (c *Chain) Genesis() common.Hash { return c.chain.Genesis().Hash() }

// Close stops the chain and unlocks its directory. Transactions that are in no block are lost. A second call does nothing.
func (c *Chain) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	close(c.stopped)
	c.done.Wait()
	var failed []error
	for _, closer := range slices.Backward(c.closers) {
		failed = append(failed, closer())
	}
	return errors.Join(failed...)
}
