// Package mirror publishes burned credits: one Merkle root for a period goes onto the chain, and whoever has a receipt can
// check it there without asking the service.
package mirror

import "github.com/tollhq/toll"

// Levels returns the tree over leaves, from the leaves to the root: a parent is the Keccak-256 hash of its two children in
// ascending order of bytes, and a node without a sibling moves up as it is.
func Levels(leaves []toll.Hash) [][]toll.Hash {
	levels := [][]toll.Hash{leaves}
	for level := leaves; len(level) > 1; {
		level = up(level)
		levels = append(levels, level)
	}
	return levels
}

// Root returns the root of the tree over leaves; that of no leaves is the zero hash.
func Root(leaves []toll.Hash) toll.Hash {
	if len(leaves) == 0 {
		return toll.Hash{}
	}
	levels := Levels(leaves)
	return levels[len(levels)-1][0]
}

// Proof returns the siblings on the way from leaf i of n, 0 <= i < n, to the root. node reads the tree: level 0 are the leaves.
func Proof(n, i int64, node func(level, i int64) (toll.Hash, error)) ([]toll.Hash, error) {
	proof := []toll.Hash{}
	for level := int64(0); n > 1; level, n, i = level+1, (n+1)/2, i/2 {
		sibling := i ^ 1
		if sibling >= n {
			continue
		}
		h, err := node(level, sibling)
		if err != nil {
			return nil, err
		}
		proof = append(proof, h)
	}
	return proof, nil
}

func up(level []toll.Hash) []toll.Hash {
	next := make([]toll.Hash, 0, (len(level)+1)/2)
	for i := 0; i+1 < len(level); i += 2 {
		next = append(next, toll.MerkleParent(level[i], level[i+1]))
	}
	if len(level)%2 == 1 {
		next = append(next, level[len(level)-1])
	}
	return next
}
