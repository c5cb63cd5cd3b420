package evm

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/tollhq/toll"
)

// ErrSignature says that bytes are no signature: they are not 65, v is not 27 or 28, r or s is 0 or too large, s is in the upper
// half (EIP-2), or no key has made it.
var ErrSignature = errors.New("evm: not a signature of 65 bytes with low s and v 27 or 28")

// Recover returns the account whose key signed a digest, or [ErrSignature]. Of the forms that one signature can be written in
// it takes one, the one that contracts take.
func Recover(digest [32]byte, signature []byte) (toll.Address, error) {
	if len(signature) != 65 {
		return toll.Address{}, ErrSignature
	}
	v := signature[64]
	var r, s secp256k1.ModNScalar
	if overflow := r.SetByteSlice(signature[:32]); overflow || r.IsZero() {
		return toll.Address{}, ErrSignature
	}
	if overflow := s.SetByteSlice(signature[32:64]); overflow || s.IsZero() || s.IsOverHalfOrder() {
		return toll.Address{}, ErrSignature
	}
	if v != 27 && v != 28 {
		return toll.Address{}, ErrSignature
	}
	compact := append([]byte{v}, signature[:64]...)
	public, _, err := ecdsa.RecoverCompact(compact, digest[:])
	if err != nil {
		return toll.Address{}, ErrSignature
	}
	return addressOf(public), nil
}

// MaxSignature bounds the signature of an account with code, in bytes. Such an account says itself what it takes for one
// (ERC-1271).
const MaxSignature = 4 << 10

// Wrapped reports whether a signature is in the wrapper of ERC-6492, by which accounts sign that are not on the chain yet.
func Wrapped(signature []byte) bool {
	return bytes.HasSuffix(signature, bytes.Repeat([]byte{0x64, 0x92}, 16))
}

// PersonalDigest is what a wallet signs for a text that a person reads (EIP-191, version 0x45): the text behind a prefix with
// its length in bytes.
func PersonalDigest(text string) [32]byte {
	return toll.Keccak256([]byte("\x19Ethereum Signed Message:\n" + strconv.Itoa(len(text)) + text))
}
