//go:build !nodevchain

package devchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// Included reports whether the program contains the chain.
const Included = true

// Chain is a running chain. Its methods may be used by any number of goroutines.
type Chain struct {
	cfg    Config
	id     uint64
	log    *slog.Logger
	node   *node.Node
	eth    *eth.Ethereum
	client *rpc.Client
	faucet *faucet
	url    string

	mu     sync.Mutex // one block, reorganisation or time travel at a time
	offset time.Duration
	placed uint64 // blocks up to this one hold the contracts and cannot be reorganised away
	closed bool

	stop context.CancelFunc
	done sync.WaitGroup
}

// Start runs the chain of a directory, or makes it. When it returns, the contracts are there with the code of the public
// networks, and the accounts of Config.Funded have gas money. The context bounds the start only.
//
// Errors: [ErrInUse], [ErrForeign], [ErrAbsent], and those of the directory and of the address.
func Start(ctx context.Context, cfg Config) (*Chain, error) {
	c := &Chain{cfg: cfg, id: cfg.ChainID, log: cfg.Log}
	c.id = cmp.Or(c.id, contracts.BaseSepolia)
	c.log = cmp.Or(c.log, slog.New(slog.DiscardHandler))
	if c.cfg.Now == nil {
		c.cfg.Now = time.Now
	}
	c.cfg.Idle = cmp.Or(c.cfg.Idle, time.Minute)
	began := time.Now()
	if err := c.open(); err != nil {
		if c.node != nil {
			c.node.Close()
		}
		return nil, fmt.Errorf("starting the embedded chain: %w", err)
	}
	c.run()
	if err := c.seed(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("preparing the embedded chain: %w", err)
	}
	c.log.Info("the embedded chain is running", "chain_id", c.id, "genesis", c.Genesis(), "head", c.eth.BlockChain().CurrentBlock().Number,
		"url", c.url, "took", time.Since(began).Round(time.Millisecond))
	return c, nil
}

// open builds the node and starts it, without making a block.
func (c *Chain) open() error {
	conf, err := nodeConfig(c.cfg.Dir, c.cfg.HTTP)
	if err != nil {
		return err
	}
	c.node, err = node.New(conf)
	if errors.Is(err, node.ErrDatadirUsed) {
		return ErrInUse
	}
	if err != nil {
		return err
	}
	// A node that cannot listen has half started, and its parts do not all end with it.
	if conf.HTTPHost != "" {
		listener, err := net.Listen("tcp", net.JoinHostPort(conf.HTTPHost, strconv.Itoa(conf.HTTPPort)))
		if err != nil {
			return err
		}
		listener.Close()
	}
	genesis, f, err := c.identity()
	if err != nil {
		return err
	}
	c.faucet = f
	c.eth, err = eth.New(c.node, ethConfig(genesis))
	if err != nil {
		return err
	}
	// Registering later than the start of the node panics. The stock development API would mine in a loop of its own.
	c.node.RegisterAPIs([]rpc.API{{
		Namespace: "eth",
		Service:   filters.NewFilterAPI(filters.NewFilterSystem(c.eth.APIBackend, filters.Config{LogQueryLimit: logQueryLimit})),
	}})
	if err := c.node.Start(); err != nil {
		return err
	}
	if conf.HTTPHost != "" {
		c.url = c.node.HTTPEndpoint()
	}
	c.client = c.node.Attach()
	c.eth.SetSynced()
	c.mark(c.eth.BlockChain().CurrentBlock())
	return nil
}

// nodeConfig is a node without peers, discovery and inter-process socket.
func nodeConfig(dir, address string) (*node.Config, error) {
	// The key names a peer. There are no peers, and a stored one would be one key more to look after.
	key, err := crypto.GenerateKey()
	if err != nil {
		return nil, err
	}
	conf := node.DefaultConfig
	conf.Name = nodeName
	conf.DataDir = dir
	conf.P2P = p2p.Config{PrivateKey: key, NoDiscovery: true, NoDial: true}
	conf.HTTPHost, conf.WSHost, conf.IPCPath = "", "", ""
	conf.HTTPModules = []string{"eth", "net", "web3"}
	if address == "" {
		return &conf, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not a loopback address", address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q has no valid port", address)
	}
	conf.HTTPHost, conf.HTTPPort = host, int(number)
	return &conf, nil
}

// seed deploys missing contracts, checks all, and funds the accounts of the configuration with gas.
func (c *Chain) seed(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.eth.BlockChain().CurrentBlock().Number.Uint64()
	if err := c.deploy(ctx); err != nil {
		return err
	}
	if now := c.eth.BlockChain().CurrentBlock().Number.Uint64(); now > head {
		c.placed = now
	}
	var wrong []error
	for _, mismatch := range contracts.Check(ctx, ethclient.NewClient(c.client), c.id) {
		wrong = append(wrong, mismatch)
	}
	return errors.Join(wrong...)
}

// Client speaks to the chain in process. It is closed with the chain.
func (c *Chain) Client() *rpc.Client { return c.client }

// URL is where the chain is served over HTTP, or empty.
func (c *Chain) URL() string { return c.url }

// ChainID is that of the signatures this chain takes.
func (c *Chain) ChainID() uint64 { return c.id }

// Genesis tells this chain from every other: each new one has a random one.
func (c *Chain) Genesis() common.Hash { return c.eth.BlockChain().Genesis().Hash() }

// Close stops the chain and lets go of its directory. Transactions that are in no block are forgotten. Closing twice is fine.
func (c *Chain) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.done.Wait()
	c.client.Close()
	return c.node.Close()
}
