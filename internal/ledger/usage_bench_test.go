package ledger_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// BenchmarkCountUsage counts burns in batches of the loop, without reading them; a row is one settlement.
func BenchmarkCountUsage(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, accounts := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d accounts", engine, accounts), func(b *testing.B) {
				st, _ := storetest.Open(b, engine)
				batch := 4000
				if engine == store.SQLite {
					batch = 500
				}
				sides := map[[16]byte]store.Sides{}
				ids := make([]ledger.AccountID, accounts)
				for i := range ids {
					who := toll.MustAddress(fmt.Sprintf("0x%040x", 0x1000+i))
					ids[i] = ledger.NewAccountID(plan, who)
					sides[ids[i]] = store.Sides{Plan: plan, Subscriber: who}
				}
				rows, n := make([]store.JournalRow, batch), int64(0)
				b.ResetTimer()
				var before, after syscall.Rusage
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
				for done := 0; done < b.N; done += batch {
					for i := range rows {
						n++
						rows[i] = store.JournalRow{
							Pos: n, Account: ids[n%int64(accounts)], Seq: n, Kind: int64(ledger.KindBurn), Amount: 5, At: start.UnixMicro() + n,
							Burn: &store.Burn{},
						}
					}
					must.Do(b, st.Tx(b.Context(), func(tx *store.Tx) error { return store.AddUsage(b.Context(), tx, rows, sides) }))
				}
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
				cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
				b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op") // of this process
			})
		}
	}
}
