package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/x402"
)

// devChat are the two cores of toll dev: of the subscriber, who asks in a chat, and of the builder, whose agent is asked.
type devChat struct {
	buyer, seller core
	planID        toll.PlanID
	agentURL      string
}

type core struct {
	listener net.Listener
	dir      string
	core     *gateway.Core
}

// openChat makes the demo agent of the builder and both cores. close ends them.
func (m *market) openChat(ctx context.Context, address string) (c *devChat, close func() error, err error) {
	c = &devChat{}
	if c.buyer.listener, err = server.Listen(ctx, address); err != nil {
		return nil, nil, err
	}
	if c.seller.listener, err = server.Listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, nil, errors.Join(err, c.buyer.listener.Close())
	}
	url := "http://" + c.seller.listener.Addr().String()
	c.agentURL = url + m.service.Namespace().AgentPath()
	on := true
	if err = m.sellDemo(ctx, c); err == nil {
		err = m.openCore(&c.seller, "gateway-seller", m.builder, gateway.Config{
			PlanID:             c.planID,
			PublicURL:          url,
			EnablePaidEndpoint: &on,
		})
	}
	if err == nil {
		err = m.openCore(&c.buyer, "gateway", m.subscriber, gateway.Config{PlanID: c.planID})
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.buyer.listener.Close(), c.seller.listener.Close())
	}
	endBuyer, endSeller := c.buyer.serve(ctx, m.log), c.seller.serve(ctx, m.log)
	return c, func() error { return errors.Join(endBuyer(), endSeller()) }, nil
}

// sellDemo registers the demo agent of the builder with a plan.
func (m *market) sellDemo(ctx context.Context, c *devChat) error {
	made, err := m.builder.client.RegisterAgentWithPlan(ctx,
		client.AgentParams{
			Metadata: toll.Metadata{Name: "Demo agent", Description: "Repeats your prompt"},
			API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: http.MethodPost, URL: c.agentURL}}},
		},
		client.PlanParams{
			Metadata: toll.Metadata{Name: "Demo agent, 20 credits"},
			Price: toll.Price{
				TokenAddress: toll.Sandbox.USDC(),
				Amounts:      []toll.Units{toll.UnitsOf(devPrice / 2)},
				Receivers:    []toll.Address{m.builder.address},
				IsCrypto:     true,
			},
			Credits: toll.CreditsConfig{Amount: 20, MinAmount: 1, MaxAmount: 1},
		})
	if err == nil {
		c.planID = made.PlanID
	}
	return err
}

func (m *market) openCore(c *core, name string, p person, config gateway.Config) (err error) {
	key, err := os.ReadFile(p.keyFile)
	if err != nil {
		return err
	}
	config.APIKey, config.BaseURL = strings.TrimSpace(string(key)), m.url()
	c.dir = filepath.Join(m.dir, name)
	c.core, err = gateway.New(gateway.Options{
		Config:  config,
		Dir:     c.dir,
		Names:   m.service.Namespace(),
		Listen:  c.listener.Addr().String(),
		Version: release(),
		Log:     m.log,
	})
	return err
}

// serve runs the core until the function that it returns is called.
func (c *core) serve(ctx context.Context, log *slog.Logger) (end func() error) {
	stop := background(ctx, func(ctx context.Context) error { return serveCore(ctx, c.core, c.listener, log) })
	return func() error {
		c.core.Close()
		return stop()
	}
}

func (c *core) url() string { return "http://" + c.listener.Addr().String() }

// tool calls a tool of the subscriber's core, as a chat host would.
func (c *devChat) tool(ctx context.Context, name string, params map[string]any, into any) error {
	in, err := x402.Encode(params)
	if err != nil {
		return err
	}
	result, err := c.buyer.core.Call(ctx, name, in, "", gateway.Caller{SessionKey: "toll dev", SenderIsOwner: true, Channel: "dev"})
	if err != nil {
		return err
	}
	return x402.Decode(result, into)
}

// showChat has the subscriber buy and use a plan with the tools of a chat. Nothing is bought before it is confirmed.
func (m *market) showChat(ctx context.Context, s *stage, c *devChat) error {
	s.heading("In a chat, the subscriber orders the plan of a demo agent, confirms its price, and calls the agent")
	order := m.service.Namespace().Tool("orderPlan")
	var quote struct {
		Price                string `json:"price"`
		Currency             string `json:"currency"`
		RequiresConfirmation bool   `json:"requiresConfirmation"`
	}
	if err := c.tool(ctx, order, map[string]any{}, &quote); err != nil {
		return err
	}
	var bought struct {
		Success bool   `json:"success"`
		OrderID string `json:"orderId"`
		Balance string `json:"balance"`
	}
	if err := c.tool(ctx, order, map[string]any{"confirm": true}, &bought); err != nil {
		return err
	}
	var answered agentAnswer
	params := map[string]any{"agentUrl": c.agentURL, "prompt": "What do you do?"}
	if err := c.tool(ctx, m.service.Namespace().Tool("queryAgent"), params, &answered); err != nil {
		return err
	}
	if !quote.RequiresConfirmation || !bought.Success || answered.Payment == nil || answered.Payment.CreditsRedeemed != "1" {
		return fmt.Errorf("the chat returned the quote %+v, the order %+v, and the answer %s", quote, bought, answered.Response)
	}
	s.facts(
		"quote", strings.TrimSpace(quote.Price+" "+quote.Currency)+"   nothing is bought before you confirm",
		"order", bought.OrderID+"   "+bought.Balance+" credits",
		"answer", string(answered.Response),
		"receipt", answered.Payment.CreditsRedeemed+" credit, "+answered.Payment.RemainingBalance+" left",
	)
	return nil
}

// showHosts prints what a chat host needs to use the core of the subscriber. The token in it is made for this market only.
func (m *market) showHosts(s *stage, c *devChat) error {
	token, err := gateway.CoreToken(c.buyer.dir)
	if err != nil {
		return err
	}
	names := m.service.Namespace()
	s.title("Connect a chat host on this machine")
	field := "openclaw config set plugins.entries." + names.PluginID() + ".config."
	url := c.buyer.url()
	for _, l := range []struct{ what, lines string }{
		{"call the demo agent through the core", fmt.Sprintf("%s gateway ask %s %s --core-url %s --data %s",
			program(), c.agentURL, quote("What do you do?"), url, quote(c.buyer.dir))},
		{"OpenClaw, with the plugin in gateway/openclaw",
			field + "coreUrl " + url + "\n" + field + "coreTokenFile " + quote(filepath.Join(c.buyer.dir, gateway.TokenFile))},
		{"any MCP host", fmt.Sprintf(`{"mcpServers": {%q: {"type": "http", "url": "%s/mcp", "headers": {"Authorization": "Bearer %s"}}}}`,
			names.Scheme, url, token)},
		{"check the setup", fmt.Sprintf("%s gateway doctor --core-url %s --data %s --url %s --api-key-file %s",
			program(), url, quote(c.buyer.dir), m.url(), quote(m.subscriber.keyFile))},
	} {
		fmt.Fprintf(s.out, "%s\n%s\n\n", s.style("# "+l.what, faint), l.lines)
	}
	return nil
}

// startChat shows the chat gateway if --gateway is set. end stops its cores.
func startChat(ctx context.Context, f devFlags, m *market, s *stage) (c *devChat, end func() error, err error) {
	if !f.gateway {
		return nil, func() error { return nil }, nil
	}
	c, end, err = m.openChat(ctx, f.gatewayListen)
	if err != nil {
		return nil, nil, err
	}
	if err = m.showChat(ctx, s, c); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return c, end, nil
}
