package toll

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

// UUID is a UUID (RFC 9562) in binary form.
type UUID [16]byte

// String returns the UUID as lower-case text.
func (u UUID) String() string {
	t := hex.EncodeToString(u[:])
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}

// IsZero reports whether all bytes are zero.
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText returns the UUID as lower-case text.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads a UUID in text form. The error has [CodeBadUUID].
func (u *UUID) UnmarshalText(text []byte) error {
	s, err := ParseUUID(string(text))
	if err == nil {
		_, err = hex.Decode(u[:], []byte(strings.ReplaceAll(s, "-", "")))
	}
	return err
}

// NewUUID returns a new random UUID: version 4.
func NewUUID() string {
	var u UUID
	_, _ = rand.Read(u[:]) // crypto/rand.Read never fails since Go 1.24
	return u.marked(4).String()
}

// NewTimeUUID returns a new UUID of version 7, which sorts by time.
func NewTimeUUID(at time.Time) UUID {
	var rest [10]byte
	_, _ = rand.Read(rest[:]) // crypto/rand.Read never fails since Go 1.24
	return TimeUUID(at, rest)
}

// TimeUUID returns the version 7 UUID with the Unix milliseconds of at, and rest as its remaining bytes.
func TimeUUID(at time.Time, rest [10]byte) (u UUID) {
	binary.BigEndian.PutUint64(u[:8], uint64(at.UnixMilli())<<16)
	copy(u[6:], rest[:])
	return u.marked(7)
}

// NameUUID returns the version 5 UUID made from sum, the SHA-1 hash of a namespace and a name.
func NameUUID(sum []byte) UUID { return UUID(sum[:16]).marked(5) }

// marked sets the bits of the version and of the variant.
func (u UUID) marked(version byte) UUID {
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	return u
}

// ParseUUID returns the UUID in s in lower case, or an error with [CodeBadUUID].
func ParseUUID(s string) (string, error) {
	bad := len(s) != 36
	for i := 0; !bad && i < 36; i++ {
		c := s[i] | 0x20
		if i == 8 || i == 13 || i == 18 || i == 23 {
			bad = s[i] != '-'
		} else {
			bad = (s[i] < '0' || s[i] > '9') && (c < 'a' || c > 'f')
		}
	}
	if bad {
		return "", NewError(CodeBadUUID).WithDetails("uuid %s", clip(s))
	}
	return strings.ToLower(s), nil
}
