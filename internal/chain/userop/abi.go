package userop

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// part is one value of the contract ABI. A dynamic one stands in the tail of the tuple around it, behind an offset in the
// head (Contract ABI Specification, "Formal Specification of the Encoding").
type part struct {
	dynamic bool
	data    []byte
}

// word is a static value: at most 32 bytes, as a number.
func word(b []byte) part { return part{data: common.LeftPadBytes(b, 32)} }

func address(a common.Address) part { return word(a[:]) }

// uint256 panics for a number outside of [0, 2^256).
func uint256(n *big.Int) part {
	if n.Sign() < 0 {
		panic("userop: the number is negative")
	}
	return part{data: n.FillBytes(make([]byte, 32))}
}

// tuple encodes values that stand beside each other.
func tuple(parts ...part) []byte {
	head := 0
	for _, p := range parts {
		if p.dynamic {
			head += 32
		} else {
			head += len(p.data)
		}
	}
	var out, tail []byte
	for _, p := range parts {
		if p.dynamic {
			out = append(out, length(head+len(tail))...)
			tail = append(tail, p.data...)
		} else {
			out = append(out, p.data...)
		}
	}
	return append(out, tail...)
}

// structure is a tuple with at least one dynamic member.
func structure(parts ...part) part { return part{true, tuple(parts...)} }

func array(parts ...part) part { return part{true, append(length(len(parts)), tuple(parts...)...)} }

func octets(b []byte) part {
	return part{true, append(length(len(b)), common.RightPadBytes(b, (len(b)+31)/32*32)...)}
}

func length(n int) []byte { return big.NewInt(int64(n)).FillBytes(make([]byte, 32)) }

// call encodes a call of a function, named by its signature.
func call(signature string, parts ...part) []byte {
	return append(selector(signature), tuple(parts...)...)
}

func selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4] }
