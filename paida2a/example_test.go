package paida2a_test

import (
	"context"
	"net/http"
	"os"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paida2a"
)

// adviser is an agent. It answers with one message.
type adviser struct{}

func (adviser) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	return q.Write(ctx, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: "42"}))
}

func (adviser) Cancel(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { return nil }

func ExampleHandler() {
	c := client.New(os.Getenv("TOLL_API_KEY"), client.WithURL(os.Getenv("TOLL_URL")))
	http.Handle("/", paida2a.Handler(c, adviser{}, paida2a.Config{
		PlanID: toll.PlanID(os.Getenv("TOLL_PLAN")), AgentID: toll.AgentID(os.Getenv("TOLL_AGENT")), Credits: 5,
		Card: a2a.AgentCard{Name: "demo", Description: "Ask the agent", URL: "https://agent.example.com/"},
	}))
}
