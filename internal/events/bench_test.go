package events

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// BenchmarkDerive makes the events of burns in batches of the follower; a row is one settlement.
func BenchmarkDerive(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, accounts := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d accounts", engine, accounts), func(b *testing.B) {
				st, _ := storetest.Open(b, engine)
				m := newMarket(b, st)
				batch := 4000
				if engine == store.SQLite {
					batch = 500
				}
				ids := make([]ledger.AccountID, accounts)
				for i := range ids {
					who := toll.MustAddress(fmt.Sprintf("0x%040x", 0x1000+i))
					m.mint(who, 100, "o", time.Time{})
					ids[i] = ledger.NewAccountID(m.plan, who)
				}
				rows, n := make([]store.JournalRow, batch), int64(0)
				b.ResetTimer()
				cpu := processTime(b)
				for done := 0; done < b.N; done += batch {
					for i := range rows {
						n++
						rows[i] = store.JournalRow{
							Pos: n, Account: ids[n%int64(accounts)], Seq: n, Kind: int64(ledger.KindBurn), At: m.clock.at.UnixMicro() + n, Burn: &store.Burn{},
						}
					}
					must.Do(b, st.Tx(b.Context(), func(tx *store.Tx) error { return m.events.derive(b.Context(), tx, rows) }))
				}
				b.ReportMetric(float64(processTime(b)-cpu)/float64(b.N), "cpu-ns/op") // of this process
			})
		}
	}
}

func processTime(b *testing.B) int64 {
	var u syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
