package evm

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/tollhq/toll"
)

// ErrSignature means that bytes are not a signature: a length other than 65, v other than 27 or 28, r or s of 0 or too large, s
// in the upper half (EIP-2), or no key that fits.
var ErrSignature = errors.New("evm: the signature must be 65 bytes with a low s and a v of 27 or 28")

// Recover returns the account whose key signed a digest, or [ErrSignature]. It accepts only the form of a signature that contracts accept.
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

// MaxSignature bounds the signature of an account with code, in bytes, which the account itself verifies (ERC-1271).
const MaxSignature = 4 << 10

// Wrapped reports whether a signature has the ERC-6492 wrapper, used by accounts before their deployment.
func Wrapped(signature []byte) bool {
	return bytes.HasSuffix(signature, bytes.Repeat([]byte{0x64, 0x92}, 16))
}

// PersonalDigest returns the digest of a text signed by a person (EIP-191, version 0x45).
func PersonalDigest(text string) [32]byte {
	return toll.Keccak256([]byte("\x19Ethereum Signed Message:\n" + strconv.Itoa(len(text)) + text))
}
