package server_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// F28: a restored backup lacks the payments of the last hour, and the service reads them from the
// processor. It grants the orders that the backup has, records refunds, and lists payments of
// orders that the backup lacks as orphans. Nothing is charged again.
// F28
func TestCardsAfterRestore(t *testing.T) {
	t.Parallel()
	c := newCashier(t, servertest.Options{Data: storetest.Dir(t)}, 1, "--order-wait", "1s")
	c.orphans = true
	k, method := c.shops("buyer", plainCard)
	limit := c.limit(k, method, 100_000)
	ctx := t.Context()
	first := c.buys(client.WithIdempotencyKey(ctx, "first"), k, limit)
	open, link := c.checkout(client.WithIdempotencyKey(ctx, "open"), k)
	path := filepath.Join(t.TempDir(), "backup")
	works(t, servertest.Program(t), c.o, "backup", path)

	// The lost hour: the open order is paid, the first one refunded, and there is another one.
	p := newShopper(t)
	must.Do(t, p.pays(link, plainCard))
	lost := c.buys(client.WithIdempotencyKey(ctx, "lost"), k, limit)
	if !isPaid(first.Status) || !isPaid(lost.Status) {
		t.Fatalf("%+v, %+v", first, lost)
	}
	must.Get(c.as(c.builder).RefundOrder(ctx, first.OrderID, 250))(t)
	c.settled()
	eventually(t, "the refund is made", func() bool { return c.bank.books().Currencies["usd"].Refunded == 250 })
	c.services[0].Kill()
	before := c.bank.books()

	key := filepath.Join(c.o.Data, "master.key")
	c.o.Data, c.o.MasterKeyFile = filepath.Join(t.TempDir(), "restored"), key
	works(t, servertest.Program(t), c.o, "restore", path)
	c.start(0)
	eventually(t, "the events of the lost hour are read", func() bool {
		o, err := c.as(k).Order(ctx, open)
		f, err2 := c.as(k).Order(ctx, first.OrderID)
		return err == nil && err2 == nil && isPaid(o.Status) && f.RefundedCents == 250
	})
	// Nothing explains the payment of the lost order, which is said after a day.
	for range 30 {
		advance(t, c.as(c.operator), time.Hour)
		if c.count("SELECT COUNT(*) FROM card_orphans") > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	eventually(t, "the lost payment is an orphan", func() bool {
		return c.count("SELECT COUNT(*) FROM card_orphans WHERE order_id = $1", lost.OrderID) == 1
	})
	// The operator finds it.
	listed := works(t, servertest.Program(t), c.o, "orders", "unmatched", "-o", "json")
	if !strings.Contains(listed, lost.OrderID) || strings.Contains(listed, first.OrderID) {
		t.Errorf("unmatched payments: %s", listed)
	}
	program := servertest.Program(t)
	after := c.bank.books()
	if a, b := fmt.Sprint(*after.Currencies["usd"]), fmt.Sprint(*before.Currencies["usd"]); a != b {
		t.Errorf("the restored service moved money: %s, before %s", a, b)
	}
	if b, err := c.as(k).Balance(ctx, c.plan); err != nil || b.Balance != 150 {
		t.Errorf("%+v, %v", b, err)
	}

	// Its delegation counts it, so that the restored service charges no more than the limit.
	if left := c.count("SELECT limit_cents - spent_cents FROM delegations"); left != 99_000 {
		t.Errorf("%d cents of the delegation are left", left)
	}
	// A part of it goes back while no order has it.
	for _, p := range before.Payments {
		if p.Metadata["order_id"] == lost.OrderID {
			c.bank.fault(double.Fault{Kind: "refund", Object: p.Charge, Amount: 100})
		}
	}
	eventually(t, "the list says what is left", func() bool {
		return strings.Contains(works(t, program, c.o, "orders", "unmatched", "-o", "json"), `"leftCents": "400"`)
	})

	// While the payment belongs to no order, everything says that the database was restored.
	eventually(t, "/ready tells of the restore", func() bool { return checks(t, c.services[0].URL)["recovery"] == "open" })
	if got := works(t, program, c.o, "recovery", "show", "-o", "json"); !strings.Contains(got, `"unmatchedPayments": 1`) &&
		!strings.Contains(got, `"unmatchedPayments":1`) {
		t.Errorf("recovery: %s", got)
	}
	if got, _ := servertest.Run(t, program, c.o, "doctor", "--url", c.services[0].URL); !strings.Contains(got, "was restored from a backup") {
		t.Errorf("doctor: %s", got)
	}
	fails(t, program, c.o, "payments that match no order: 1;", "recovery", "end")
	object := lostObject(t, listed)
	for range 2 { // a repeat changes nothing
		works(t, program, c.o, "orders", "resolve", object, "--grant")
	}
	fails(t, program, c.o, "already granted", "orders", "resolve", object, "--refund")
	fails(t, program, c.o, "not an unmatched payment", "orders", "resolve", "pi_unknown", "--refund")
	eventually(t, "the lost order has the credits that are left", func() bool {
		o, err := c.as(k).Order(ctx, lost.OrderID)
		b, err2 := c.as(k).Balance(ctx, c.plan)
		return err == nil && err2 == nil && isPaid(o.Status) && o.RefundedCents == 100 && b.Balance == 230
	})
	if left := c.count("SELECT limit_cents - spent_cents - reserved_cents FROM delegations"); left != 99_000 {
		t.Errorf("%d cents of the delegation are left", left)
	}
	works(t, program, c.o, "recovery", "end")
	works(t, program, c.o, "recovery", "end")
	eventually(t, "/ready tells no more of it", func() bool { return checks(t, c.services[0].URL)["recovery"] == "" })
	c.orphans = false
}

// lostObject returns the id of the only payment in a list of payments without orders.
func lostObject(t *testing.T, listed string) string {
	t.Helper()
	var all []struct{ ID string }
	if err := json.Unmarshal([]byte(listed[strings.Index(listed, "["):]), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %s", err, listed)
	}
	return all[0].ID
}
