package cache

import (
	"crypto/sha256"
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// maxSumText bounds the texts in [Sums], in bytes.
const maxSumText = 2 << 10

// Sums caches the SHA-256 of frequent texts, such as credentials: a lookup takes a fifth of the time of hashing. Texts that share
// a slot replace each other. Put only verified texts, so that strangers cannot evict entries. It is safe for concurrent use.
type Sums struct {
	seed  maphash.Seed
	slots []atomic.Pointer[sumOf]
}

type sumOf struct {
	mark uint64 // seeded hash: only texts with equal marks are compared, so the time reveals no common prefix
	text string
	sum  [sha256.Size]byte
}

// NewSums returns an empty cache of slots texts, each of at most 2 KiB.
func NewSums(slots int) *Sums {
	return &Sums{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[sumOf], slots)}
}

// Get returns the cached hash of a text.
func (s *Sums) Get(text string) (sum [sha256.Size]byte, ok bool) {
	if len(text) > maxSumText {
		return sum, false
	}
	mark := maphash.String(s.seed, text)
	e := s.slots[mark%uint64(len(s.slots))].Load()
	if e == nil || e.mark != mark || e.text != text {
		return sum, false
	}
	return e.sum, true
}

// Put caches the hash of a text of at most 2 KiB.
func (s *Sums) Put(text string, sum [sha256.Size]byte) {
	if len(text) > maxSumText {
		return
	}
	mark := maphash.String(s.seed, text)
	s.slots[mark%uint64(len(s.slots))].Store(&sumOf{mark, strings.Clone(text), sum})
}
