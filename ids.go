package toll

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// PlanID identifies a plan: the decimal text of a uint256 above zero, without leading zeros, at most 78 digits.
type PlanID string

// AgentID identifies an agent: the decimal text of a uint256 above zero, without leading zeros, at most 78 digits.
type AgentID string

var maxUint256 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))

const maxUint256Text = "115792089237316195423570985008687907853269984665640564039457584007913129639935"

// isUint256 reports whether s is the decimal text of a uint256, without leading zeros.
func isUint256(s string) bool {
	return decimal(s) && (len(s) < len(maxUint256Text) || len(s) == len(maxUint256Text) && s <= maxUint256Text)
}

func validID(s string) bool { return s != "0" && isUint256(s) }

func badID(kind, s string) *Error {
	return Errorf(CodeBadID, "The %s must be a decimal uint256 above zero.", kind).WithDetails("%s %s", kind, clip(s))
}

// ParsePlanID returns the plan id in s, or an error with [CodeBadID].
func ParsePlanID(s string) (PlanID, error) {
	if !validID(s) {
		return "", badID("planId", s)
	}
	return PlanID(s), nil
}

// ParseAgentID returns the agent id in s, or an error with [CodeBadID].
func ParseAgentID(s string) (AgentID, error) {
	if !validID(s) {
		return "", badID("agentId", s)
	}
	return AgentID(s), nil
}

func newID() string {
	for {
		var b [32]byte
		_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
		if n := new(big.Int).SetBytes(b[:]); n.Sign() > 0 {
			return n.String()
		}
	}
}

// NewPlanID returns a new random plan id.
func NewPlanID() PlanID { return PlanID(newID()) }

// NewAgentID returns a new random agent id.
func NewAgentID() AgentID { return AgentID(newID()) }

// UnmarshalJSON accepts only a string, because JSON numbers above 2^53 may have been rounded. null means absent.
func (id *PlanID) UnmarshalJSON(b []byte) error { return readID(b, "planId", ParsePlanID, id) }

// UnmarshalJSON accepts only a string, because JSON numbers above 2^53 may have been rounded. null means absent.
func (id *AgentID) UnmarshalJSON(b []byte) error { return readID(b, "agentId", ParseAgentID, id) }

func readID[T any](b []byte, kind string, parse func(string) (T, error), into *T) error {
	s, absent, err := jsonString(b, kind)
	if err != nil || absent {
		return err
	}
	return read(s, parse, into)
}

func jsonString(b []byte, kind string) (s string, absent bool, err error) {
	if string(b) == "null" {
		return "", true, nil
	}
	if len(b) < 2 || b[0] != '"' || bytes.IndexByte(b, '\\') >= 0 {
		return "", false, badID(kind, string(b))
	}
	return string(b[1 : len(b)-1]), false, nil
}

// Address is the 20 bytes of an EVM address. The zero value is the zero address, which owns nothing.
type Address [20]byte

// ParseAddress returns the address in s: 0x and 40 hexadecimal digits of any case, or an error with [CodeBadAddress].
// The EIP-55 checksum is not required, as callers send any case.
func ParseAddress(s string) (Address, error) {
	var a Address
	if !unhex(a[:], s) {
		return Address{}, badAddress(s)
	}
	return a, nil
}

func badAddress(s string) error {
	return Errorf(CodeBadAddress, "An address must be 0x followed by 40 hexadecimal digits.").WithDetails("address %s", clip(s))
}

// unhex decodes s into b and reports whether s is 0x followed by exactly 2*len(b) hexadecimal digits.
func unhex(b []byte, s string) bool {
	if len(s) != 2+2*len(b) || s[:2] != "0x" {
		return false
	}
	_, err := hex.Decode(b, []byte(s[2:]))
	return err == nil
}

// MustAddress is like [ParseAddress] but panics if s is malformed. It is for constants.
func MustAddress(s string) Address {
	a, err := ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

// Lower returns the address in lower case, the form that is stored and hashed.
func (a Address) Lower() string {
	var b [42]byte
	b[0], b[1] = '0', 'x'
	hex.Encode(b[2:], a[:])
	return string(b[:])
}

const zeroAddress = "0x0000000000000000000000000000000000000000"

// checksummed caches checksummed address text, since each costs a hash. Each of the 4,096 slots holds the most recent
// address with that index, so the cache is bounded to about half a MiB.
var checksummed [1 << 12]atomic.Pointer[addressText]

type addressText struct {
	of   Address
	text string
}

// String returns the address with the checksum case of EIP-55.
func (a Address) String() string {
	if a.IsZero() {
		return zeroAddress // it has no letters to set
	}
	slot := &checksummed[int(binary.BigEndian.Uint16(a[len(a)-2:]))%len(checksummed)]
	if known := slot.Load(); known != nil && known.of == a {
		return known.text
	}
	text := a.checksum()
	slot.Store(&addressText{a, text})
	return text
}

func (a Address) checksum() string {
	var b [42]byte
	b[0], b[1] = '0', 'x'
	hex.Encode(b[2:], a[:])
	h := Keccak256(b[2:])
	for i := range 40 {
		nibble := h[i/2] >> (4 * (1 - i%2)) & 0xf
		if c := b[2+i]; c >= 'a' && nibble >= 8 {
			b[2+i] = c - 'a' + 'A'
		}
	}
	return string(b[:])
}

// IsZero reports whether a is the zero address.
func (a Address) IsZero() bool { return a == Address{} }

// MarshalText writes the EIP-55 form.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText accepts digits in any case.
func (a *Address) UnmarshalText(b []byte) error { return read(string(b), ParseAddress, a) }

// UnmarshalJSON accepts only a string, so that a number gets the same error code as malformed text. null means absent.
func (a *Address) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '"' {
		return badAddress(string(b))
	}
	return a.UnmarshalText(b[1 : len(b)-1])
}

// Hash is 32 bytes written as 0x and 64 lower-case hexadecimal digits: key ids, permission hashes, transactions.
type Hash [32]byte

// NewHash returns 32 random bytes.
func NewHash() Hash {
	var h Hash
	_, _ = rand.Read(h[:]) // crypto/rand.Read never fails since Go 1.24
	return h
}

// ParseHash returns the hash in s: 0x and 64 hexadecimal digits of any case, or an error with [CodeBadRequest].
func ParseHash(s string) (Hash, error) {
	var h Hash
	if !unhex(h[:], s) {
		return Hash{}, Errorf(CodeBadRequest, "A hash must be 0x followed by 64 hexadecimal digits.").WithDetails("hash %s", clip(s))
	}
	return h, nil
}

// String returns 0x and 64 lower-case hexadecimal digits.
func (h Hash) String() string { return "0x" + hex.EncodeToString(h[:]) }

// IsZero reports whether all bytes are zero.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText writes the lower-case form.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText accepts digits in any case.
func (h *Hash) UnmarshalText(b []byte) error { return read(string(b), ParseHash, h) }

// Time is a moment on the wire: ISO 8601 in UTC with milliseconds, for example 2026-11-21T01:52:18.322Z.
type Time struct{ time.Time }

// At returns t as a wire time.
func At(t time.Time) Time { return Time{t} }

// AtPtr returns t as a wire time, nil when t is zero.
func AtPtr(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t}
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON writes UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, t.UTC().Format(timeLayout)), nil
}

// localLayout parses times without an offset, which are in UTC.
const localLayout = "2006-01-02T15:04:05"

// ParseTime returns an ISO 8601 time in UTC, or an error with [CodeBadRequest]. A time without an offset is read as UTC.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t, err = time.Parse(localLayout, s) // also accepts fractions of a second
	}
	if err != nil {
		return time.Time{}, Errorf(CodeBadRequest, "A time must be in ISO 8601, such as 2026-11-21T01:52:18Z.")
	}
	return t.UTC(), nil
}

// UnmarshalJSON accepts null, which changes nothing, and a string that [ParseTime] accepts.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	s, err := strconv.Unquote(string(b))
	if err != nil {
		s = ""
	}
	t.Time, err = ParseTime(s)
	return err
}

// clip limits caller text in an error to 80 bytes plus "..." and replaces all but printable ASCII by '?', as logs and headers may echo it.
// It cuts a short API key, sent in the wrong place, after its prefix; the first 80 bytes of a long key are not secret.
func clip(s string) string {
	for _, env := range []Environment{Sandbox, Live} {
		if i := strings.Index(s, env.ShortKeyPrefix()); i >= 0 {
			s = s[:i+len(env.ShortKeyPrefix())] + "..."
		}
	}
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
