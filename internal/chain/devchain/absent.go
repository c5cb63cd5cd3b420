//go:build nodevchain

package devchain

import (
	"context"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"
)

// Chain is never made: this program was built without the embedded chain.
type Chain struct{}

// Start returns [ErrAbsent].
func Start(context.Context, Config) (*Chain, error) { return nil, ErrAbsent }

func (*Chain) Client() *rpc.Client         { return nil }
func (*Chain) URL() string                 { return "" }
func (*Chain) ChainID() uint64             { return 0 }
func (*Chain) Genesis() common.Hash        { return common.Hash{} }
func (*Chain) Advance(time.Duration) error { return ErrAbsent }
func (*Chain) Reorg(int, bool) error       { return ErrAbsent }
func (*Chain) Close() error                { return nil }

func (*Chain) Mint(context.Context, common.Address, common.Address, *big.Int) (common.Hash, error) {
	return common.Hash{}, ErrAbsent
}

func (*Chain) Fund(context.Context, common.Address, *big.Int) (common.Hash, error) {
	return common.Hash{}, ErrAbsent
}
