package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tollhq/toll"
)

// JournalRow is an entry of the ledger in the journal, which has the entries of all accounts in the order of their commits. Rows
// are only ever added, and thinned long after.
type JournalRow struct {
	Pos          int64 // 1, 2, 3 ... without a gap
	Account      [16]byte
	Seq          int64 // within the account: 1, 2, 3 ... without a gap
	Kind         int64
	Amount       toll.Credits
	BalanceAfter toll.Credits
	At           int64 // microseconds UTC, never decreasing within an account
	Commitment   toll.Hash
	Ref          string // request id, order id, or the order of the lot
	Low          bool   // the entry took the balance below the low mark of the account
	UsedUp       bool   // the burn took the last credits that its permission may burn
	Burn         *Burn  // nil unless the entry is a burn, and of one that is thin

	Labels toll.UsageLabels // of a burn, also of a thin one
}

// Thin reports whether the entry is a burn of which the request was removed: see [ThinJournal].
func (r *JournalRow) Thin() bool { return r.Kind == kindBurn && r.Burn == nil }

// Burn is what the journal keeps of a settled request.
type Burn struct {
	Content    [32]byte // hash of what was settled
	Permission toll.Hash
	Agent      toll.AgentID
	Resource   string
	Held       toll.Credits // what the hold had set aside
	HoldEndsAt int64        // microseconds UTC; 0: there was no hold
	CreatedAt  int64        // microseconds UTC
	Previous   int64        // seq of the burn before under the same permission; 0: it is the first
	Answer     []byte       // stored answer, as the facilitator wrote it
}

// kindBurn is the kind of a burn. It is permanent: see testdata/permanent.md.
const kindBurn = 2

// Bits of the flags of a body.
const (
	flagLow    = 1 << iota // see [JournalRow].Low
	flagUsedUp             // see [JournalRow].UsedUp
	flagLabels             // labels follow the flags
)

// The first byte of a body is its version. A thin one has flags and labels, and nothing else of the request.
const (
	bodyVersion = 1
	thinVersion = 2
)

var errBody = errors.New("store: the body of a journal row cannot be read")

// body packs what has no column: version, flags, labels, and of a burn two hashes, numbers as varints, and texts with their lengths.
// Times stand as distances, which are short.
func (r *JournalRow) body() []byte {
	var flags byte
	if r.Low {
		flags |= flagLow
	}
	if r.UsedUp {
		flags |= flagUsedUp
	}
	u := r.Burn
	version := byte(bodyVersion)
	if r.Thin() {
		version = thinVersion
	}
	size := 2
	if u != nil {
		size += 64 + 32 + len(u.Agent) + len(u.Resource) + len(u.Answer)
	}
	var labels []byte
	if r.Labels != (toll.UsageLabels{}) {
		flags |= flagLabels
		for _, text := range []string{r.Labels.Upstream, r.Labels.Route, r.Labels.Model} {
			labels = append(append(labels, byte(len(text))), text...) // at most [toll.MaxLabelBytes]
		}
	}
	b := append(append(make([]byte, 0, size+len(labels)), version, flags), labels...)
	if u == nil {
		return b
	}
	b = append(b, u.Content[:]...)
	b = append(b, u.Permission[:]...)
	b = binary.AppendUvarint(b, uint64(u.Held))
	b = binary.AppendVarint(b, r.At-u.CreatedAt)
	end := int64(0) // there was no hold
	if u.HoldEndsAt != 0 {
		end = u.HoldEndsAt - u.CreatedAt
		if end >= 0 {
			end++ // so that a hold that ended at once is one
		}
	}
	b = binary.AppendVarint(b, end)
	b = binary.AppendVarint(b, r.Seq-u.Previous)
	for _, text := range []string{string(u.Agent), u.Resource} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return append(b, u.Answer...)
}

func (r *JournalRow) unpack(b []byte) error {
	if len(b) < 2 || b[0] != bodyVersion && b[0] != thinVersion {
		return errBody
	}
	thin := b[0] == thinVersion
	flags := b[1]
	r.Low, r.UsedUp, b = flags&flagLow != 0, flags&flagUsedUp != 0, b[2:]
	if flags&flagLabels != 0 {
		for _, label := range []*string{&r.Labels.Upstream, &r.Labels.Route, &r.Labels.Model} {
			if len(b) == 0 || len(b) <= int(b[0]) {
				return errBody
			}
			*label, b = string(b[1:1+b[0]]), b[1+b[0]:]
		}
	}
	if thin && (r.Kind != kindBurn || len(b) > 0) {
		return errBody
	}
	if thin || r.Kind != kindBurn {
		return nil
	}
	u := &Burn{}
	if len(b) < len(u.Content)+len(u.Permission) {
		return errBody
	}
	b = b[copy(u.Content[:], b):]
	b = b[copy(u.Permission[:], b):]
	ok := true
	unsigned := func() (v uint64) {
		n := 0
		if v, n = binary.Uvarint(b); n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	signed := func() (v int64) {
		n := 0
		if v, n = binary.Varint(b); n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	text := func() string {
		n := unsigned()
		if n > uint64(len(b)) {
			ok = false
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	u.Held = toll.Credits(unsigned())
	u.CreatedAt = r.At - signed()
	if end := signed(); end > 0 {
		u.HoldEndsAt = u.CreatedAt + end - 1
	} else if end < 0 {
		u.HoldEndsAt = u.CreatedAt + end
	}
	u.Previous = r.Seq - signed()
	u.Agent, u.Resource = toll.AgentID(text()), text()
	if !ok {
		return errBody
	}
	u.Answer = bytes.Clone(b)
	r.Burn = u
	return nil
}

// A packed ref begins with refText, which the text follows, or with refRequest: an id that this service issued for the account, less
// its prefix and the account inside it.
const (
	refText    = 0
	refRequest = 1

	requestPrefix = "req_"
	requestBytes  = 40 // UUIDv7 of 16 bytes, account of 16, MAC of 8
)

var requestEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// packRef returns the stored form of a ref. Equal refs of an account have equal forms.
func packRef(ref string, account [16]byte) []byte {
	if len(ref) == len(requestPrefix)+requestBytes*8/5 && ref[:len(requestPrefix)] == requestPrefix {
		var raw [requestBytes]byte
		var text [requestBytes * 8 / 5]byte
		n, err := requestEncoding.Decode(raw[:], []byte(ref[len(requestPrefix):]))
		requestEncoding.Encode(text[:], raw[:])
		if err == nil && n == requestBytes && [16]byte(raw[16:32]) == account && string(text[:]) == ref[len(requestPrefix):] {
			return append(append([]byte{refRequest}, raw[:16]...), raw[32:]...)
		}
	}
	return append([]byte{refText}, ref...)
}

func unpackRef(b []byte, account [16]byte) (string, error) {
	switch {
	case len(b) > 0 && b[0] == refText:
		return string(b[1:]), nil
	case len(b) == 1+requestBytes-16 && b[0] == refRequest:
		raw := slices.Concat(b[1:17], account[:], b[17:])
		return requestPrefix + requestEncoding.EncodeToString(raw), nil
	}
	return "", errors.New("store: the ref of a journal row cannot be read")
}

const JournalColumns = `pos, seq, kind, amount, balance_after, at, account_id, commitment, ref, body`

// Statements that add rows. On PostgreSQL the positions follow the last one, so that a transaction runs [JournalLock] before, and
// nothing but the commit after it.
const (
	SQLJournalAdd = `INSERT INTO journal (seq, kind, amount, balance_after, at, account_id, commitment, ref, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	SQLJournalAddMany = `INSERT INTO journal (` + JournalColumns + `)
		SELECT b.pos + u.n, u.seq, u.kind, u.amount, u.balance_after, u.at, u.account_id, u.commitment, u.ref, u.body
		FROM (SELECT COALESCE(MAX(pos), 0) AS pos FROM journal) b, unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
			$5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[]) WITH ORDINALITY
			AS u(seq, kind, amount, balance_after, at, account_id, commitment, ref, body, n)`
)

// sqlJournalLock takes the advisory lock under which positions are given ("jrnl" in ASCII).
const sqlJournalLock = "SELECT pg_advisory_xact_lock(1785884268)"

// JournalLock takes the lock under which positions are given, until the end of the transaction. It is the last lock of a transaction,
// and goes to PostgreSQL in one trip with the rows and the commit: every writer waits for it.
var JournalLock = Stmt{SQL: sqlJournalLock}

// Values returns the columns in the order of [SQLJournalAdd].
func (r *JournalRow) Values() []any {
	return []any{
		r.Seq, r.Kind, int64(r.Amount), int64(r.BalanceAfter), r.At, r.Account[:], r.Commitment[:], packRef(r.Ref, r.Account), r.body(),
	}
}

// ScanJournal reads [JournalColumns].
func ScanJournal(scan func(dest ...any) error) (r JournalRow, err error) {
	var account, commitment, ref, body []byte
	if err = scan(&r.Pos, &r.Seq, &r.Kind, &r.Amount, &r.BalanceAfter, &r.At, &account, &commitment, &ref, &body); err != nil {
		return r, err
	}
	copy(r.Account[:], account)
	copy(r.Commitment[:], commitment)
	if r.Ref, err = unpackRef(ref, r.Account); err == nil {
		err = r.unpack(body)
	}
	if err != nil {
		err = fmt.Errorf("position %d: %w", r.Pos, err)
	}
	return r, err
}

const sqlJournalThin = `UPDATE journal SET body = $3 WHERE account_id = $1 AND pos = $2`

// ThinJournal returns the statements that remove the requests of burns. The entries stay, with their commitments and the ids of
// their requests, so that chains, proofs and "one burn for each request" hold as before.
func ThinJournal(burns []JournalRow) []Stmt {
	out := make([]Stmt, len(burns))
	for i, r := range burns {
		r.Burn = nil
		out[i] = Stmt{SQL: sqlJournalThin, Args: []any{r.Account[:], r.Pos, r.body()}}
	}
	return out
}

// JournalAfter returns the rows behind a position, at most limit, in order.
func JournalAfter(ctx context.Context, q Querier, pos int64, limit int) ([]JournalRow, error) {
	return All(ctx, q, ScanJournal, "SELECT "+JournalColumns+" FROM journal WHERE pos > $1 ORDER BY pos LIMIT $2", pos, int64(limit))
}

// JournalBetween returns the rows behind a position up to another one, in order.
func JournalBetween(ctx context.Context, q Querier, after, last int64) ([]JournalRow, error) {
	return All(ctx, q, ScanJournal, "SELECT "+JournalColumns+" FROM journal WHERE pos > $1 AND pos <= $2 ORDER BY pos", after, last)
}

// JournalAt returns the rows at positions, by position. Positions without a row are not in it.
func JournalAt(ctx context.Context, q Querier, positions ...int64) ([]JournalRow, error) {
	var out []JournalRow
	for args := range lists(positions) {
		rows, err := All(ctx, q, ScanJournal, "SELECT "+JournalColumns+" FROM journal WHERE pos IN "+tuples(1, len(args)), args...)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	slices.SortFunc(out, func(a, b JournalRow) int { return cmp.Compare(a.Pos, b.Pos) })
	return out, nil
}

// lists cuts a list into arguments of IN. Few lengths occur, so that few statements are prepared: the last part is filled up with its
// last element.
func lists[T any](all []T) func(yield func(args []any) bool) {
	return func(yield func([]any) bool) {
		for len(all) > 0 {
			size := 1
			for _, s := range []int{8, 64, 512} {
				if size < len(all) {
					size = s
				}
			}
			args := make([]any, size)
			for i := range args {
				args[i] = all[min(i, len(all)-1)]
			}
			if all = all[min(size, len(all)):]; !yield(args) {
				return
			}
		}
	}
}

// BurnOf returns the burn of a request, or [ErrNotFound].
func BurnOf(ctx context.Context, q Querier, account [16]byte, request string) (JournalRow, error) {
	return ScanJournal(q.QueryRow(ctx, SQLBurn, packRef(request, account), account[:]).Scan)
}

// SQLBurn reads the burn of a request by [RefOf] its id and the account.
const SQLBurn = "SELECT " + JournalColumns + " FROM journal WHERE ref = $1 AND account_id = $2 AND kind = 2"

// RefOf returns the stored form of a ref of an account.
func RefOf(ref string, account [16]byte) []byte { return packRef(ref, account) }

// Follower is the name of the cursor behind which the late indexes end.
const Follower = "follower"

// JournalCursor returns the position up to which a reader of the journal is done.
var JournalCursor = valueBy[int64, string]("SELECT pos FROM journal_cursors WHERE name = $1")

// LockJournalCursor is [JournalCursor] in the transaction that moves the cursor: nobody else moves it before its end.
func LockJournalCursor(ctx context.Context, tx *Tx, name string) (int64, error) {
	return value[int64](ctx, tx, "SELECT pos FROM journal_cursors WHERE name = $1"+tx.ForUpdate(), name)
}

// MoveJournalCursor says that a reader is done up to a position.
var MoveJournalCursor = runs2[string, int64](done, "UPDATE journal_cursors SET pos = $2 WHERE name = $1")

// JournalLength returns the position of the last row, 0 when there is none.
func JournalLength(ctx context.Context, q Querier) (int64, error) {
	return value[int64](ctx, q, "SELECT COALESCE(MAX(pos), 0) FROM journal")
}

// chunkEntries is how many entries of an account share a row of journal_accounts, positionBytes what each takes in it.
const (
	chunkEntries  = 32
	positionBytes = 6
)

// AppendPosition appends the packed form of a position.
func AppendPosition(b []byte, pos int64) []byte {
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], uint64(pos))
	return append(b, buf[8-positionBytes:]...)
}

// PositionAt returns the packed position with this number, from 0; ok is false when there are fewer.
func PositionAt(b []byte, n int) (pos int64, ok bool) {
	if n < 0 || (n+1)*positionBytes > len(b) {
		return 0, false
	}
	var buf [8]byte
	copy(buf[8-positionBytes:], b[n*positionBytes:(n+1)*positionBytes])
	return int64(binary.BigEndian.Uint64(buf[:])), true
}

// CommitmentPrefix is what commitments are indexed by: their first 8 bytes.
func CommitmentPrefix(commitment toll.Hash) int64 {
	return int64(binary.BigEndian.Uint64(commitment[:8]))
}
