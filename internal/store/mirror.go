package store

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
)

type MirrorPeriod struct {
	Period  int64     `db:"period,key"` // number since 1970
	Root    toll.Hash `db:"root"`
	Leaves  int64     `db:"leaves"`
	Credits string    `db:"credits"`   // sum of the leaves, decimal
	State   string    `db:"state,set"` // "closed", "sent", "anchored" or "final"

	// The transaction that anchors the root.
	TxHash    toll.Hash `db:"tx_hash,null,set"`
	Raw       []byte    `db:"raw,null,set"`
	Nonce     int64     `db:"nonce,set"`
	SentBlock int64     `db:"sent_block,set"` // head of the chain when it was sent
	Block     int64     `db:"block,set"`      // of the event; 0 while it is not anchored
	BlockHash toll.Hash `db:"block_hash,null,set"`
}

var (
	mirrorPeriods        = newRecord[*MirrorPeriod]("mirror_periods")
	UpdateMirrorPeriod   = mirrorPeriods.update
	MirrorPeriodByNumber = by[int64](mirrorPeriods, "period = $1")
	// OpenMirrorPeriods returns the periods that are not final, the oldest first, at most limit.
	OpenMirrorPeriods = listBy[int64](mirrorPeriods, "state <> 'final' ORDER BY period LIMIT $1")
)

// MirrorLeaf is a burn in a period.
type MirrorLeaf struct {
	Period int64
	toll.BurnFields
}

// InsertMirrorPeriod adds a period with its leaves, by index, and the levels of the tree above them. The error is [IsUnique]
// when the period is closed already, or a burn is in another one.
func InsertMirrorPeriod(ctx context.Context, tx *Tx, p *MirrorPeriod, leaves []toll.BurnFields, above [][]toll.Hash) error {
	err := mirrorPeriods.insert(ctx, tx, p)
	for i := range leaves {
		if err != nil {
			return err
		}
		l := &leaves[i]
		_, err = tx.Exec(ctx, `INSERT INTO mirror_leaves (period, leaf_index, commitment, plan_id, holder, request, credits)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			p.Period, l.Index, l.Commitment[:], string(l.PlanID), l.Holder.Lower(), l.RequestHash[:], int64(l.Credits))
	}
	for level, nodes := range above {
		for i, hash := range nodes {
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO mirror_nodes (period, level, node, hash) VALUES ($1, $2, $3, $4)",
				p.Period, int64(level+1), int64(i), hash[:])
		}
	}
	return err
}

// MirroredBurns returns which of some commitments are in a period.
func MirroredBurns(ctx context.Context, q Querier, commitments []toll.Hash) (map[toll.Hash]bool, error) {
	known := map[toll.Hash]bool{}
	for part := range chunks(commitments) {
		args := Mapped(part, func(h toll.Hash) any { return h[:] })
		found, err := values[[]byte](ctx, q, "SELECT commitment FROM mirror_leaves WHERE commitment IN "+tuples(1, len(part)), args...)
		if err != nil {
			return nil, err
		}
		for _, b := range found {
			known[toll.Hash(b)] = true
		}
	}
	return known, nil
}

// LastMirrorPeriod returns the newest closed period, or [ErrNotFound].
func LastMirrorPeriod(ctx context.Context, q Querier) (*MirrorPeriod, error) {
	return mirrorPeriods.one(ctx, q, "ORDER BY period DESC LIMIT 1")
}

// MirrorLeafByCommitment returns the leaf of a burn, or [ErrNotFound].
func MirrorLeafByCommitment(ctx context.Context, q Querier, commitment toll.Hash) (*MirrorLeaf, error) {
	return scanMirrorLeaf(q.QueryRow(ctx, "SELECT "+leafColumns+" FROM mirror_leaves WHERE commitment = $1", commitment[:]).Scan)
}

// MirrorTransaction returns the transaction that put a burn onto the chain, nil while it is not there.
func MirrorTransaction(ctx context.Context, q Querier, commitment toll.Hash) (*toll.Hash, error) {
	var tx []byte
	err := q.QueryRow(ctx, `SELECT p.tx_hash FROM mirror_leaves l JOIN mirror_periods p ON p.period = l.period
		WHERE l.commitment = $1 AND p.state IN ('anchored', 'final')`, commitment[:]).Scan(&tx)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	h := new(toll.Hash)
	copy(h[:], tx)
	return h, err
}

// MirrorLeafAt returns a leaf of a period by its index, or [ErrNotFound].
func MirrorLeafAt(ctx context.Context, q Querier, period, index int64) (*MirrorLeaf, error) {
	return scanMirrorLeaf(q.QueryRow(ctx, "SELECT "+leafColumns+" FROM mirror_leaves WHERE period = $1 AND leaf_index = $2", period, index).Scan)
}

// MirrorNode returns a node of the tree of a period, at least one level above the leaves, or [ErrNotFound].
func MirrorNode(ctx context.Context, q Querier, period, level, node int64) (h toll.Hash, err error) {
	var hash []byte
	err = q.QueryRow(ctx, "SELECT hash FROM mirror_nodes WHERE period = $1 AND level = $2 AND node = $3", period, level, node).Scan(&hash)
	copy(h[:], hash)
	return h, err
}

const leafColumns = "period, leaf_index, commitment, plan_id, holder, request, credits"

func scanMirrorLeaf(scan func(dest ...any) error) (*MirrorLeaf, error) {
	var l MirrorLeaf
	var plan, holder string
	var commitment, request []byte
	if err := scan(&l.Period, &l.Index, &commitment, &plan, &holder, &request, &l.Credits); err != nil {
		return nil, err
	}
	copy(l.Commitment[:], commitment)
	copy(l.RequestHash[:], request)
	l.PlanID = toll.PlanID(plan)
	var err error
	l.Holder, err = toll.ParseAddress(holder)
	return &l, err
}
