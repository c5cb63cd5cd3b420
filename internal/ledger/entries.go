package ledger

import (
	"encoding/binary"

	"github.com/tollhq/toll"
)

const entryColumns = `account_id, seq, kind, amount, balance_after, ref, at, commitment`

const (
	sqlEntryAdd   = `INSERT INTO entries (` + entryColumns + `, tx) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	sqlEntriesAdd = `INSERT INTO entries (` + entryColumns + `, tx)
		SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bytea[],
			$9::bigint[])`
	sqlEntry        = `SELECT ` + entryColumns + ` FROM entries WHERE account_id = $1 AND seq = $2`
	sqlEntryByTx    = `SELECT ` + entryColumns + ` FROM entries WHERE tx = $1 AND commitment = $2`
	sqlEntriesAfter = `SELECT ` + entryColumns + ` FROM entries WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`
)

func (e *Entry) row() []any {
	return []any{
		e.Account[:], e.Seq, int64(e.Kind), int64(e.Amount), int64(e.BalanceAfter), e.Ref, e.AtMicros, e.Commitment[:],
		txPrefix(e.Commitment),
	}
}

func scanEntry(scan scanFunc, e *Entry) error {
	var account, commitment []byte
	if err := scan(&account, &e.Seq, &e.Kind, &e.Amount, &e.BalanceAfter, &e.Ref, &e.AtMicros, &commitment); err != nil {
		return err
	}
	copy(e.Account[:], account)
	copy(e.Commitment[:], commitment)
	return nil
}

// txPrefix is what the look-up by transaction is indexed by.
func txPrefix(commitment toll.Hash) int64 { return int64(binary.BigEndian.Uint64(commitment[:8])) }
