// Package seal keeps secrets at rest: a master key, and envelopes that only it opens.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// An envelope is: version (1 byte, 1), key id (8 bytes), nonce (12 bytes), ciphertext and tag of AES-256-GCM.
// The header is part of the associated data.
const (
	version    = 1
	keyIDLen   = 8
	nonceLen   = 12
	headerLen  = 1 + keyIDLen
	minimumLen = headerLen + nonceLen + 16
)

// Reasons why an envelope does not open.
var (
	ErrMalformed = errors.New("seal: not an envelope")
	ErrOtherKey  = errors.New("seal: sealed with another master key")
	ErrDamaged   = errors.New("seal: the envelope is damaged or belongs elsewhere")
)

// Ring seals with one master key. It is safe for concurrent use.
type Ring struct {
	id   [keyIDLen]byte
	aead cipher.AEAD
}

// New returns the ring of a master key.
func New(master [32]byte) *Ring {
	r := &Ring{}
	copy(r.id[:], derive(master, "toll key id", keyIDLen))
	block, err := aes.NewCipher(derive(master, "toll envelope", 32))
	if err == nil {
		r.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // a key of 32 bytes is always valid
	}
	return r
}

// derive separates the keys of different uses, so that the id in each envelope tells nothing about the key.
func derive(master [32]byte, use string, n int) []byte {
	key, err := hkdf.Key(sha256.New, master[:], nil, use, n)
	if err != nil {
		panic(err) // n is far below the limit of HKDF
	}
	return key
}

// KeyID returns the id of the master key that each envelope carries.
func (r *Ring) KeyID() string { return hex.EncodeToString(r.id[:]) }

// Seal returns an envelope of plain. aad says where the envelope belongs (table, row, environment); Open needs the same.
func (r *Ring) Seal(plain, aad []byte) ([]byte, error) {
	out := make([]byte, headerLen+nonceLen, headerLen+nonceLen+len(plain)+r.aead.Overhead())
	out[0] = version
	copy(out[1:], r.id[:])
	_, _ = rand.Read(out[headerLen:]) // crypto/rand.Read never fails since Go 1.24
	return r.aead.Seal(out, out[headerLen:], plain, bind(out[:headerLen], aad)), nil
}

// Open returns what Seal was given. It fails with [ErrMalformed], [ErrOtherKey], or [ErrDamaged] when a bit of the
// envelope or of aad differs.
func (r *Ring) Open(sealed, aad []byte) ([]byte, error) {
	if len(sealed) < minimumLen || sealed[0] != version {
		return nil, ErrMalformed
	}
	if !bytes.Equal(sealed[1:headerLen], r.id[:]) {
		return nil, ErrOtherKey
	}
	nonce, text := sealed[headerLen:headerLen+nonceLen], sealed[headerLen+nonceLen:]
	plain, err := r.aead.Open(nil, nonce, text, bind(sealed[:headerLen], aad))
	if err != nil {
		return nil, ErrDamaged
	}
	return plain, nil
}

func bind(header, aad []byte) []byte {
	return append(append(make([]byte, 0, len(header)+len(aad)), header...), aad...)
}
