package crypto

import (
	"context"
	"encoding/json"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/store"
)

// Unmatched returns events of the accounts of the service that no order explains, the oldest first, at
// most limit. Operations that were signed after the moment of a restored backup are such events.
func Unmatched(ctx context.Context, q store.Querier, limit int64) ([]chain.Orphan, error) {
	rows, err := store.ChainOrphans(ctx, q, limit)
	if err != nil {
		return nil, err
	}
	var out []chain.Orphan
	for _, row := range rows {
		o := chain.Orphan{Block: common.Hash(row.BlockHash), LogIndex: uint(row.LogIndex), Number: uint64(row.Block)}
		if err := json.Unmarshal(row.Data, &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}
