// Package seal keeps secrets at rest: envelopes that only a master key opens, and providers of that key.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
)

// An envelope is: version (1 byte, 2), key id (8 bytes), length of the wrapped data key (2 bytes, big-endian), the wrapped data key, nonce
// (12 bytes), ciphertext and tag of AES-256-GCM under the data key. All before the nonce is part of the associated data.
const (
	version    = 2
	keyIDLen   = 8
	dataKeyLen = 32
	nonceLen   = 12
	tagLen     = 16
	headerLen  = 1 + keyIDLen + 2
)

// Reasons why an envelope does not open.
var (
	ErrMalformed = errors.New("seal: the data is not an envelope")
	ErrOtherKey  = errors.New("seal: sealed with another master key")
	ErrDamaged   = errors.New("seal: the envelope is damaged or was sealed for another record")
)

// KeyProvider keeps a master key: in memory, as [New] and [FromFile] do, or in a key management service, which then opens
// every secret or none. It is safe for concurrent use and bounds its own time.
type KeyProvider interface {
	// KeyID names the master key: 16 lower-case hexadecimal digits that say nothing of it.
	KeyID() string
	// Wrap seals a data key of 32 bytes with the master key, in at most 65,535 bytes. aad says where the envelope belongs
	// (what key management services call an encryption context); Unwrap needs the same.
	Wrap(dataKey, aad []byte) ([]byte, error)
	// Unwrap returns what Wrap was given. The caller clears it. [ErrDamaged] when a bit of wrapped or aad differs.
	Unwrap(wrapped, aad []byte) ([]byte, error)
}

// Ring seals with one master key, each envelope under a data key of its own. It is safe for concurrent use.
type Ring struct {
	id       [keyIDLen]byte
	provider KeyProvider
	other    *Ring // opens what this one does not; nil: none
}

// With returns a ring that seals as r does, and opens what r or other has sealed.
func (r *Ring) With(other *Ring) *Ring {
	both := *r
	both.other = other
	return &both
}

// SealedBy returns the id of the master key that an envelope names, "" when it is not an envelope.
func SealedBy(sealed []byte) string {
	if len(sealed) < 1+keyIDLen || sealed[0] != version {
		return ""
	}
	return hex.EncodeToString(sealed[1 : 1+keyIDLen])
}

// NewRing returns the ring of a provider, or an error when its key id is none.
func NewRing(p KeyProvider) (*Ring, error) {
	r := &Ring{provider: p}
	id, err := hex.DecodeString(p.KeyID())
	copy(r.id[:], id)
	if err != nil || p.KeyID() != r.KeyID() {
		return nil, errors.New("seal: the key id of the provider must be 16 lowercase hexadecimal digits")
	}
	return r, nil
}

func (r *Ring) KeyID() string { return hex.EncodeToString(r.id[:]) }

// Seal returns an envelope of plain. aad says where the envelope belongs (table, row, environment); Open needs the same. An
// error is that of the provider.
func (r *Ring) Seal(plain, aad []byte) ([]byte, error) {
	dataKey := make([]byte, dataKeyLen)
	defer clear(dataKey)
	_, _ = rand.Read(dataKey) // crypto/rand.Read never fails since Go 1.24
	wrapped, err := r.provider.Wrap(dataKey, aad)
	if err != nil {
		return nil, err
	}
	if len(wrapped) > math.MaxUint16 {
		return nil, errors.New("seal: the provider returned a wrapped key that is too long")
	}
	content := gcm(dataKey)
	out := make([]byte, 0, headerLen+len(wrapped)+nonceLen+len(plain)+tagLen)
	out = append(append(out, version), r.id[:]...)
	out = append(binary.BigEndian.AppendUint16(out, uint16(len(wrapped))), wrapped...)
	header := len(out)
	out = out[:header+nonceLen]
	_, _ = rand.Read(out[header:])
	return content.Seal(out, out[header:], plain, bind(out[:header], aad)), nil
}

// Open returns what Seal was given. It fails with [ErrMalformed], [ErrOtherKey], or [ErrDamaged] when a bit of the
// envelope or of aad differs; and with what the provider says.
func (r *Ring) Open(sealed, aad []byte) ([]byte, error) {
	plain, err := r.open(sealed, aad)
	if r.other != nil && errors.Is(err, ErrOtherKey) {
		return r.other.open(sealed, aad)
	}
	return plain, err
}

func (r *Ring) open(sealed, aad []byte) ([]byte, error) {
	if len(sealed) < headerLen || sealed[0] != version {
		return nil, ErrMalformed
	}
	if !bytes.Equal(sealed[1:1+keyIDLen], r.id[:]) {
		return nil, ErrOtherKey
	}
	header := headerLen + int(binary.BigEndian.Uint16(sealed[1+keyIDLen:]))
	if len(sealed) < header+nonceLen+tagLen {
		return nil, ErrMalformed
	}
	dataKey, err := r.provider.Unwrap(sealed[headerLen:header], aad)
	if err != nil {
		return nil, err
	}
	defer clear(dataKey)
	if len(dataKey) != dataKeyLen {
		return nil, ErrDamaged
	}
	plain, err := gcm(dataKey).Open(nil, sealed[header:header+nonceLen], sealed[header+nonceLen:], bind(sealed[:header], aad))
	if err != nil {
		return nil, ErrDamaged
	}
	return plain, nil
}

func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // a key of 32 bytes is always valid
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return aead
}

func bind(header, aad []byte) []byte {
	return append(append(make([]byte, 0, len(header)+len(aad)), header...), aad...)
}
