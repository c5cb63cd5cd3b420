package ledger_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestForgedIDsNeverPanic: the decoder skips line breaks, so a text of the right length may hold fewer bytes.
// T27
func TestForgedIDsNeverPanic(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		for _, id := range []string{
			ledger.RequestPrefix + strings.Repeat("\n", 64), ledger.RequestPrefix + strings.Repeat("0", 62) + "\r\n",
			ledger.RequestPrefix + strings.Repeat("0", 48) + strings.Repeat("\n", 16),
		} {
			if _, ours := b.AccountOfRequestID(id); ours {
				t.Errorf("%q is taken for one of ours", id)
			}
		}
	})
}
