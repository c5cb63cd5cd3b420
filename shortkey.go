package toll

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// KeyForm is the form of the text of an API key.
type KeyForm string

// Forms of API keys.
const (
	KeyShort KeyForm = "short" // see [ParseShortKey]
	KeyLong  KeyForm = "long"  // a prefix, a colon, and a JWT that contains the address of the workspace
)

// ShortKeyPrefix returns the prefix of the short API keys of an environment, for example "tk_sandbox_".
func (e Environment) ShortKeyPrefix() string { return "tk_" + string(e) + "_" }

// ParseShortKey returns the environment of a short API key and the 24 bytes after its prefix: 16 random bytes, and 8 bytes of a MAC
// that only the service can check. They are 32 characters of base64url, so each key has one text. ok is false for any other text. A
// short key does not contain the address of its workspace.
func ParseShortKey(key string) (env Environment, body [24]byte, ok bool) {
	for _, env := range []Environment{Sandbox, Live} {
		text, found := strings.CutPrefix(key, env.ShortKeyPrefix())
		if !found || len(text) != base64.RawURLEncoding.EncodedLen(len(body)) {
			continue
		}
		// The decoder skips line breaks, and then returns fewer bytes.
		n, err := base64.RawURLEncoding.Decode(body[:], []byte(text))
		return env, body, err == nil && n == len(body)
	}
	return "", body, false
}

// ShortKeyID returns the id of the record of a short API key: the SHA-256 of "toll short key id " and the key. It does not check the key.
func ShortKeyID(key string) Hash { return sha256.Sum256([]byte("toll short key id " + key)) }
