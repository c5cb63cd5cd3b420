package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

const (
	sqlCommitmentsAdd = `INSERT INTO journal_commitments (prefix, pos) SELECT * FROM unnest($1::bigint[], $2::bigint[])`
	sqlChunksAdd      = `INSERT INTO journal_accounts (account_id, chunk, positions) SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])
		ON CONFLICT (account_id, chunk) DO UPDATE SET positions = journal_accounts.positions || excluded.positions`
	// || makes text on SQLite.
	sqlChunkAdd = `INSERT INTO journal_accounts (account_id, chunk, positions) VALUES ($1, $2, $3)
		ON CONFLICT (account_id, chunk) DO UPDATE SET positions = CAST(journal_accounts.positions || excluded.positions AS BLOB)`
)

func chunkOf(seq int64) (chunk int64, place int) {
	return (seq - 1) / chunkEntries, int((seq - 1) % chunkEntries)
}

// positionsOf are positions of consecutive entries of an account, which share a chunk.
type positionsOf struct {
	account   [16]byte
	chunk     int64
	positions []byte
}

// IndexJournal adds the next rows of the journal to the indexes by commitment and by account. It is called once for each row, in
// order, in the transaction that moves the cursor [Follower].
func IndexJournal(ctx context.Context, tx *Tx, rows []JournalRow) error {
	type key struct {
		account [16]byte
		chunk   int64
	}
	byKey := make(map[key]*positionsOf, len(rows))
	parts := make([]*positionsOf, 0, len(rows))
	prefixes := make([][2]int64, len(rows))
	for i := range rows {
		r := &rows[i]
		chunk, _ := chunkOf(r.Seq)
		k := key{r.Account, chunk}
		p := byKey[k]
		if p == nil {
			p = &positionsOf{account: r.Account, chunk: chunk}
			byKey[k] = p
			parts = append(parts, p)
		}
		p.positions = AppendPosition(p.positions, r.Pos)
		prefixes[i] = [2]int64{CommitmentPrefix(r.Commitment), r.Pos}
	}
	slices.SortFunc(prefixes, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	slices.SortFunc(parts, func(a, b *positionsOf) int {
		return cmp.Or(bytes.Compare(a.account[:], b.account[:]), cmp.Compare(a.chunk, b.chunk))
	})
	if tx.Engine() == Postgres {
		return indexPostgres(ctx, tx, prefixes, parts)
	}
	for part := range chunks(prefixes) {
		args := make([]any, 0, 2*len(part))
		for _, p := range part {
			args = append(args, p[0], p[1])
		}
		if _, err := tx.Exec(ctx, "INSERT INTO journal_commitments (prefix, pos) VALUES "+tuples(len(part), 2), args...); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if _, err := tx.Exec(ctx, sqlChunkAdd, p.account[:], p.chunk, p.positions); err != nil {
			return err
		}
	}
	return nil
}

func indexPostgres(ctx context.Context, tx *Tx, prefixes [][2]int64, parts []*positionsOf) error {
	keys, at := make([]int64, len(prefixes)), make([]int64, len(prefixes))
	for i, p := range prefixes {
		keys[i], at[i] = p[0], p[1]
	}
	accounts, numbers, positions := make([][]byte, len(parts)), make([]int64, len(parts)), make([][]byte, len(parts))
	for i, p := range parts {
		accounts[i], numbers[i], positions[i] = p.account[:], p.chunk, p.positions
	}
	return tx.Run(ctx,
		Stmt{SQL: sqlCommitmentsAdd, Args: []any{keys, at}},
		Stmt{SQL: sqlChunksAdd, Args: []any{accounts, numbers, positions}})
}

const (
	sqlChunks = `SELECT chunk, positions FROM journal_accounts WHERE account_id = $1 AND chunk >= $2 ORDER BY chunk LIMIT $3`
	// The rows behind the cursor are taken first, under a limit that is a parameter: PostgreSQL expects few of them, and uses the
	// key also in a plan that it made when the table was small.
	sqlBehind      = `FROM (SELECT ` + JournalColumns + ` FROM journal WHERE pos > $1 ORDER BY pos LIMIT $2) t `
	sqlAccountTail = `SELECT ` + JournalColumns + ` ` + sqlBehind + `WHERE account_id = $3 AND seq >= $4 ORDER BY pos LIMIT $5`
	sqlPositions   = `SELECT pos FROM journal_commitments WHERE prefix = $1`
	sqlTail        = `SELECT ` + JournalColumns + ` ` + sqlBehind + `WHERE commitment = $3 ORDER BY pos LIMIT 1`
)

// allBehind is more rows than can be behind the cursor.
const allBehind = int64(1) << 40

// JournalOf returns the entries of an account from one on, at most limit, in order. It asks the index, and then the rows that are not
// in it yet.
func JournalOf(ctx context.Context, q Querier, account [16]byte, seq int64, limit int) ([]JournalRow, error) {
	seq = max(seq, 1)
	// The cursor is read first: what the follower adds meanwhile is in both, and what is behind it is in the index.
	cursor, err := JournalCursor(ctx, q, Follower)
	if err != nil {
		return nil, err
	}
	chunk, skip := chunkOf(seq)
	var positions []int64
	_, err = All(ctx, q, func(scan func(dest ...any) error) (n int64, err error) {
		var packed []byte
		err = scan(&n, &packed)
		for i := skip; err == nil && len(positions) < limit; i++ {
			pos, ok := PositionAt(packed, i)
			if !ok {
				break
			}
			positions = append(positions, pos)
		}
		skip = 0
		return n, err
	}, sqlChunks, account[:], chunk, int64(limit)/chunkEntries+2)
	if err != nil {
		return nil, err
	}
	rows, err := JournalAt(ctx, q, positions...)
	if err != nil || len(rows) == limit {
		return rows, err
	}
	if len(rows) > 0 {
		seq = rows[len(rows)-1].Seq + 1
	}
	tail, err := All(ctx, q, ScanJournal, sqlAccountTail, cursor, allBehind, account[:], seq, int64(limit-len(rows)))
	return append(rows, tail...), err
}

// JournalEntry returns an entry of an account, or [ErrNotFound].
func JournalEntry(ctx context.Context, q Querier, account [16]byte, seq int64) (JournalRow, error) {
	rows, err := JournalOf(ctx, q, account, seq, 1)
	switch {
	case err != nil:
		return JournalRow{}, err
	case len(rows) == 0 || rows[0].Seq != seq:
		return JournalRow{}, ErrNotFound
	}
	return rows[0], nil
}

const sqlLotOf = `SELECT lot_id FROM lots WHERE account_id = $1 AND ref = $2`

// GrantedAt returns the time at which an order of an account got its credits. The error is [ErrNotFound] for an order without credits,
// and while the entry is not indexed.
func GrantedAt(ctx context.Context, q Querier, account [16]byte, order string) (time.Time, error) {
	seq, err := value[int64](ctx, q, sqlLotOf, account[:], order)
	if err != nil {
		return time.Time{}, err
	}
	row, err := JournalEntry(ctx, q, account, seq)
	if err != nil {
		return time.Time{}, err
	}
	return FromMicros(row.At), nil
}

// JournalByCommitment returns the entry with a commitment, or [ErrNotFound].
func JournalByCommitment(ctx context.Context, q Querier, commitment toll.Hash) (JournalRow, error) {
	cursor, err := JournalCursor(ctx, q, Follower)
	if err != nil {
		return JournalRow{}, err
	}
	positions, err := values[int64](ctx, q, sqlPositions, CommitmentPrefix(commitment))
	if err != nil {
		return JournalRow{}, err
	}
	rows, err := JournalAt(ctx, q, positions...)
	if err != nil {
		return JournalRow{}, err
	}
	for _, r := range rows {
		if r.Commitment == commitment {
			return r, nil
		}
	}
	return ScanJournal(q.QueryRow(ctx, sqlTail, cursor, allBehind, commitment[:]).Scan)
}

// EachPosition calls f with the positions of the entries of an account from one on that are in the index, in order.
func EachPosition(ctx context.Context, q Querier, account [16]byte, seq int64, f func(pos int64)) error {
	chunk, skip := chunkOf(seq)
	return eachRow(ctx, q, `SELECT positions FROM journal_accounts WHERE account_id = $1 AND chunk >= $2 ORDER BY chunk`,
		[]any{account[:], chunk}, func(scan func(dest ...any) error) (packed []byte, err error) { return packed, scan(&packed) },
		func(packed []byte) error {
			for i := skip; ; i++ {
				pos, ok := PositionAt(packed, i)
				if !ok {
					break
				}
				f(pos)
			}
			skip = 0
			return nil
		})
}
