package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestUsesOfAPermissionAreAChain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		perms := []toll.Hash{b.permission(0), b.permission(0), b.permission(0)}
		for i := range 10 {
			must.Get(b.Settle(b.ctx, settleOp(perms[i%2], fmt.Sprint("r", i), toll.Credits(i+1))))(b)
		}
		id := ledger.NewAccountID(plan, subscriber)
		for i, want := range [][]string{{"r8", "r6", "r4"}, {"r9", "r7", "r5"}, {}} {
			uses := must.Get(b.PermissionUses(b.ctx, id, perms[i], 3))(b)
			got := []string{}
			for _, u := range uses {
				got = append(got, u.AgentRequestID)
				r := must.Get(b.RequestByTransaction(b.ctx, u.Transaction))(b)
				if r.ID != u.AgentRequestID || r.Amount != u.CreditsRedeemed {
					t.Fatalf("%+v leads to %+v", u, r)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("uses of permission %d are %v, want %v", i, got, want)
			}
		}
	})
}

// TestAuditFindsFaults plants one fault at a time behind the back of the ledger.
func TestAuditFindsFaults(t *testing.T) {
	faults := map[string]string{
		"UPDATE accounts SET hot = NULL":                                                                         "I2",
		"UPDATE accounts SET hot = NULL WHERE balance > 0":                                                       "I10",
		"UPDATE accounts SET hot = X'02'":                                                                        "I2",
		"UPDATE lots SET open = 0":                                                                               "I3",
		"UPDATE lots SET ends_at = 1":                                                                            "I1",
		"UPDATE lots SET open = 0 WHERE lot_id = 1":                                                              "I3",
		"UPDATE lots SET remaining = remaining - 1":                                                              "I2",
		"UPDATE accounts SET balance = balance + 1, minted = minted + 1":                                         "I2",
		"UPDATE accounts SET held = held - 1":                                                                    "I3",
		"UPDATE accounts SET open_holds = 5":                                                                     "I3",
		"UPDATE accounts SET next_hold_end = 9223372036854775807":                                                "I3",
		"UPDATE journal SET amount = amount + 1 WHERE kind = 2":                                                  "I19",
		"UPDATE journal SET ref = x'006f74686572' WHERE ref = x'007231'":                                         "I19",
		"UPDATE journal SET at = at - 1 WHERE seq = 2":                                                           "I19",
		"DELETE FROM journal WHERE seq = 2":                                                                      "I5",
		"UPDATE journal SET kind = 3 WHERE kind = 2":                                                             "I1",
		"UPDATE journal SET pos = pos + 3 WHERE kind = 2":                                                        "I19",
		"UPDATE journal SET body = (SELECT b.body FROM journal b WHERE b.ref = x'007232') WHERE ref = x'007231'": "I10",
		"UPDATE requests SET state = 2":                                                                          "I7",
		"UPDATE requests SET state = 3":                                                                          "I7",
		"UPDATE requests SET agent_request_id = 'r1', state = 3":                                                 "I5",
		"UPDATE permissions SET last_burn = last_burn - 1":                                                       "I10",
		"DELETE FROM journal_commitments WHERE pos = 2":                                                          "I19",
		"UPDATE journal_commitments SET prefix = prefix + 1 WHERE pos = 2":                                       "I19",
		"INSERT INTO journal_commitments (prefix, pos) VALUES (1, 2)":                                            "I19",
		"UPDATE journal_accounts SET positions = x'000000000001'":                                                "I19",
		"UPDATE journal_cursors SET pos = 1 WHERE name = 'follower'":                                             "I19",
		"UPDATE permissions SET redeemed = redeemed + 1":                                                         "I10",
		"UPDATE permissions SET held = held + 1, open_holds = open_holds + 1":                                    "I10",
		"UPDATE accounts SET burned = burned + 1, minted = minted + 1":                                           "I1",
		"UPDATE accounts SET subscriber = '0x0000000000000000000000000000000000000001'":                          "I1",
		"UPDATE journal SET commitment = (SELECT e.commitment FROM journal e WHERE e.seq = 1)":                   "I19",
	}
	for fault, want := range faults {
		t.Run(want+" "+fault, func(t *testing.T) {
			st, _ := storetest.Open(t, store.SQLite)
			l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
			defer l.Close(context.Background())
			c := newClock()
			b := &bench{TB: t, Ledger: l, clock: c, ctx: context.Background()}
			b.clock.us.Store(time.Now().UnixMicro())
			b.mint(100, time.Time{})
			perm := b.permission(0)
			must.Get(b.Settle(b.ctx, settleOp(perm, "r1", 5)))(b)
			must.Get(b.Settle(b.ctx, settleOp(perm, "r2", 5)))(b)
			must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			follow(t, l)
			b.mint(1, time.Time{}) // what is not used stands in its row
			b.permission(0)
			audit(t, l)
			must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
				n, err := tx.Exec(b.ctx, fault)
				if n == 0 && err == nil {
					t.Fatal("the fault changed nothing")
				}
				return err
			}))
			found := must.Get(l.Audit(b.ctx))(b)
			for _, f := range found {
				if f.Invariant == want {
					return
				}
			}
			t.Fatalf("found %v, want a finding of %s", found, want)
		})
	}
}

// An audit proves a seal of the journal, and with since only what is behind it.
func TestAuditSince(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		settle := func(id string) {
			t.Helper()
			must.Get(b.Settle(b.ctx, settleOp(perm, id, 5)))(b)
		}
		settle("r1")
		settle("r2")
		follow(t, b.Ledger)
		whole, err := b.AuditFrom(b.ctx, nil, false)
		if must.Do(b, err); len(whole.Findings) > 0 || whole.Seal.Position != 3 || !whole.Burns.Has(2) || whole.Burns.Has(1) {
			t.Fatalf("%+v", whole)
		}
		settle("r3")
		again, err := b.AuditFrom(b.ctx, &whole.Seal, false)
		if must.Do(b, err); len(again.Findings) > 0 || again.Seal.Position != 4 || again.Seal.Hash == whole.Seal.Hash {
			t.Fatalf("%+v", again)
		}
		since, err := b.AuditFrom(b.ctx, &whole.Seal, true)
		if must.Do(b, err); len(since.Findings) > 0 || since.Seal != again.Seal || since.Burns.Has(2) || !since.Burns.Has(4) {
			t.Fatalf("%+v", since)
		}
		edit := func(statement string) {
			t.Helper()
			must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(b.ctx, statement)
				return err
			}))
		}
		// If an entry and all that follows from it were changed, only the seal would tell.
		forged := whole.Seal
		forged.Hash[0]++
		if found, err := b.AuditFrom(b.ctx, &forged, false); err != nil || len(found.Findings) != 1 || found.Findings[0].Invariant != "I19" {
			t.Errorf("another journal: %+v, %v", found.Findings, err)
		}
		edit("UPDATE journal SET at = at - 1 WHERE seq = 2")
		if since, err := b.AuditFrom(b.ctx, &whole.Seal, true); err != nil || len(since.Findings) > 0 {
			t.Errorf("an entry before the seal: %+v, %v", since.Findings, err)
		}
		edit("UPDATE journal SET amount = amount + 1 WHERE seq = 4")
		if since, err := b.AuditFrom(b.ctx, &whole.Seal, true); err != nil || len(since.Findings) == 0 {
			t.Errorf("an entry behind the seal: %+v, %v", since.Findings, err)
		}
		if whole, err := b.AuditFrom(b.ctx, nil, false); err != nil || len(whole.Findings) < 2 {
			t.Errorf("both: %+v, %v", whole.Findings, err)
		}
		edit("UPDATE journal SET at = at + 1 WHERE seq = 2")
		edit("UPDATE journal SET amount = amount - 1 WHERE seq = 4")
	})
}

// Many pages of the journal are read in advance, and proved in their order.
func TestAudit_ManyPages(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	b := open(t, st)
	b.mint(100_000, time.Time{})
	perm := b.permission(0)
	errs := make(chan error)
	const n = 4500
	for i := range n {
		go func() {
			_, err := b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 1))
			errs <- err
		}()
	}
	for range n {
		must.Do(b, <-errs)
	}
	a, err := b.AuditFrom(b.ctx, nil, false)
	if must.Do(b, err); len(a.Findings) > 0 || a.Seal.Position != n+1 {
		t.Fatalf("%v, %+v", a.Findings, a.Seal)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.AuditFrom(ctx, nil, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled audit: %v", err)
	}
}

// follow works the whole journal off.
func follow(t *testing.T, l *ledger.Ledger, consumers ...ledger.Consumer) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = l.Follow(t.Context(), consumers...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIdsCannotBeCrowdedOut lets a stranger use the same caller-chosen id in many accounts of its own.
// T27
func TestIdsCannotBeCrowdedOut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(10, time.Time{})
		op := b.holdOp(b.permission(0), 1)
		op.RequestID = "mine"
		must.Get(b.Hold(b.ctx, op))(b)
		stranger := toll.Address{9}
		for i := range 20 {
			b.clock.add(time.Millisecond)
			p := toll.PlanID(fmt.Sprint(1000 + i))
			must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: p, Subscriber: stranger, Amount: 1, Ref: "m"}))(b)
			perm := ledger.Permission{Hash: toll.NewHash(), Plan: p, Subscriber: stranger, ExpiresAt: b.clock.now().Add(time.Hour)}
			must.Do(b, b.CreatePermission(b.ctx, perm))
			_, err := b.Hold(b.ctx, ledger.HoldOp{Plan: p, Subscriber: stranger, Permission: perm.Hash, RequestID: "mine", Amount: 1, Until: b.clock.now().Add(time.Minute)})
			must.Do(b, err)
		}
		mine := must.Get(b.RequestsByID(b.ctx, "mine", subscriber, 10))(b)
		if len(mine) != 1 || mine[0].Account != ledger.NewAccountID(plan, subscriber) {
			t.Fatalf("found %d requests, want the one of the subscriber", len(mine))
		}
	})
}

func TestLag(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		lag := func(entries int64, waited time.Duration) {
			t.Helper()
			if n, d, err := b.Lag(b.ctx); err != nil || n != entries || d != waited {
				t.Errorf("%d entries wait for %v, %v; want %d for %v", n, d, err, entries, waited)
			}
		}
		b.clock.add(time.Second)
		must.Get(b.Settle(b.ctx, settleOp(perm, "one", 1)))(b)
		b.clock.add(time.Second)
		lag(2, 2*time.Second)
		for more := true; more; {
			more = must.Get(b.Follow(b.ctx))(b)
		}
		lag(0, 0)
		must.Get(b.Settle(b.ctx, settleOp(perm, "two", 1)))(b)
		lag(1, 0)
	})
}
