package ledger

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// AccountID names the account of one plan and subscriber. It is never changed once made.
type AccountID [16]byte

// namespace is permanent: see testdata/permanent.md.
var namespace = [16]byte{0x1b, 0x3a, 0x7f, 0x82, 0xcb, 0x86, 0x4d, 0x04, 0x9f, 0x76, 0x5b, 0x2e, 0x88, 0x90, 0x66, 0xc5}

// NewAccountID returns the UUIDv5 (RFC 9562, section 5.5) of planId + "/" + lower-case address.
func NewAccountID(plan toll.PlanID, subscriber toll.Address) AccountID {
	var buf [256]byte // on the stack: every operation needs an id
	b := append(append(buf[:0], namespace[:]...), plan...)
	b = hex.AppendEncode(append(b, "/0x"...), subscriber[:])
	sum := sha1.Sum(b)
	return AccountID(toll.NameUUID(sum[:]))
}

// String returns the UUID text.
func (id AccountID) String() string {
	return toll.UUID(id).String()
}

// RequestPrefix begins every request id that this service issues. A foreign id that begins with it is refused.
const RequestPrefix = "req_"

// requestEncoding keeps the order of the bytes, so that ids sort by time.
var requestEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	requestMAC   = 8                    // bytes of the MAC
	requestBytes = 16 + 16 + requestMAC // UUIDv7, account, MAC
	requestText  = requestBytes * 8 / 5 // 40 bytes are 64 characters, without a rest
	requestLen   = len(RequestPrefix) + requestText
)

// requestIDs issues and recognises request ids.
type requestIDs struct{ key []byte }

// mac returns the start of the HMAC-SHA-256 (RFC 2104) of a body of at most 32 bytes, without the allocations of [hmac.New].
func (r requestIDs) mac(body []byte) []byte {
	const label = "toll/request-id/1"
	if len(r.key) > sha256.BlockSize {
		sum := sha256.Sum256(r.key)
		r.key = sum[:]
	}
	var inner [sha256.BlockSize + len(label) + 32]byte
	var outer [sha256.BlockSize + sha256.Size]byte
	for i := range sha256.BlockSize {
		inner[i], outer[i] = 0x36, 0x5c
	}
	subtle.XORBytes(inner[:], inner[:], r.key)
	subtle.XORBytes(outer[:], outer[:], r.key)
	sum := sha256.Sum256(append(append(inner[:sha256.BlockSize], label...), body...))
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	return sum[:requestMAC]
}

// issue returns a fresh id: UUIDv7 (RFC 9562, section 5.7), account, MAC. It sorts by time, routes to its account
// without an index, and cannot be guessed or forged.
func (r requestIDs) issue(account AccountID, now time.Time) string {
	var b [requestBytes]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(b[:6], ms[2:])
	_, _ = rand.Read(b[6:16]) // crypto/rand.Read never fails since Go 1.24
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	copy(b[16:32], account[:])
	copy(b[32:], r.mac(b[:32]))
	var text [requestLen]byte
	requestEncoding.Encode(text[copy(text[:], RequestPrefix):], b[:])
	return string(text[:])
}

// issued returns the time inside an id that this service issued.
func issued(id string) time.Time {
	var ms [8]byte
	b, _ := requestEncoding.DecodeString(id[len(RequestPrefix):]) // account has read it
	copy(ms[2:], b[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}

// account returns the account inside an id that this service issued; ours is false for any other text.
func (r requestIDs) account(id string) (account AccountID, ours bool) {
	if len(id) != requestLen || !strings.HasPrefix(id, RequestPrefix) {
		return AccountID{}, false
	}
	b, err := requestEncoding.DecodeString(id[len(RequestPrefix):])
	// The decoder skips line breaks, so that the bytes may be fewer.
	if err != nil || len(b) != requestBytes || !hmac.Equal(b[32:], r.mac(b[:32])) {
		return AccountID{}, false
	}
	copy(account[:], b[16:32])
	return account, true
}
