package checkout

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/tollhq/toll/internal/ledger"
)

func uuid(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newOrderID returns a UUIDv7 (RFC 9562, section 5.7), which sorts by time.
func newOrderID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // crypto/rand.Read never fails since Go 1.24
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(b[:], uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ms))
	return uuid(b, 7)
}

// topUpID returns the id of the nth order of a request, n from 0: a UUIDv5 (RFC 9562, section 5.5) in the namespace of the
// account. A process that lost its memory, and a database that was restored, come to the same id, which is paid once.
func topUpID(account ledger.AccountID, request string, n int) string {
	h := sha1.New()
	h.Write(account[:])
	h.Write([]byte(request))
	h.Write([]byte("/"))
	h.Write([]byte(strconv.Itoa(n)))
	return uuid([16]byte(h.Sum(nil)), 5)
}
