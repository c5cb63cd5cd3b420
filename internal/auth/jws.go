package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/json"
)

// maxJWS bounds a signed text in bytes, the bound of a token line on the wire.
const maxJWS = 8 << 10

// Causes of a refused signed text. They are logged, never sent, and carry nothing of the text.
var (
	errNotJWS        = errors.New("auth: not a compact JWS")
	errHeader        = errors.New("auth: the JOSE header must have the alg EdDSA, the typ JWT, and a kid")
	errUnknownKey    = errors.New("auth: unknown key id")
	errBadSignature  = errors.New("auth: the signature is invalid")
	errRetiredKey    = errors.New("auth: signed after the key was retired")
	errMalformedText = errors.New("auth: the payload must be a JSON object with members of the expected types")
)

// splitCompact cuts a compact JWS at its two dots. It takes base64url characters only: the decoder of the standard
// library would skip line breaks, and one signed text must have one form.
func splitCompact(jws string) (header, payload, signature string, ok bool) {
	if len(jws) > maxJWS {
		return "", "", "", false
	}
	var dots [2]int
	n := 0
	for i := range len(jws) {
		c := jws[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		case c == '.' && n < 2:
			dots[n] = i
			n++
		default:
			return "", "", "", false
		}
	}
	if n != 2 {
		return "", "", "", false
	}
	header, payload, signature = jws[:dots[0]], jws[dots[0]+1:dots[1]], jws[dots[1]+1:]
	return header, payload, signature, header != "" && payload != "" && signature != ""
}

// sumOf returns the SHA-256 of a text, the key under which what is known of it is remembered. A text of usual length is
// hashed on the stack: this is most of the price of a hit.
func sumOf(text string) [32]byte {
	var buf [2048]byte
	return sha256.Sum256(append(buf[:0], text...))
}

// decodeSegment refuses padding and a last character with unused bits set.
func decodeSegment(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil
}

// decodeStrict reads one JSON object with exact member names and types. encoding/json takes a member twice and in any
// case; the JSON package of go-jose refuses both, which is why it is used for what other software may have written.
func decodeStrict(data []byte, v any) error {
	if !utf8.Valid(data) || len(data) == 0 || data[0] != '{' {
		return errMalformedText
	}
	if err := json.Unmarshal(data, v); err != nil {
		return errMalformedText
	}
	return nil
}

// encodeExact writes compact JSON without HTML escapes, members in the order of the fields.
func encodeExact(v any) ([]byte, error) {
	var b strings.Builder
	e := stdjson.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// headerKeyID returns the key id of a header that was not written by this service's signer but may be ours. Key
// material named in it (jwk, jku, x5u, x5c) is never looked at.
func headerKeyID(segment string) (string, error) {
	raw, ok := decodeSegment(segment)
	if !ok {
		return "", errHeader
	}
	var h struct {
		Algorithm string          `json:"alg"`
		Type      string          `json:"typ"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
		Encoded   json.RawMessage `json:"b64"`
		Zip       json.RawMessage `json:"zip"`
		Content   json.RawMessage `json:"cty"`
	}
	if err := decodeStrict(raw, &h); err != nil {
		return "", errHeader
	}
	if h.Algorithm != "EdDSA" || h.Type != "JWT" || h.KeyID == "" ||
		h.Critical != nil || h.Encoded != nil || h.Zip != nil || h.Content != nil {
		return "", errHeader
	}
	return h.KeyID, nil
}

// open returns the payload of a signed text and the key that signed it. It makes no query.
func (ks *keySet) open(jws string) ([]byte, *signingKey, error) {
	header, payload, signature, ok := splitCompact(jws)
	if !ok || len(signature) != base64.RawURLEncoding.EncodedLen(ed25519.SignatureSize) {
		return nil, nil, errNotJWS
	}
	key := ks.byHeader[header]
	if key == nil {
		kid, err := headerKeyID(header)
		if err != nil {
			return nil, nil, err
		}
		if key = ks.byID[kid]; key == nil {
			return nil, nil, errUnknownKey
		}
	}
	sig, ok := decodeSegment(signature)
	if !ok || smallOrder([32]byte(sig[:32])) || !ed25519.Verify(key.public, []byte(jws[:len(header)+1+len(payload)]), sig) {
		return nil, nil, errBadSignature
	}
	body, ok := decodeSegment(payload)
	if !ok {
		return nil, nil, errNotJWS
	}
	return body, key, nil
}

// sign returns the compact JWS of a payload. The header is fixed, in the order of the wire contract; the signer of
// go-jose would sort its members.
func (k *signingKey) sign(payload []byte) string {
	text := k.header + "." + base64.RawURLEncoding.EncodeToString(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, []byte(text)))
}

// sign signs a payload with the key of API keys and access tokens that signs now.
func (a *Auth) sign(payload []byte) (string, error) {
	key, err := signerOf(a.keys().keys, a.clock())
	if err != nil {
		return "", err
	}
	return key.sign(payload), nil
}

// headerSegment is the header of a signature; typ is that member with its comma, or empty.
func headerSegment(typ, kid string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA",` + typ + `"kid":"` + kid + `"}`))
}

// smallOrderPoints are the eight points of order 1, 2, 4 and 8 of edwards25519 in canonical form. crypto/ed25519
// accepts the first of them as R from whoever holds the private key; a hedge against a signer that leaks it that way.
var smallOrderPoints = func() map[[32]byte]bool {
	m := make(map[[32]byte]bool, 8)
	for _, s := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	} {
		var p [32]byte
		_, _ = hex.Decode(p[:], []byte(s)) // constants; a test checks the count
		m[p] = true
	}
	return m
}()

func smallOrder(r [32]byte) bool { return smallOrderPoints[r] }
