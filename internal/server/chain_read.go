package server

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/endpoints"
)

// ChainURL returns where the embedded chain answers JSON-RPC, "" when it does not, or does not run yet.
func (s *Server) ChainURL() string {
	if s.chain == nil {
		return ""
	}
	s.chain.mu.Lock()
	defer s.chain.mu.Unlock()
	if r := s.chain.running; r != nil && r.dev != nil {
		return r.dev.URL()
	}
	return ""
}

// BlockOf returns the number of the block that holds a transaction of the chain.
func (s *Server) BlockOf(ctx context.Context, tx toll.Hash) (uint64, error) {
	if s.chain == nil {
		return 0, toll.NewError(toll.CodeChainUnreachable)
	}
	r, err := s.chain.need(ctx)
	if err != nil {
		return 0, err
	}
	var block uint64
	err = r.pool.Read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		receipt, err := c.TransactionReceipt(ctx, common.Hash(tx))
		if err == nil {
			block = receipt.BlockNumber.Uint64()
		}
		return err
	})
	return block, err
}
