package signer

import (
	"crypto/sha256"
	"errors"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/ethereum/go-ethereum/common"
)

// errRare is the answer to cases that other implementations repeat with another nonce, or that no v of a contract can say. A
// hash meets one of them with a probability below 2^-126.
var errRare = errors.New("signer: this hash cannot be signed")

// sign returns the ECDSA signature of RFC 6979 over secp256k1: r, s, v with s in the lower half and v 27 or 28. It does what
// secp256k1/ecdsa.SignCompact does, except that it leaves neither the key nor the nonce, from which the key follows, in memory
// of the heap that is garbage.
func sign(key *secp256k1.PrivateKey, hash common.Hash) ([]byte, error) {
	var e, k, inverse, r, s secp256k1.ModNScalar
	defer k.Zero()
	defer inverse.Zero()
	e.SetByteSlice(hash[:]) // modulo the order of the curve
	if !nonce(&k, &key.Key, &e) {
		return nil, errRare
	}
	var point secp256k1.JacobianPoint
	secp256k1.ScalarBaseMultNonConst(&k, &point)
	point.ToAffine()
	if overflow := r.SetBytes(point.X.Bytes()); overflow != 0 || r.IsZero() {
		return nil, errRare
	}
	v := byte(27)
	if point.Y.IsOdd() {
		v = 28
	}
	s.Mul2(&key.Key, &r).Add(&e).Mul(inverse.InverseValNonConst(&k))
	if s.IsZero() {
		return nil, errRare
	}
	if s.IsOverHalfOrder() {
		s.Negate()
		v ^= 27 ^ 28
	}
	signature := make([]byte, 65)
	r.PutBytesUnchecked(signature)
	s.PutBytesUnchecked(signature[32:])
	signature[64] = v
	return signature, nil
}

// nonce computes the nonce of a key and a hash (RFC 6979, section 3.2), and reports whether the first candidate is one.
func nonce(k, key, hash *secp256k1.ModNScalar) bool {
	var seed [64]byte // int2octets(x), bits2octets(h1)
	var mac hmac
	defer clear(seed[:])
	defer mac.clear()
	key.PutBytesUnchecked(seed[:32])
	hash.PutBytesUnchecked(seed[32:])
	for i := range mac.v {
		mac.v[i] = 0x01
	}
	for separator := range byte(2) {
		mac.key = mac.sum([]byte{separator}, seed[:])
		mac.v = mac.sum()
	}
	mac.v = mac.sum()
	return k.SetBytes(&mac.v) == 0 && !k.IsZero()
}

// hmac is the state K, V of RFC 6979 with HMAC-SHA-256. The one of the standard library keeps copies of what it hashed.
type hmac struct {
	key, v [32]byte
	buffer [64 + 32 + 1 + 64]byte
}

// sum is HMAC_K(V), or HMAC_K(V, separator, seed).
func (m *hmac) sum(more ...[]byte) [32]byte {
	inner := m.hash(0x36, append([][]byte{m.v[:]}, more...)...)
	defer clear(inner[:])
	return m.hash(0x5c, inner[:])
}

// hash is SHA-256 of the padded key and the parts.
func (m *hmac) hash(pad byte, parts ...[]byte) [32]byte {
	n := 64
	for i := range 64 {
		m.buffer[i] = pad
	}
	for i, b := range m.key {
		m.buffer[i] ^= b
	}
	for _, p := range parts {
		n += copy(m.buffer[n:], p)
	}
	return sha256.Sum256(m.buffer[:n])
}

func (m *hmac) clear() { *m = hmac{} }
