package devchain

import (
	"context"
	"errors"
	"log/slog"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"
)

var (
	// ErrInUse is returned for a directory that another process, or another Chain, holds.
	ErrInUse = errors.New("devchain: another process is running the chain in this directory")
	// ErrAbsent is returned by a program that was built with the tag nodevchain.
	ErrAbsent = errors.New("devchain: this program was built without the embedded chain")
	// ErrClosed is returned by the methods of a Chain after Close.
	ErrClosed = errors.New("devchain: the chain is closed")
	// ErrForeign is returned for a directory that holds a chain with another id.
	ErrForeign = errors.New("devchain: the directory contains a different chain")
)

// Config says how a chain is started. The zero value is a chain in memory with the id of Base Sepolia.
type Config struct {
	// Dir keeps the chain, the key of its faucet and its lock. One process at a time uses it. Empty: memory.
	Dir string
	// ChainID is fixed when the directory is new. Zero is that of Base Sepolia.
	ChainID uint64
	// HTTP is a loopback address with a port to serve eth, net and web3 on, port 0 for any; empty: none.
	HTTP string
	// Now is the time of new blocks, in whole seconds; nil is time.Now. Block times rise by a second at least, and a clock
	// that goes back does not take the chain with it.
	Now func() time.Time
	// Idle is the age of the head, by Now, at which an empty block is added, so that what reads the chain has a recent time.
	// Zero is a minute; negative: never. An empty block takes 6 kB.
	Idle time.Duration
	// Funded are accounts that have at least 50 ETH after Start, without asking. New ones get 100.
	Funded []common.Address
	// Log may be nil.
	Log *slog.Logger
}

var _ methods = (*Chain)(nil)

// methods lists the methods of Chain, which a program has with and without the node.
type methods interface {
	Client() *rpc.Client
	URL() string
	ChainID() uint64
	Genesis() common.Hash
	Mint(ctx context.Context, token, to common.Address, amount *big.Int) (common.Hash, error)
	Fund(ctx context.Context, to common.Address, wei *big.Int) (common.Hash, error)
	Advance(d time.Duration) error
	Reorg(n int, drop bool) error
	Close() error
}
