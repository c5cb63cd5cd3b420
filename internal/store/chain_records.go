package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// ChainOrphan is an event of our accounts that no record explains.
type ChainOrphan struct {
	BlockHash toll.Hash
	LogIndex  int64
	Block     int64
	Data      []byte // JSON
}

// InsertChainOrphan adds an event, and reports whether it is new.
func InsertChainOrphan(ctx context.Context, tx *Tx, o ChainOrphan) (bool, error) {
	n, err := tx.Exec(ctx, "INSERT INTO chain_orphans (block_hash, log_index, block, data) VALUES ($1, $2, $3, $4) ON CONFLICT (block_hash, log_index) DO NOTHING",
		o.BlockHash[:], o.LogIndex, o.Block, string(o.Data))
	return n > 0, err
}

// CountChainOrphans returns how many events nothing explains.
func CountChainOrphans(ctx context.Context, q Querier) (n int64, err error) {
	err = q.QueryRow(ctx, "SELECT COUNT(*) FROM chain_orphans").Scan(&n)
	return n, err
}

// PutChainDelegation remembers the id of a delegation by its hash.
func PutChainDelegation(ctx context.Context, tx *Tx, hash toll.Hash, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO chain_delegations (hash, delegation_id) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING", hash[:], id)
	return err
}

// ChainDelegation returns the id of the delegation with this hash, or [ErrNotFound].
func ChainDelegation(ctx context.Context, q Querier, hash toll.Hash) (id string, err error) {
	err = q.QueryRow(ctx, "SELECT delegation_id FROM chain_delegations WHERE hash = $1", hash[:]).Scan(&id)
	return id, err
}

// ChainKey is an account of the service on the chain. Sealed opens with the master key alone.
type ChainKey struct {
	Role      string // "service", "relayer" or "mirror"
	Number    int64  // counts the accounts of a role, from 0
	Address   toll.Address
	Sealed    []byte
	CreatedAt time.Time
}

// PutChainKeyIfAbsent adds an account unless there is one, and returns the one that is there afterwards.
func PutChainKeyIfAbsent(ctx context.Context, tx *Tx, k ChainKey) (ChainKey, error) {
	_, err := tx.Exec(ctx, `INSERT INTO chain_keys (role, number, address, sealed_key, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (role, number) DO NOTHING`, k.Role, k.Number, k.Address.Lower(), blob(k.Sealed), Micros(k.CreatedAt))
	if err != nil {
		return ChainKey{}, err
	}
	return scanChainKey(tx.QueryRow(ctx, "SELECT role, number, address, sealed_key, created_at FROM chain_keys WHERE role = $1 AND number = $2", k.Role, k.Number).Scan)
}

// ChainKeys returns all accounts, those of a role together, by number.
func ChainKeys(ctx context.Context, q Querier) ([]ChainKey, error) {
	rows, err := q.Query(ctx, "SELECT role, number, address, sealed_key, created_at FROM chain_keys ORDER BY role, number")
	return scanAll(rows, err, scanChainKey)
}

func scanChainKey(scan func(dest ...any) error) (ChainKey, error) {
	var k ChainKey
	var address string
	var created int64
	if err := scan(&k.Role, &k.Number, &address, &k.Sealed, &created); err != nil {
		return ChainKey{}, err
	}
	k.CreatedAt = FromMicros(created)
	var err error
	k.Address, err = toll.ParseAddress(address)
	return k, err
}

// ErrExported says that the key of a wallet was given out before.
var ErrExported = errors.New("store: the key was exported before")

// NoteExport notes that the key of the wallet of a principal is given out, once: [ErrExported] the second time, [ErrNotFound]
// when there is no such principal.
func NoteExport(ctx context.Context, tx *Tx, a toll.Address, now time.Time) error {
	n, err := tx.Exec(ctx, "UPDATE principals SET exported_at = $2 WHERE address = $1 AND exported_at IS NULL", a.Lower(), Micros(now))
	if err != nil || n > 0 {
		return err
	}
	if _, err := PrincipalByAddress(ctx, tx, a); err != nil {
		return err
	}
	return ErrExported
}
