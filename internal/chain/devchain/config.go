package devchain

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"
)

var (
	// ErrInUse is returned for a directory that another process or another Chain uses.
	ErrInUse = errors.New("devchain: another process is running the chain in this directory")
	// ErrAbsent is returned by a program that was built with the tag nodevchain.
	ErrAbsent = errors.New("devchain: this program was built without the embedded chain")
	// ErrClosed is returned by the methods of a Chain after Close.
	ErrClosed = errors.New("devchain: the chain is closed")
	// ErrOld is returned for the directory of an older version, whose chain was a complete node of go-ethereum.
	ErrOld = errors.New("devchain: an older version of Toll made the chain in this directory, and this version cannot read it")
	// ErrForeign is returned for a directory with a different chain id.
	ErrForeign = errors.New("devchain: the directory contains a different chain")
)

// Config contains the settings of a chain. The zero value is a chain in memory with the id of Base Sepolia.
type Config struct {
	// Dir contains the chain, the key of its faucet and its lock. Only one process can use it at a time. Empty: memory.
	Dir string
	// ChainID cannot change after the first start of a directory. Zero: Base Sepolia.
	ChainID uint64
	// HTTP is a loopback IP address with a port for the JSON-RPC methods of eth, net and web3. Port 0: any. Empty: no HTTP.
	HTTP string
	// Now returns the time of new blocks, in whole seconds; nil: time.Now. Each block is at least one second later than its parent,
	// even if the clock goes back.
	Now func() time.Time
	// Idle is the age of the head, by Now, at which the chain adds an empty block, so that clients read a recent time.
	// Zero: one minute; negative: never. An empty block uses 6 kB.
	Idle time.Duration
	// Funded lists accounts that have at least 50 ETH after Start. A new account gets 100 ETH.
	Funded []common.Address
	// Log may be nil.
	Log *slog.Logger

	random io.Reader // nil: crypto/rand; tests repeat a chain with it
}

var _ methods = (*Chain)(nil)

// methods lists the methods of Chain, which a program has with and without the embedded chain.
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
