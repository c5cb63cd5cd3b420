package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// ChainTx is a signed transaction of a relayer. What the rail knows of it beside these columns is Data.
type ChainTx struct {
	Hash      toll.Hash
	Relayer   toll.Address
	Nonce     int64
	State     string // "pending" while it may still land
	CreatedAt time.Time
	Raw       []byte
	Data      []byte // JSON
}

const chainTxColumns = "tx_hash, relayer, nonce, state, created_at, raw, data"

// InsertChainTx adds a transaction. The error is [IsUnique] when it is there already.
func InsertChainTx(ctx context.Context, tx *Tx, t *ChainTx) error {
	_, err := tx.Exec(ctx, "INSERT INTO chain_txs ("+chainTxColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7)",
		t.Hash[:], t.Relayer.Lower(), t.Nonce, t.State, Micros(t.CreatedAt), blob(t.Raw), string(t.Data))
	return err
}

// UpdateChainTx stores state and data of a transaction. [ErrNotFound] when there is none.
func UpdateChainTx(ctx context.Context, tx *Tx, t *ChainTx) error {
	n, err := tx.Exec(ctx, "UPDATE chain_txs SET state = $2, data = $3 WHERE tx_hash = $1", t.Hash[:], t.State, string(t.Data))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// SetChainTxState stores the state of a transaction. [ErrNotFound] when there is none.
func SetChainTxState(ctx context.Context, tx *Tx, hash toll.Hash, state string) error {
	n, err := tx.Exec(ctx, "UPDATE chain_txs SET state = $2 WHERE tx_hash = $1", hash[:], state)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// ChainTxByHash returns a transaction, or [ErrNotFound].
func ChainTxByHash(ctx context.Context, q Querier, hash toll.Hash) (*ChainTx, error) {
	return scanChainTx(q.QueryRow(ctx, "SELECT "+chainTxColumns+" FROM chain_txs WHERE tx_hash = $1", hash[:]).Scan)
}

// PendingChainTxs returns the transactions of a relayer that may still land, by nonce.
func PendingChainTxs(ctx context.Context, q Querier, relayer toll.Address) ([]*ChainTx, error) {
	rows, err := q.Query(ctx, "SELECT "+chainTxColumns+" FROM chain_txs WHERE relayer = $1 AND state = 'pending' ORDER BY nonce, created_at, tx_hash",
		relayer.Lower())
	return scanAll(rows, err, scanChainTx)
}

// ChainTxsFrom returns the transactions of a relayer with this nonce or a higher one, by nonce and time.
func ChainTxsFrom(ctx context.Context, q Querier, relayer toll.Address, nonce int64) ([]*ChainTx, error) {
	rows, err := q.Query(ctx, "SELECT "+chainTxColumns+" FROM chain_txs WHERE relayer = $1 AND nonce >= $2 ORDER BY nonce, created_at, tx_hash",
		relayer.Lower(), nonce)
	return scanAll(rows, err, scanChainTx)
}

// MaxChainNonce returns the highest nonce of the stored transactions of a relayer; false when there is none.
func MaxChainNonce(ctx context.Context, q Querier, relayer toll.Address) (int64, bool, error) {
	var nonce *int64
	err := q.QueryRow(ctx, "SELECT MAX(nonce) FROM chain_txs WHERE relayer = $1", relayer.Lower()).Scan(&nonce)
	if err != nil || nonce == nil {
		return 0, false, err
	}
	return *nonce, true, nil
}

func scanChainTx(scan func(dest ...any) error) (*ChainTx, error) {
	var t ChainTx
	var hash []byte
	var relayer, data string
	var created int64
	if err := scan(&hash, &relayer, &t.Nonce, &t.State, &created, &t.Raw, &data); err != nil {
		return nil, err
	}
	copy(t.Hash[:], hash)
	t.CreatedAt, t.Data = FromMicros(created), []byte(data)
	var err error
	t.Relayer, err = toll.ParseAddress(relayer)
	return &t, err
}
