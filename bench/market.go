package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

const (
	connections = 64
	plenty      = toll.Credits(1_000_000_000)
	// idText stands in a body where every request has an id of its own, as an agent that calls settle sends it.
	idText   = "bench-0000000000000000"
	idPrefix = len("bench-")
	holdSecs = 300 // longer than a slice: nothing lapses while it is measured
)

// market is a service with a builder, and subscribers with credits and access tokens.
type market struct {
	engine      string
	role        serviceRole
	service     *process
	more        []*process // services on the same database
	peer        *process   // nil: no scenario needs it
	agent       *process   // nil: no scenario needs it
	sdks        map[string]*process
	builder     *client.Client
	key         string
	plan        toll.PlanID
	seller      toll.AgentID
	tokens      []string       // of the subscribers; the first is the hot one and in no other scenario
	cold        []string       // of subscribers that settle once after a start of the service
	subscribers []toll.Address // with the tokens
	needed      *x402.PaymentRequired
	sample      json.RawMessage // an answer to a settle
	shop        *shop           // nil: its plan costs nothing
	settled     int             // requests that were answered as settled, each a burn
	unclear     int             // settles that were not answered in time: each may be a burn
	others      int             // events of the builder that tell of something else than a settlement
}

func openMarket(ctx context.Context, engine string, r serviceRole, subscribers, cold int, withAgent bool) (_ *market, err error) {
	m := &market{engine: kindOf(engine), role: r}
	if m.service, err = spawn("service-"+engine, role{Service: &r}); err != nil {
		return nil, err
	}
	if err = m.fill(ctx, subscribers, cold); err == nil && withAgent {
		m.agent, err = spawn("agent-"+engine, role{Agent: &agentRole{URL: m.url(), Key: m.key, Plan: m.plan, Agent: m.seller}})
	}
	if err != nil {
		_ = m.service.end() // the first error counts
		return nil, err
	}
	return m, nil
}

func (m *market) url() string { return "http://" + m.service.addr }

func (m *market) fill(ctx context.Context, subscribers, cold int) error {
	names := []string{"builder"}
	for i := range 1 + subscribers + cold {
		names = append(names, "subscriber "+strconv.Itoa(i))
	}
	a, err := m.service.say(order{Keys: names})
	if err != nil {
		return err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 32
	defer t.CloseIdleConnections()
	as := func(h holder) *client.Client {
		return client.New(h.Key, client.WithURL(m.url()), client.WithHTTPClient(&http.Client{Transport: t}))
	}
	m.builder, m.key = as(a.Keys[0]), a.Keys[0].Key
	got, err := m.builder.RegisterAgentWithPlan(ctx, client.AgentParams{Metadata: toll.Metadata{Name: "Bench agent"}}, client.PlanParams{
		Metadata: toll.Metadata{Name: "Bench plan"},
		Price: toll.Price{
			TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{a.Keys[0].Address}, IsCrypto: true,
		},
		Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	})
	if err != nil {
		return err
	}
	m.plan, m.seller = got.PlanID, got.AgentID
	m.tokens = make([]string, 1+subscribers+cold)
	for _, h := range a.Keys[1 : 2+subscribers] {
		m.subscribers = append(m.subscribers, h.Address)
	}
	err = together(len(m.tokens), func(i int) error {
		h := a.Keys[i+1]
		if _, err := m.builder.Mint(ctx, m.plan, h.Address, plenty, 0); err != nil {
			return err
		}
		t, err := as(h).AccessToken(ctx, m.plan, client.WithAgent(m.seller), client.WithRedemptionLimit(plenty), client.WithExpiry(24*time.Hour))
		if err == nil {
			m.tokens[i] = t.AccessToken
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("credits and access tokens: %w", err)
	}
	if err := m.taste(ctx); err != nil {
		return err
	}
	m.tokens, m.cold = m.tokens[:1+subscribers], m.tokens[1+subscribers:]
	return nil
}

// taste settles one request, to learn the terms and what an answer looks like.
func (m *market) taste(ctx context.Context) error {
	terms, err := m.builder.Terms(ctx, m.plan)
	if err != nil {
		return err
	}
	one := toll.Credits(1)
	m.needed = x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "/ask", AgentID: m.seller, HTTPVerb: http.MethodPost, Amount: &one})
	s, err := m.builder.Settle(ctx, &x402.SettleRequest{
		PaymentRequired: *m.needed, AccessToken: m.tokens[0], MaxAmount: &one, AgentRequestID: "bench-first-settlement",
	})
	if err != nil {
		return err
	}
	if !s.Success {
		return fmt.Errorf("the first settlement was refused: %s", s.ErrorMessage)
	}
	m.sample = s.Raw
	m.settled++
	return m.countOthers()
}

// post makes a request as the client of this release sends it.
func (m *market) post(addr, path string, body any) (message, error) {
	text, err := x402.Encode(body)
	if err != nil {
		return message{}, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: toll-bench\r\nContent-Length: %d\r\nAccept: application/json\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\n%s: %s\r\n\r\n%s", path, addr, len(text), m.key, x402.Default.HeaderVersion(), client.Version, text)
	out := message{raw: b.Bytes()}
	if at := bytes.Index(out.raw, []byte(idText)); at >= 0 {
		out.id = at + idPrefix
	}
	return out, nil
}

func (m *market) verify(token string, hold bool) (message, error) {
	one := toll.Credits(1)
	req := &x402.VerifyRequest{PaymentRequired: *m.needed, AccessToken: token, MaxAmount: &one, Hold: hold}
	if hold {
		req.HoldSecs = holdSecs
	}
	return m.post(m.service.addr, "/api/v1/x402/verify", req)
}

func (m *market) settle(addr, path, token string) (message, error) {
	one := toll.Credits(1)
	return m.post(addr, path, &x402.SettleRequest{PaymentRequired: *m.needed, AccessToken: token, MaxAmount: &one, AgentRequestID: idText})
}

func (m *market) release(id string) (message, error) {
	return m.post(m.service.addr, "/api/v1/x402/release", &x402.ReleaseRequest{AgentRequestID: id})
}

// paidCall is a request to the agent, as a subscriber sends it.
func (m *market) paidCall(token string) (message, error) {
	return callOf(m.agent.addr, "/ask", token), nil
}

// lanes deals a request of each of the tokens out to n connections. When there are fewer tokens than connections, all
// connections send the same, each in a copy of its own.
func lanes(n int, tokens []string, make func(token string) (message, error)) ([][]message, error) {
	out := slices.Repeat([][]message{nil}, n)
	for i := range max(len(tokens), n) {
		msg, err := make(tokens[i%len(tokens)])
		if err != nil {
			return nil, err
		}
		out[i%n] = append(out[i%n], msg)
	}
	return out, nil
}
