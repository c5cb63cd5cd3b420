package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// ChainOrphan is an event of our accounts that no record explains.
type ChainOrphan struct {
	BlockHash  toll.Hash `db:"block_hash,key"`
	LogIndex   int64     `db:"log_index,key"`
	Block      int64     `db:"block"`
	Data       []byte    `db:"data,text"`            // JSON
	ResolvedAt time.Time `db:"resolved_at,null,set"` // zero: an operator has to look at it
	Resolution string    `db:"resolution,null,set"`  // a word as of [CardOrphan]
}

var (
	chainOrphans = newRecord[ChainOrphan]("chain_orphans")
	// InsertChainOrphan adds an event, and reports whether it is new.
	InsertChainOrphan = chainOrphans.adds("ON CONFLICT (block_hash, log_index) DO NOTHING")
)

var (
	// ChainOrphans returns the events that no record explains and nobody has dealt with, the oldest first, at most limit.
	ChainOrphans         = listBy[int64](chainOrphans, "resolved_at IS NULL ORDER BY block, log_index LIMIT $1")
	ChainOrphanForUpdate = locked2[toll.Hash, int64](chainOrphans, "block_hash = $1 AND log_index = $2")
	UpdateChainOrphan    = chainOrphans.update
)

// PutChainDelegation remembers the id of a delegation by its hash.
var PutChainDelegation = runs2[toll.Hash, string](done,
	"INSERT INTO chain_delegations (hash, delegation_id) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING")

// ChainDelegation returns the id of the delegation with this hash, or [ErrNotFound].
var ChainDelegation = valueBy[string, toll.Hash]("SELECT delegation_id FROM chain_delegations WHERE hash = $1")

// ChainKey is an account of the service on the chain. Sealed opens with the master key alone.
type ChainKey struct {
	Role      string       `db:"role"`   // "service", "relayer" or "mirror"
	Number    int64        `db:"number"` // counts the accounts of a role, from 0
	Address   toll.Address `db:"address"`
	Sealed    []byte       `db:"sealed_key"`
	CreatedAt time.Time    `db:"created_at"`
}

var chainKeys = newRecord[ChainKey]("chain_keys")

// PutChainKeyIfAbsent adds an account unless there is one, and returns the one that is there afterwards.
func PutChainKeyIfAbsent(ctx context.Context, tx *Tx, k ChainKey) (ChainKey, error) {
	if _, err := chainKeys.insertOr(ctx, tx, k, "ON CONFLICT (role, number) DO NOTHING"); err != nil {
		return ChainKey{}, err
	}
	return chainKeys.one(ctx, tx, "WHERE role = $1 AND number = $2", k.Role, k.Number)
}

// ChainKeys returns all accounts, those of a role together, by number.
func ChainKeys(ctx context.Context, q Querier) ([]ChainKey, error) {
	return chainKeys.all(ctx, q, "ORDER BY role, number")
}

// ErrExported says that the key of a wallet was given out before.
var ErrExported = errors.New("store: the key is already exported")

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

// ChainCursor is how far a reader has read the chain.
type ChainCursor struct {
	Genesis  toll.Hash `db:"genesis"`
	Block    int64     `db:"block"`
	Hash     toll.Hash `db:"block_hash"` // of the block
	Base     int64     `db:"base"`       // a block so far below that a chain without it is another one
	BaseHash toll.Hash `db:"base_hash"`
}

var (
	chainCursors    = newRecord[ChainCursor]("chain_cursor")
	ReadChainCursor = by[string](chainCursors, "reader = $1")
)

func PutChainCursor(ctx context.Context, tx *Tx, reader string, c ChainCursor) error {
	return done(tx.Exec(ctx, `INSERT INTO chain_cursor (reader, genesis, block, block_hash, base, base_hash) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (reader) DO UPDATE SET genesis = excluded.genesis, block = excluded.block, block_hash = excluded.block_hash,
			base = excluded.base, base_hash = excluded.base_hash`,
		reader, c.Genesis[:], c.Block, c.Hash[:], c.Base, c.BaseHash[:]))
}
