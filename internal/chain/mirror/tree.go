// Package mirror publishes burned credits: one Merkle root for a period goes onto the chain, and whoever has a receipt can
// check it there without asking the service.
package mirror

import (
	"bytes"

	"github.com/tollhq/toll"
)

// Root returns the root of the tree over leaves: a parent is the Keccak-256 hash of its two children in ascending order of
// bytes, and a node without a sibling moves up as it is. No leaves have the zero hash.
func Root(leaves []toll.Hash) toll.Hash {
	if len(leaves) == 0 {
		return toll.Hash{}
	}
	level := leaves
	for len(level) > 1 {
		level = up(level)
	}
	return level[0]
}

// Proof returns the siblings on the way from leaf i, 0 <= i < len(leaves), to the root.
func Proof(leaves []toll.Hash, i int) []toll.Hash {
	proof := []toll.Hash{}
	for level := leaves; len(level) > 1; level, i = up(level), i/2 {
		if sibling := i ^ 1; sibling < len(level) {
			proof = append(proof, level[sibling])
		}
	}
	return proof
}

// Leads reports whether proof leads from leaf to root.
func Leads(root, leaf toll.Hash, proof []toll.Hash) bool {
	for _, sibling := range proof {
		leaf = parent(leaf, sibling)
	}
	return leaf == root
}

func up(level []toll.Hash) []toll.Hash {
	next := make([]toll.Hash, 0, (len(level)+1)/2)
	for i := 0; i+1 < len(level); i += 2 {
		next = append(next, parent(level[i], level[i+1]))
	}
	if len(level)%2 == 1 {
		next = append(next, level[len(level)-1])
	}
	return next
}

func parent(a, b toll.Hash) toll.Hash {
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return toll.Hash(toll.Keccak256(append(a[:], b[:]...)))
}
