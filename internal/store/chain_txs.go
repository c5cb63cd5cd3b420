package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// ChainTx is a signed transaction of a relayer. What the rail knows of it beside these columns is Data.
type ChainTx struct {
	Hash      toll.Hash    `db:"tx_hash,key"`
	Relayer   toll.Address `db:"relayer"`
	Nonce     int64        `db:"nonce"`
	State     string       `db:"state,set"` // "pending" while it may still land
	CreatedAt time.Time    `db:"created_at"`
	Raw       []byte       `db:"raw"`
	Data      []byte       `db:"data,text,set"` // JSON
}

var (
	chainTxs      = newRecord[*ChainTx]("chain_txs")
	InsertChainTx = chainTxs.insert
	UpdateChainTx = chainTxs.update
	ChainTxByHash = by[toll.Hash](chainTxs, "tx_hash = $1")
	// ChainTxForUpdate is [ChainTxByHash], and locks the row.
	ChainTxForUpdate = locked[toll.Hash](chainTxs, "tx_hash = $1")
	// PendingChainTxs returns the transactions of a relayer that may still land, by nonce.
	PendingChainTxs = listBy[toll.Address](chainTxs,
		"relayer = $1 AND state = 'pending' ORDER BY nonce, created_at, tx_hash")
	// ChainTxsFrom returns the transactions of a relayer with this nonce or a higher one, by nonce and time.
	ChainTxsFrom = listBy2[toll.Address, int64](chainTxs,
		"relayer = $1 AND nonce >= $2 ORDER BY nonce, created_at, tx_hash")
	// SetChainTxState stores the state of a transaction. [ErrNotFound] when there is none.
	SetChainTxState = runs2[toll.Hash, string](found, "UPDATE chain_txs SET state = $2 WHERE tx_hash = $1")
)

// MaxChainNonce returns the highest nonce of the stored transactions of a relayer; false when there is none.
func MaxChainNonce(ctx context.Context, q Querier, relayer toll.Address) (int64, bool, error) {
	nonce, err := value[*int64](ctx, q, "SELECT MAX(nonce) FROM chain_txs WHERE relayer = $1", relayer.Lower())
	if err != nil || nonce == nil {
		return 0, false, err
	}
	return *nonce, true, nil
}
