package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// shortMark is the beginning of every short API key. No prefix of a long key contains an underscore.
const shortMark = "tk_"

// shortKeys are the secrets of a signing key for short API keys. They never leave the process.
type shortKeys struct {
	mac    []byte // of the MAC in a key, by which a forged key is rejected without a query
	record []byte // of the hash in a record
}

func shortKeysOf(private ed25519.PrivateKey) (shortKeys, error) {
	both, err := hkdf.Key(sha256.New, private.Seed(), nil, "toll short API keys 1", 64)
	if err != nil {
		return shortKeys{}, err
	}
	return shortKeys{mac: both[:32], record: both[32:]}, nil
}

// macOf returns the MAC of a short key with this prefix and these random bytes.
func (k shortKeys) macOf(prefix string, random []byte) []byte {
	h := hmac.New(sha256.New, k.mac)
	h.Write([]byte(prefix)) // ends with an underscore, and a word of another length is another prefix
	h.Write(random)
	return h.Sum(nil)[:8]
}

// hashOf returns what the record of a short key stores instead of the key. The hash also covers the workspace and the time of
// creation, which a long key contains: a change of the database cannot move a key to another workspace or behind a retirement.
func (k shortKeys) hashOf(sum [32]byte, row *store.APIKey) []byte {
	h := hmac.New(sha256.New, k.record)
	h.Write(sum[:])
	h.Write(row.Address[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(row.CreatedAt.UnixMicro())))
	return h.Sum(nil)
}

// shortClaims belong to a short key with a valid MAC. Its record has the rest.
type shortClaims struct {
	key     *signingKey
	checked atomic.Pointer[store.APIKey] // the last record that passed: it is checked once per reading
}

// of reports whether the key with this SHA-256 has this record.
func (c *shortClaims) of(row *store.APIKey, sum [32]byte) bool {
	if c.checked.Load() == row {
		return true
	}
	if !c.key.passes(row.CreatedAt) || !hmac.Equal(row.Hash, c.key.short.hashOf(sum, row)) {
		return false
	}
	c.checked.Store(row)
	return true
}

// of reports whether the key with these claims and this SHA-256 has this record and has not reached its signed expiry.
func (c *keyClaims) of(row *store.APIKey, sum [32]byte, now time.Time) bool {
	if c.short != nil {
		return c.short.of(row, sum)
	}
	expired := c.ExpiresAt != nil && now.Unix() >= *c.ExpiresAt
	return !expired && bytes.Equal(row.Hash, sum[:]) && row.Address == c.Subject
}

// shortKey returns the claims of a short API key that this service created, without a query. It tries the signing keys, newest first,
// because keys from before a retirement stay valid; it skips compromised signing keys.
func (ks *keySet) shortKey(want toll.Environment, text string) (*keyClaims, error) {
	env, body, ok := toll.ParseShortKey(text)
	switch {
	case !ok:
		return nil, toll.NewError(toll.CodeKeyMalformed)
	case env != want:
		return nil, toll.NewError(toll.CodeKeyWrongEnvironment)
	}
	for i := len(ks.keys) - 1; i >= 0; i-- {
		key := ks.keys[i]
		if !key.ended() && hmac.Equal(body[16:], key.short.macOf(env.ShortKeyPrefix(), body[:16])) {
			return &keyClaims{ID: toll.ShortKeyID(text), short: &shortClaims{key: key}}, nil
		}
	}
	return nil, toll.NewError(toll.CodeKeyForeign).WithCause(errBadSignature)
}

// newShortKey returns the text of a new short key, and sets the id, hash, and tail of its record.
func (k *signingKey) newShortKey(row *store.APIKey) string {
	random := make([]byte, 16, 24)
	_, _ = rand.Read(random) // never fails since Go 1.24
	text := row.Prefix + base64.RawURLEncoding.EncodeToString(append(random, k.short.macOf(row.Prefix, random)...))
	row.ID = toll.ShortKeyID(text)
	row.Hash, row.Tail = k.short.hashOf(sumOf(text), row), text[len(text)-6:]
	return text
}
