package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// local keeps a master key in memory.
type local struct {
	id   string
	aead cipher.AEAD
}

// New returns the ring of a master key in memory.
func New(master [32]byte) *Ring {
	r, err := NewRing(&local{id: hex.EncodeToString(derive(master, "toll key id", keyIDLen)), aead: gcm(derive(master, "toll envelope", 32))})
	if err != nil {
		panic(err) // the id has the right form
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

func (l *local) KeyID() string { return l.id }

// Wrap returns a nonce, and the data key sealed with AES-256-GCM.
func (l *local) Wrap(dataKey, aad []byte) ([]byte, error) {
	out := make([]byte, nonceLen, nonceLen+len(dataKey)+tagLen)
	_, _ = rand.Read(out) // crypto/rand.Read never fails since Go 1.24
	return l.aead.Seal(out, out, dataKey, aad), nil
}

func (l *local) Unwrap(wrapped, aad []byte) ([]byte, error) {
	if len(wrapped) < nonceLen {
		return nil, ErrDamaged
	}
	key, err := l.aead.Open(nil, wrapped[:nonceLen], wrapped[nonceLen:], aad)
	if err != nil {
		return nil, ErrDamaged
	}
	return key, nil
}
