package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// dies runs f repeatedly until the first process has killed itself at a step. Then it restarts the
// process.
func (c *cashier) dies(stepFile, step string, f func()) {
	c.Helper()
	must.Do(c, os.WriteFile(stepFile, []byte(step), 0o600))
	exited := c.services[0].Exited()
	var calls sync.WaitGroup
	calls.Go(func() {
		for running := true; running; {
			f() // again, should the call have failed before the step
			select {
			case <-exited:
				running = false
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	select {
	case <-exited:
	case <-time.After(patience):
		c.services[0].Kill()
		calls.Wait()
		c.Fatalf("nothing comes to the step %q", step)
	}
	calls.Wait()
	c.start(0)
	advance(c.T, c.as(c.operator), 20*time.Second) // later than whatever the dead one has leased
}

// F11: the process ends before and after each write and each call of an order, a refund and an
// event. After a restart the service decides the order without a caller. The order then has one
// charge and one grant, or neither.
// F11
func TestCardKill_ServiceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		ctx := t.Context()
		c := newCashier(t, o, 1)
		stepFile := filepath.Join(t.TempDir(), "step")
		c.services[0].Kill()
		text := must.Get(json.Marshal(stepped{
			Data:          c.o.Data,
			Database:      c.o.Database,
			MasterKeyFile: c.o.MasterKeyFile,
			Listen:        c.o.Listen,
			Stripe:        c.bank.url,
			StepFile:      stepFile,
		}))(t)
		c.program, c.o.Env = os.Args[0], append(c.o.Env, envSteps+"="+string(text))
		c.start(0)
		k, method := c.shops("buyer", plainCard)
		limit := c.limit(k, method, 100_000)
		asks := c.limit(k, c.enrolled(k, askingCard), 100_000)
		once := func(key string) context.Context {
			return client.WithIdempotencyKey(ctx, strings.ReplaceAll(key, " ", "-"))
		}
		grants := toll.Credits(0)
		paid := func(what, id string) {
			t.Helper()
			o, err := c.as(k).Order(ctx, id)
			if n, kept := captured(c.bank.books(), id); err != nil || !isPaid(o.Status) || n != 1 || kept != 1 {
				t.Errorf("%s: %+v, %v, charged %d times, kept %d", what, o, err, n, kept)
			}
			grants += 100
		}
		var last string
		for _, step := range []string{"card.calling", "card.answered", "card.deciding", "card.decided"} {
			key := once("delegation " + step)
			c.dies(stepFile, step, func() { _, _ = c.hasty(k, 0).OrderPlan(key, c.plan, client.PaidBy(limit)) })
			c.settled()
			last = c.buys(key, k, limit).OrderID
			paid("delegation, "+step, last)
		}
		for _, step := range []string{"card.calling", "card.answered"} {
			key := once("page " + step)
			c.dies(stepFile, step, func() {
				_, _ = c.hasty(k, 0).Checkout(key, c.plan, client.CheckoutParams{SessionType: "hosted"})
			})
			id, link := c.checkout(key, k)
			p := newShopper(t)
			eventually(t, "the page is paid", func() bool { return p.pays(link, plainCard) == nil })
			c.settled()
			paid("page, "+step, id)
		}
		for _, step := range []string{"card.deciding", "card.decided", "card.event", "card.cursor"} {
			if step == "card.cursor" {
				c.bank.fault(double.Fault{Kind: "lose", Count: 5})
			}
			id, link := c.checkout(once("paid "+step), k)
			p := newShopper(t)
			c.dies(stepFile, step, func() { _ = p.pays(link, plainCard) })
			if n, _ := captured(c.bank.books(), id); n == 0 { // it died for another event
				eventually(t, "the page is paid", func() bool { return p.pays(link, plainCard) == nil })
			}
			c.settled()
			paid("paid page, "+step, id)
		}
		c.bank.fault(double.Fault{Kind: "clear"})

		key := once("owner wanted")
		c.dies(stepFile, "card.ending", func() { _, _ = c.hasty(k, 0).OrderPlan(key, c.plan, client.PaidBy(asks)) })
		c.settled()
		if n := c.count("SELECT COUNT(*) FROM orders WHERE delegation_id = $1 AND status = 'failed'", asks); n != 1 {
			t.Errorf("%d orders failed that wanted the owner", n)
		}

		for i, step := range []string{"card.refunding", "card.refunded", "card.adjusting"} {
			key := once("refund " + step)
			c.dies(stepFile, step, func() { _, _ = c.hasty(c.builder, 0).RefundOrder(key, last, 100) })
			if _, err := c.as(c.builder).RefundOrder(key, last, 100); err != nil {
				t.Errorf("%s: the repeat: %v", step, err)
			}
			eventually(t, "the refund is made", func() bool {
				o, err := c.as(k).Order(ctx, last)
				return err == nil && int(o.RefundedCents) == 100*(i+1)
			})
		}
		if n := c.bank.books().Currencies["usd"].Refunded; n != 300 {
			t.Errorf("%d cents were refunded", n)
		}
		if b, err := c.as(k).Balance(ctx, c.plan); err != nil || b.Balance != grants-60 {
			t.Errorf("%+v, %v, want %s", b, err, fmt.Sprint(grants-60))
		}
	})
}
