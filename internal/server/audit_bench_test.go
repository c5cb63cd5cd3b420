package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// BenchmarkAudit audits a database with TOLL_BENCH_SETTLEMENTS (40,000) settlements of 400 accounts, and reports the processor time and
// the time of one of them.
func BenchmarkAudit(b *testing.B) {
	settlements, err := strconv.Atoi(os.Getenv("TOLL_BENCH_SETTLEMENTS"))
	if err != nil {
		settlements = 40_000
	}
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		b.Run(string(v), func(b *testing.B) { benchmarkAudit(b, v, settlements) })
	}
}

func benchmarkAudit(b *testing.B, v storetest.Variant, settlements int) {
	const accounts, callers = 400, 256
	at := storetest.Config(b, v)
	cfg := server.Config{Data: at.Data, Database: at.Database, MasterKeyFile: b.TempDir() + "/master.key"}
	must.Do(b, os.WriteFile(cfg.MasterKeyFile, []byte(fmt.Sprintf("%064x", 7)), 0o600))
	s := must.Get(server.New(b.Context(), cfg))(b)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(b)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	key := must.Get(s.CreateKey(b.Context(), server.KeyRequest{Account: "builder"}))(b)
	made := must.Get(client.New(key.Key, client.WithURL("http://"+ln.Addr().String())).RegisterAgentWithPlan(ctx,
		client.AgentParams{Metadata: toll.Metadata{Name: "Agent"}}, client.PlanParams{
			Metadata: toll.Metadata{Name: "Plan"}, Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
		}))(b)
	l, st := server.LedgerOf(s), server.StoreOf(s)
	buyers, tokens := make([]toll.Address, accounts), make([]toll.Hash, accounts)
	for i := range accounts {
		buyers[i], tokens[i] = toll.MustAddress(fmt.Sprintf("0x%040x", 0x1000+i)), toll.NewHash()
		must.Get(l.Mint(ctx, ledger.MintOp{Plan: made.PlanID, Subscriber: buyers[i], Amount: 1 << 40, Ref: "mint:" + toll.NewUUID()}))(b)
		must.Do(b, l.CreatePermission(ctx, ledger.Permission{
			Hash: tokens[i], Plan: made.PlanID, Subscriber: buyers[i], ExpiresAt: time.Now().Add(time.Hour),
		}))
	}
	answer := make([]byte, 300)
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			for n := c; n < settlements; n += callers {
				if _, err := l.Settle(ctx, ledger.SettleOp{
					Plan: made.PlanID, Subscriber: buyers[n%accounts], Permission: tokens[n%accounts], Amount: 1, Agent: made.AgentID,
					Resource: "https://a.example/ask", Render: func(ledger.Receipt) []byte { return answer },
				}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	length, err := store.JournalLength(ctx, st)
	for end := time.Now().Add(5 * time.Minute); err == nil; time.Sleep(100 * time.Millisecond) {
		done, e := store.JournalCursor(ctx, st, store.Follower)
		counted, e2 := store.JournalCursor(ctx, st, store.UsageCursor)
		if e != nil || e2 != nil || time.Now().After(end) {
			b.Fatal(done, counted, e, e2)
		}
		if done == length && counted == length {
			break
		}
	}
	stop()
	must.Do(b, errors.Join(<-ended, closeService(s)))
	cpu := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, used := time.Now(), cpu()
	b.ResetTimer()
	for range b.N {
		if found, err := auditBooks(b.Context(), cfg); err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
	}
	each := float64(b.N) * float64(settlements) * 1000
	b.ReportMetric(float64(cpu()-used)/each, "cpu-us/settlement") // of this process
	b.ReportMetric(float64(time.Since(began))/each, "us/settlement")
}
