package server_test

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

// commits counts the transactions that have written to a database, as the database itself does. A count of another epoch began
// anew: the write-ahead log of SQLite does so when it was copied back.
func commits(t *testing.T, o servertest.Options) func() (n int64, epoch uint64) {
	if o.Database != "" {
		conn := must.Get(pgx.ConnectConfig(t.Context(), storetest.ConnConfig(t, o.Database)))(t)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return func() (n int64, epoch uint64) {
			// Transactions that only read have no number.
			must.Do(t, conn.QueryRow(t.Context(), "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&n))
			return n, 0
		}
	}
	return func() (n int64, epoch uint64) {
		wal, err := os.ReadFile(o.Data + "/toll.db-wal")
		if err != nil || len(wal) < 32 {
			t.Fatalf("no write-ahead log: %v", err)
		}
		salt := binary.BigEndian.Uint64(wal[16:])
		size := 24 + int(binary.BigEndian.Uint32(wal[8:]))
		for at := 32; at+size <= len(wal) && binary.BigEndian.Uint64(wal[at+8:]) == salt; at += size {
			if binary.BigEndian.Uint32(wal[at+4:]) != 0 { // the last frame of a transaction
				n++
			}
		}
		return n, salt
	}
}

// An order on a chain outside takes no more commits than before an order and its payment became one machine (14 and 15 on
// SQLite, 15 and 17 on PostgreSQL), with what follows from it in the background: events, leases.
func TestCommitsOfAnOrder(t *testing.T) {
	if rounds.Deferred(t) {
		return // it waits for most of a minute: make test-all
	}
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		builder, buyer := servertest.Key(t, o, "builder"), servertest.Key(t, o, "buyer")
		public := chaintest.New(t)
		o.Args = []string{"--chain-rpc-urls", public.URL(), "--chain-confirmations", "0", "--chain-batch-window", "1ms"}
		p := servertest.Start(t, o)
		c := p.Client(buyer.Key, servertest.Patient)
		m := &bazaar{public: public, till: till{t, public.Eth()}}
		st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data, Database: o.Database, ReadOnly: true}))(t)
		defer st.Close()
		fuel(t, st, public)
		m.give(buyer.Address, usdc, 100_000_000)
		d, err := c.CreateDelegation(t.Context(), client.DelegationParams{Provider: toll.ProviderCrypto, SpendingLimit: 50_000, Lifetime: time.Hour, Currency: "usdc"})
		must.Do(t, err)
		plan := must.Get(p.Client(builder.Key, servertest.Patient).RegisterPlan(t.Context(), client.PlanParams{
			Metadata: toll.Metadata{Name: "Plan"}, Price: price(usdc, 1_000_000, builder.Address), Credits: toll.CreditsDynamic(100, 1, 100),
		}))(t)
		count := commits(t, o)
		for way, opts := range map[string][]client.OrderOption{"direct": nil, "delegated": {client.PaidBy(d.DelegationID)}} {
			var taken []int64
			for range 6 {
				time.Sleep(time.Second) // for what the one before has left
				before, was := count()
				o, err := c.OrderPlan(t.Context(), plan.PlanID, opts...)
				if err != nil || !isPaid(o.Status) {
					t.Fatalf("%+v, %v", o, err)
				}
				at, is := count()
				time.Sleep(time.Second)
				if after, end := count(); was == end {
					taken = append(taken, after-before)
					t.Logf("%s: %d commits until the answer (%t), %d a second later", way, at-before, is == was, after-before)
				}
			}
			slices.Sort(taken)
			t.Logf("%s: %d commits an order (median of %d: %v)", way, taken[len(taken)/2], len(taken), taken)
			if taken[len(taken)/2] > 17 {
				t.Errorf("%s: more commits than ever", way)
			}
		}
	})
}
