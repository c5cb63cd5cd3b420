package cache

import (
	"crypto/sha256"
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// maxSumText bounds the texts of which [Sums] remembers hashes, in bytes.
const maxSumText = 2 << 10

// Sums remembers the SHA-256 of texts that come again and again, such as credentials: finding one
// costs a fifth of hashing it. A slot keeps the text that was put last of those that share it. Put
// only texts that are proven good, so that strangers drive out nothing. Safe for concurrent use.
type Sums struct {
	seed  maphash.Seed
	slots []atomic.Pointer[sumOf]
}

type sumOf struct {
	mark uint64 // seeded hash: texts are compared only when they are almost certainly equal, which tells nobody how far they are
	text string
	sum  [sha256.Size]byte
}

// NewSums returns an empty memory of at most so many texts, each of at most 2 KiB.
func NewSums(slots int) *Sums {
	return &Sums{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[sumOf], slots)}
}

// Get returns the hash of a text that was put.
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

// Put keeps the hash that belongs to a text. Longer texts than 2 KiB are passed over.
func (s *Sums) Put(text string, sum [sha256.Size]byte) {
	if len(text) > maxSumText {
		return
	}
	mark := maphash.String(s.seed, text)
	s.slots[mark%uint64(len(s.slots))].Store(&sumOf{mark, strings.Clone(text), sum})
}
