package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// The commands of an operator that read and write the database of cards, beside a running service.
func TestCardCommands(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		c := newCashier(t, o, 1)
		ctx := t.Context()
		k, method := c.shops("buyer", plainCard)
		order := must.Get(c.as(k).OrderPlan(ctx, c.plan, client.PaidBy(c.limit(k, method, 1000))))(t)
		token := must.Get(c.as(k).AccessToken(ctx, c.plan))(t)
		for _, id := range []string{"one", "two"} {
			r, err := c.as(c.builder).Settle(ctx, cardRequest(c.plan, token.AccessToken, id, 1))
			if err != nil || !r.Success {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		must.Get(c.as(c.builder).Mint(ctx, c.plan, k.Address, 7, 0))(t)
		must.Get(c.as(c.builder).TakeBack(ctx, c.plan, k.Address, 3))(t)
		run := func(code int, into any, args ...string) string {
			t.Helper()
			out, got := servertest.Run(t, servertest.Program(t), o, append(args, "-o", "json")...)
			if got != code {
				t.Fatalf("toll %s: %d\n%s", strings.Join(args, " "), got, out)
			}
			if into != nil {
				if err := json.Unmarshal([]byte(out[max(strings.IndexAny(out, "{["), 0):]), into); err != nil {
					t.Fatalf("toll %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
			return out
		}
		var story admin.OrderEvidence
		run(0, &story, "orders", "evidence", order.OrderID)
		if story.Payment == nil || story.Payment.Cents != 500 || story.Payment.ByPage || story.Payment.Charge == "" || len(story.Payment.Moves) != 1 ||
			len(story.Receipts) != 2 || story.Receipts[0].AgentRequestID != "one" || story.Receipts[1].Credits != 1 ||
			len(story.TakenByHand) != 1 || story.TakenByHand[0].Credits != 3 {
			t.Errorf("%+v, %+v", story, story.Payment)
		}
		var owed []card.Owed
		text := run(0, &owed, "payouts", "list")
		if len(owed) != 1 || owed[0].Orders != 1 || owed[0].Charged != 500 || owed[0].Fees < 1 || owed[0].Due != 500-owed[0].Fees ||
			!strings.Contains(text, `"orders": 1,`) || !strings.Contains(text, `"charged": "500"`) {
			t.Fatalf("%s", text)
		}
		mark := []string{
			"payouts", "mark", "--builder", c.builder.Address.String(), "--month", owed[0].Month, "--currency", "usd", "--amount-cents", owed[0].Due.String(),
			"--id", "6fa1c0de-0000-4000-8000-000000000001",
		}
		for range 2 {
			run(0, nil, mark...)
		}
		if out := run(1, nil, append(mark[:len(mark)-1], "6fa1c0de-0000-4000-8000-000000000002")...); !strings.Contains(out, "the payout exceeds what the builder is owed: 0 cents") {
			t.Errorf("%s", out)
		}
		if run(0, &owed, "payouts", "list"); len(owed) != 1 || owed[0].Due != 0 {
			t.Errorf("%+v", owed)
		}
		o.Env = append(o.Env, "TOLL_STRIPE_SECRET_KEY="+stripeKey)
		out := run(0, nil, "doctor", "--url", c.services[0].URL, "--stripe-url", c.bank.url)
		if !strings.Contains(out, "API version 2026-03-25.dahlia") || strings.Contains(out, stripeKey) {
			t.Errorf("%s", out)
		}
	})
}
