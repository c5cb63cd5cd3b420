package checkout

import (
	"crypto/sha1"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
)

// topUpID returns the id of the nth order of a request, n from 0: a UUIDv5 (RFC 9562, section 5.5) in the namespace of the
// account. A process that lost its memory, and a database that was restored, come to the same id, which is paid once.
func topUpID(account ledger.AccountID, request string, n int) string {
	sum := sha1.Sum(append(account[:], request+"/"+strconv.Itoa(n)...))
	return toll.NameUUID(sum[:]).String()
}
