package tolltest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// Clients that edit one agent at the same time, and others that add endpoints to it, lose nothing
// of each other.
func TestEditAgent_Race(t *testing.T) {
	svc := tolltest.New(t)
	c, id, ctx := svc.Client(), svc.Agent(), t.Context()
	const writers = 4
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			err := c.EditAgent(ctx, id, func(ctx context.Context, a *toll.Agent) error {
				tags := append(slices.Clone(a.Metadata.Tags), fmt.Sprintf("tag-%d", w))
				_, err := c.UpdateAgent(ctx, id, toll.AgentUpdate{Tags: toll.SetTo(tags)})
				return err
			})
			must.Check(t, err, "edit")
		})
		all.Go(func() {
			if _, err := c.AddEndpoints(
				ctx,
				id,
				toll.EndpointsInput{
					Endpoints: toll.EndpointList{{Verb: "POST", URL: fmt.Sprintf("/w%d", w)}},
				},
			); err != nil {
				t.Errorf("add: %v", err)
			}
		})
		all.Go(func() {
			err := c.EditPlan(ctx, svc.Plan(), func(ctx context.Context, p *toll.Plan) error {
				tags := append(slices.Clone(p.Metadata.Tags), fmt.Sprintf("tag-%d", w))
				_, err := c.UpdatePlan(ctx, p.ID, toll.PlanUpdate{Tags: toll.SetTo(tags)})
				return err
			})
			must.Check(t, err, "edit plan")
		})
	}
	all.Wait()
	a, err := c.Agent(ctx, id)
	if err != nil || len(a.Metadata.Tags) != writers {
		t.Errorf("tags %v, %v", a.Metadata.Tags, err)
	}
	for w := range writers {
		if !slices.Contains(
			a.API.Endpoints,
			toll.Endpoint{Verb: "POST", URL: fmt.Sprintf("/w%d", w)},
		) {
			t.Errorf("endpoint %d was lost: %v", w, a.API.Endpoints)
		}
	}
	if p, err := c.Plan(ctx, svc.Plan()); err != nil || len(p.Metadata.Tags) != writers {
		t.Errorf("tags of the plan %v, %v", p.Metadata.Tags, err)
	}
}
