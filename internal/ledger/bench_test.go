package ledger_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// BenchmarkSettle settles without a hold from many callers, spread over many accounts or on one.
func BenchmarkSettle(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, accounts := range []int{1000, 1} {
			for _, callers := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/accounts=%d/callers=%d", engine, accounts, callers), func(b *testing.B) {
					benchmarkSettle(b, engine, accounts, callers)
				})
			}
		}
	}
}

func benchmarkSettle(b *testing.B, engine store.Engine, accounts, callers int) {
	st, _ := storetest.Open(b, engine)
	l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
	b.Cleanup(func() { _ = l.Close(context.Background()) })
	ctx := context.Background()
	perms := make([]toll.Hash, accounts)
	done := make(chan error, accounts)
	for i := range accounts {
		perms[i] = toll.NewHash()
		go func() {
			_, err := l.Mint(ctx, ledger.MintOp{Plan: toll.PlanID(fmt.Sprint(i + 1)), Subscriber: subscriber, Amount: 1 << 40, Ref: "m"})
			done <- err
		}()
	}
	for range accounts {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	for i := range accounts {
		if err := l.CreatePermission(ctx, ledger.Permission{Hash: perms[i], Plan: toll.PlanID(fmt.Sprint(i + 1)), Subscriber: subscriber, ExpiresAt: time.Now().Add(time.Hour)}); err != nil {
			b.Fatal(err)
		}
	}
	answer := make([]byte, 700)
	var n atomic.Int64
	b.SetParallelism(callers)
	b.ResetTimer()
	run := func() {
		i := int(n.Add(1)) % accounts
		_, err := l.Settle(ctx, ledger.SettleOp{
			Plan: toll.PlanID(fmt.Sprint(i + 1)), Subscriber: subscriber, Permission: perms[i], Amount: 1, Resource: "https://a.example/ask",
			Render: func(ledger.Receipt) []byte { return answer },
		})
		must.Check(b, err)
	}
	if callers == 1 {
		for b.Loop() {
			run()
		}
		return
	}
	b.SetParallelism(callers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			run()
		}
	})
}
