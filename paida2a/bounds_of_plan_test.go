package paida2a_test

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
)

// TestPrice_BelowMinimum: the bounds of the plan count, for the offer and for what is burned.
func TestPrice_BelowMinimum(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPlan(client.PlanParams{
		Metadata: toll.Metadata{Name: "Five"}, Credits: toll.CreditsConfig{Amount: 50, MinAmount: 5, MaxAmount: 5},
	}))
	ann := svc.Subscriber(20)
	s := open(t, svc, func(c *paida2a.Config) { c.Credits = 1 })
	s.agent.work = answer
	task := s.ask()
	if got := task.Status.Message.Metadata.Required.Accepts[0].Amount; got != "5" {
		t.Errorf("offered for %s", got)
	}
	s.pay(task.ID, s.payload(task, ann)).Result.is(t, "completed", "payment-completed")
	if ann.Balance() != 15 {
		t.Errorf("balance %s", ann.Balance())
	}
}
