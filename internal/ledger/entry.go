package ledger

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tollhq/toll"
)

// Kind is the kind of an entry. The numbers are permanent: they are part of the canonical bytes.
type Kind int64

// Kinds of entries.
const (
	KindMint     Kind = 1
	KindBurn     Kind = 2
	KindExpire   Kind = 3
	KindTakeBack Kind = 4
	KindReturn   Kind = 5 // undoes a take back of the same order
)

// sign is +1 for kinds that add to the balance and -1 for kinds that take from it.
func (k Kind) sign() int64 {
	if k == KindMint || k == KindReturn {
		return 1
	}
	return -1
}

func (k Kind) String() string {
	return word(int64(k), "unknown", "mint", "burn", "expire", "take back", "return")
}

// word is that of a number from 1 on, or the one for any other number, which comes first.
func word(n int64, words ...string) string {
	if n < 1 || n >= int64(len(words)) {
		n = 0
	}
	return words[n]
}

// Entry is one row of the ledger. Entries are only ever added.
type Entry struct {
	Account      AccountID
	Seq          int64 // 1, 2, 3 ... without a gap
	Kind         Kind
	Amount       toll.Credits // >= 0
	BalanceAfter toll.Credits
	Ref          string // request id, order id, or the order of the lot
	AtMicros     int64  // microseconds UTC, never decreasing
	Commitment   toll.Hash

	low, usedUp bool // see [store.JournalRow]
}

// canonicalEntry is the version of the canonical bytes. They are permanent: see testdata/permanent.md.
const canonicalEntry = 1

// appendCanonical appends the bytes that the commitment covers: version (1 byte), account (16), seq (8), kind (1), amount (8),
// balance after (8), time in microseconds (8), length of ref (4), ref; all integers big-endian.
func (e *Entry) appendCanonical(b []byte) []byte {
	b = append(b, canonicalEntry)
	b = append(b, e.Account[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Seq))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Amount))
	b = binary.BigEndian.AppendUint64(b, uint64(e.BalanceAfter))
	b = binary.BigEndian.AppendUint64(b, uint64(e.AtMicros))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Ref)))
	return append(b, e.Ref...)
}

// commit returns SHA-256(previous commitment of the account, canonical bytes). The previous one of the first entry is 32 zero bytes.
func (e Entry) commit(previous toll.Hash) toll.Hash {
	var buf [256]byte // long refs are moved to the heap
	return sha256.Sum256(e.appendCanonical(append(buf[:0], previous[:]...)))
}
