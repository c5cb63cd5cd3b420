package paidmcp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// renewer is a teller that renews, as the service does.
type renewer struct {
	*teller
	renewed atomic.Int64
}

func (f *renewer) Renew(ctx context.Context, r *x402.RenewRequest) (*x402.RenewResponse, error) {
	f.renewed.Add(1)
	return f.Facilitator.(x402.Renewer).Renew(ctx, r)
}

// TestLongCall: a call that takes longer than its hold is answered, with and without a stream, as its hold is renewed.
// T103
func TestLongCall(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]paidmcp.Option{"call": {paidmcp.Credits(3)}, "stream": {paidmcp.Credits(3), paidmcp.Stream()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := service(t)
			ann := svc.Subscriber(50)
			f := &renewer{teller: &teller{Facilitator: svc.Facilitator()}}
			log, _ := quiet()
			s := shopOf(svc, f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, HoldSecs: 8}, opts...)
			s.work = func(ctx context.Context, _ mcp.Request) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(13 * time.Second):
					return nil
				}
			}
			before := ann.Balance()
			l := dial(t, s.server, eras[0])
			l.send(l.request("slow", items[0], map[string]any{"x402/payment": ann.AccessToken}))
			within(t, "the answer", func() bool { return strings.Contains(l.sent(), content) })
			if burned := before - ann.Balance(); burned != 3 || f.renewed.Load() < 2 {
				t.Errorf("burned %s, renewed %d times", burned, f.renewed.Load())
			}
		})
	}
}
