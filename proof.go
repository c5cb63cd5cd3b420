package toll

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/big"
)

// ProofStatus is the state of the anchor of a burn on the chain.
type ProofStatus string

// Statuses of a proof.
const (
	ProofOpen     ProofStatus = "open"     // burned, and not on the chain yet
	ProofAnchored ProofStatus = "anchored" // the root is on the chain
	ProofFinal    ProofStatus = "final"    // and the chain can no longer undo it
)

// BurnFields are the values that a leaf of the mirror of burns commits to.
type BurnFields struct {
	Index       int64   `json:"index"`       // place of the leaf in its period, from 0
	Commitment  Hash    `json:"commitment"`  // the transaction of the receipt
	PlanID      PlanID  `json:"planId"`      //
	Holder      Address `json:"holder"`      // owner of the credits
	RequestHash Hash    `json:"requestHash"` // Keccak-256 of the agentRequestId
	Credits     Credits `json:"credits"`     // burned
}

// BurnProof proves that a burn is in the mirror on the chain. While Status is open, only Status is set.
type BurnProof struct {
	Status            ProofStatus `json:"status"`
	Period            int64       `json:"period" required:"false"` // number of the period since 1970: its start divided by its length
	Root              Hash        `json:"root" required:"false"`
	Index             int64       `json:"index" required:"false"`
	Leaf              Hash        `json:"leaf" required:"false"`
	Fields            BurnFields  `json:"fields" required:"false"`
	Proof             []Hash      `json:"proof" required:"false"`
	Network           string      `json:"network" required:"false"`  // CAIP-2
	Contract          Address     `json:"contract" required:"false"` // the CreditMirror
	AnchorTransaction Hash        `json:"anchorTransaction" required:"false"`
}

// Leaf returns keccak256(keccak256(abi.encode(uint64 index, bytes32 commitment, uint256 planId, address holder, bytes32
// requestHash, uint256 credits))). Hashing twice prevents an inner node from passing as a leaf.
func (f *BurnFields) Leaf() Hash {
	var b [6 * 32]byte
	binary.BigEndian.PutUint64(b[24:], uint64(f.Index))
	copy(b[32:], f.Commitment[:])
	if id, ok := new(big.Int).SetString(string(f.PlanID), 10); ok && id.Sign() > 0 && id.BitLen() <= 256 {
		id.FillBytes(b[64:96])
	}
	copy(b[96+12:], f.Holder[:])
	copy(b[128:], f.RequestHash[:])
	binary.BigEndian.PutUint64(b[184:], uint64(f.Credits))
	inner := Keccak256(b[:])
	return Hash(Keccak256(inner[:]))
}

// Check returns an error unless the fields hash to the leaf and the path leads from the leaf to the root. The caller must
// look up the root on the chain.
func (p *BurnProof) Check() error {
	switch {
	case p.Fields.Index != p.Index:
		return errors.New("the index of the proof does not match its fields")
	case p.Fields.Leaf() != p.Leaf:
		return errors.New("the leaf does not match the fields")
	}
	node := p.Leaf
	for _, sibling := range p.Proof {
		node = MerkleParent(node, sibling)
	}
	if node != p.Root {
		return errors.New("the proof does not lead to the root")
	}
	return nil
}

// MerkleParent returns the Keccak-256 hash of two nodes of the mirror, concatenated in ascending byte order.
func MerkleParent(a, b Hash) Hash {
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return Hash(Keccak256(append(a[:], b[:]...)))
}
