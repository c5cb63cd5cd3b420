package evm

import (
	"encoding/binary"
	"errors"
	"math/big"

	"github.com/tollhq/toll"
)

// Domain is an EIP-712 domain: a contract on a chain, with its own name and version.
type Domain struct {
	Name    string
	Version string
	ChainID *big.Int // in [0, 2^256)

	Contract toll.Address
}

// Separator returns the domain separator. It panics for a missing or out-of-range chain id.
func (d Domain) Separator() [32]byte {
	kind := toll.Keccak256([]byte("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"))
	name, version := toll.Keccak256([]byte(d.Name)), toll.Keccak256([]byte(d.Version))
	return hashed(kind[:], name[:], version[:], number(d.ChainID), d.Contract[:])
}

// Authorization allows anyone to submit one transfer of a token from From to To (EIP-3009, transferWithAuthorization).
type Authorization struct {
	From, To toll.Address
	Value    *big.Int // base units, in [0, 2^256)
	// ValidAfter and ValidBefore are Unix seconds, both exclusive, compared with the block time.
	ValidAfter, ValidBefore uint64
	Nonce                   [32]byte // random; a token takes each nonce of From once
}

const transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"

// Digest is the digest that From signs. It panics for a missing or out-of-range value or chain id.
func (a *Authorization) Digest(d Domain) [32]byte {
	kind, domain := toll.Keccak256([]byte(transferType)), d.Separator()
	inner := hashed(kind[:], a.From[:], a.To[:], number(a.Value), seconds(a.ValidAfter), seconds(a.ValidBefore), a.Nonce[:])
	return toll.Keccak256(append(append([]byte{0x19, 0x01}, domain[:]...), inner[:]...))
}

// Sign signs the authorization. It refuses another account, and a missing or out-of-range value or chain id.
func (a *Authorization) Sign(k *Key, d Domain) ([]byte, error) {
	switch {
	case a.From != k.address:
		return nil, errors.New("evm: the authorization and the key belong to different accounts")
	case !inRange(a.Value) || !inRange(d.ChainID):
		return nil, errors.New("evm: the value and the chain id must be in [0, 2^256)")
	}
	return k.Sign(a.Digest(d))
}

func inRange(n *big.Int) bool { return n != nil && n.Sign() >= 0 && n.BitLen() <= 256 }

// number encodes a word of the contract ABI.
func number(n *big.Int) []byte {
	if !inRange(n) {
		panic("evm: a number must be in [0, 2^256)")
	}
	return n.FillBytes(make([]byte, 32))
}

func seconds(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// hashed hashes words of at most 32 bytes.
func hashed(words ...[]byte) [32]byte {
	all := make([]byte, 32*len(words))
	for i, w := range words {
		copy(all[32*(i+1)-len(w):], w)
	}
	return toll.Keccak256(all)
}
