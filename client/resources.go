package client

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Call calls any operation. path begins with "/". Call sends in as JSON (nil: no body) and decodes a 2xx body into out (nil:
// ignored; *json.RawMessage: the unchanged body). It retries only GET, except after 408.
func (c *Client) Call(
	ctx context.Context, method, path string, query url.Values, in, out any,
) error {
	cl := call{
		method: method, path: path, query: query, body: in, idempotent: method == http.MethodGet,
		key: idempotencyKey(ctx), ifMatch: ifMatch(ctx),
	}
	raw, isRaw := out.(*json.RawMessage)
	if isRaw {
		out = nil
	}
	a, err := c.do(ctx, cl, out)
	if isRaw && err == nil {
		*raw = a.body
	}
	return err
}

// fetch sends the call and returns its record.
func fetch[T any](ctx context.Context, c *Client, cl call) (*T, error) {
	out := new(T)
	if _, err := c.do(ctx, cl, out); err != nil {
		return nil, err
	}
	return out, nil
}

func get[T any](ctx context.Context, c *Client, path string) (*T, error) {
	return fetch[T](ctx, c, call{method: http.MethodGet, path: path, idempotent: true})
}

// create calls a route with an Idempotency-Key. A repeat under the same key returns the first response, so it is safe to retry.
func create[T any](ctx context.Context, c *Client, path string, in any) (*T, error) {
	key := cmp.Or(idempotencyKey(ctx), toll.NewUUID())
	return fetch[T](ctx, c, call{method: http.MethodPost, path: path, body: in, idempotent: true, key: key})
}

// act sends a change that has no further effect when repeated, so it is safe to retry.
func (c *Client) act(ctx context.Context, method, path string, in any) (*toll.ActResult, error) {
	return fetch[toll.ActResult](ctx, c, call{method: method, path: path, body: in, idempotent: true, ifMatch: ifMatch(ctx)})
}

// remove sends a removal. The service refuses to repeat it, so it is retried only after a response that rules out an effect.
func remove[T any](ctx context.Context, c *Client, path string) (*T, error) {
	return fetch[T](ctx, c, call{method: http.MethodDelete, path: path, idempotent: true, refused: true, ifMatch: ifMatch(ctx)})
}

type idempotencyContext struct{}

// WithIdempotencyKey sets the key, 1 to 255 visible ASCII characters, of the next creation under this context. For 24 hours, the service
// answers the same key and content with the stored response, even to another process. By default, every creation has its own random key.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyContext{}, key)
}

func idempotencyKey(ctx context.Context) string {
	k, _ := ctx.Value(idempotencyContext{}).(string)
	return k
}

// RegisterAgentWithPlan registers an agent and its plan atomically. It ignores agent.Plans.
func (c *Client) RegisterAgentWithPlan(ctx context.Context, agent AgentParams, plan PlanParams) (*Registered, error) {
	in := struct {
		Agent agentBody `json:"agent"`
		Plan  planBody  `json:"plan"`
	}{agent.body(), plan.body()}
	in.Agent.Plans = nil
	return create[Registered](ctx, c, api("/protocol/agents/plans"), in)
}

// RegisterAgent registers an agent for plans of the caller.
func (c *Client) RegisterAgent(ctx context.Context, agent AgentParams) (*Registered, error) {
	return create[Registered](ctx, c, api("/protocol/agents"), agent.body())
}

// RegisterPlan registers a plan. Its price and credits never change.
func (c *Client) RegisterPlan(ctx context.Context, plan PlanParams) (*Registered, error) {
	return create[Registered](ctx, c, api("/protocol/plans"), plan.body())
}

// Plan returns a plan.
func (c *Client) Plan(ctx context.Context, id toll.PlanID) (*toll.Plan, error) {
	return get[toll.Plan](ctx, c, api("/protocol/plans/%s", string(id)))
}

// Plans lists the plans of the caller.
func (c *Client) Plans(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Plan, error] {
	return list[toll.Plan](ctx, c, api("/protocol/plans"), "plans", opts)
}

// Agent returns an agent.
func (c *Client) Agent(ctx context.Context, id toll.AgentID) (*toll.Agent, error) {
	return get[toll.Agent](ctx, c, api("/protocol/agents/%s", string(id)))
}

// Agents lists the agents of the caller.
func (c *Client) Agents(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Agent, error] {
	return list[toll.Agent](ctx, c, api("/protocol/agents"), "agents", opts)
}

// AgentPlans lists the plans of an agent.
func (c *Client) AgentPlans(ctx context.Context, id toll.AgentID, opts ...ListOption) iter.Seq2[*toll.Plan, error] {
	return list[toll.Plan](ctx, c, api("/protocol/agents/%s/plans", string(id)), "plans", opts)
}

// PlanAgents lists the agents of a plan.
func (c *Client) PlanAgents(ctx context.Context, id toll.PlanID, opts ...ListOption) iter.Seq2[*toll.Agent, error] {
	return list[toll.Agent](ctx, c, api("/protocol/plans/%s/agents", string(id)), "agents", opts)
}

// Found is a result of [Client.Search]. Type is plan, agent, order, apiKey, permission, delegation or webhook.
type Found struct {
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Name      *string   `json:"name"`
	CreatedAt toll.Time `json:"createdAt"`
}

// Search returns records of the caller whose id or name begins with text, at most 20 of each type. A nonempty typ selects one
// type. more reports whether more records match.
func (c *Client) Search(ctx context.Context, text, typ string) (found []Found, more bool, err error) {
	q := url.Values{"q": {text}}
	if typ != "" {
		q.Set("type", typ)
	}
	var out struct {
		Results []Found `json:"results"`
		More    bool    `json:"more"`
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: api("/protocol/search"), query: q, idempotent: true}, &out)
	return out.Results, out.More, err
}

// Subscribers lists the balance of each subscriber of a plan of the caller, sorted by address and without lots.
func (c *Client) Subscribers(ctx context.Context, id toll.PlanID, opts ...ListOption) iter.Seq2[*toll.Balance, error] {
	return list[toll.Balance](ctx, c, api("/protocol/plans/%s/subscribers", string(id)), "subscribers", opts)
}

// Holdings lists the balances of the caller, sorted by plan id and without lots.
func (c *Client) Holdings(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Balance, error] {
	return list[toll.Balance](ctx, c, api("/protocol/holdings"), "holdings", opts)
}

// By groups usage and revenue by "hour", "day" (default), "plan", "agent" or "subscriber", and usage also by "upstream", "route" or "model".
func By(what string) ListOption { return Filter("by", what) }

// AsBuyer selects the caller's own usage instead of the usage of the caller's plans.
func AsBuyer() ListOption { return Filter("role", "buyer") }

// OfAgent filters by agent.
func OfAgent(id toll.AgentID) ListOption { return Filter("agentId", string(id)) }

// Usage sums the settlements of the caller's plans: see [By], [OfPlan], [OfAgent], [OfSubscriber], [Since] and [Until], and
// [AsBuyer] for the caller's own usage. It includes settlements after a few seconds.
func (c *Client) Usage(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Usage, error] {
	return list[toll.Usage](ctx, c, api("/protocol/usage"), "usage", opts)
}

// Revenue sums the payments for the caller's plans by currency and by "hour", "day" (default), or "plan": see [By].
func (c *Client) Revenue(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Revenue, error] {
	return list[toll.Revenue](ctx, c, api("/protocol/revenue"), "revenue", opts)
}

// Refusals counts the refusals of verify and settle for the caller's plans by "reason" (default), "hour", "day", "plan", or
// "agent": see [By]. The service updates the counts every 10 seconds.
func (c *Client) Refusals(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Refusals, error] {
	return list[toll.Refusals](ctx, c, api("/protocol/refusals"), "refusals", opts)
}

// Balance returns the caller's balance of a plan.
func (c *Client) Balance(ctx context.Context, id toll.PlanID) (*toll.Balance, error) {
	return get[toll.Balance](ctx, c, api("/protocol/plans/%s/balance", string(id)))
}

// BalanceOf returns the balance of an address for a plan.
func (c *Client) BalanceOf(ctx context.Context, id toll.PlanID, holder toll.Address) (*toll.Balance, error) {
	return get[toll.Balance](ctx, c, api("/protocol/plans/%s/balance/%s", string(id), holder.String()))
}

// Info returns the name, version, and network of the service.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	return get[Info](ctx, c, "/")
}

// Health reports whether the service is running.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return get[Health](ctx, c, "/health")
}

// Ready reports whether the service can serve requests, and the state of its parts. not_ready is a response, not an error.
func (c *Client) Ready(ctx context.Context) (*Readiness, error) {
	a, err := c.send(ctx, call{method: http.MethodGet, path: "/ready"})
	if err != nil {
		return nil, err
	}
	var out Readiness
	if err := x402.Decode(a.body, &out); err != nil || out.Status == "" {
		return nil, a.err()
	}
	return &out, nil
}

// Supported returns the accepted kinds of payments in the form of a standard x402 facilitator.
func (c *Client) Supported(ctx context.Context) (*x402.Supported, error) {
	return get[x402.Supported](ctx, c, api("/x402/supported"))
}

// BurnProof returns the proof that the burn with this transaction is in the mirror on the chain. Until it is published, Status is
// [toll.ProofOpen] and all other fields are empty. Errors: [toll.CodeBurnNotMirrored].
func (c *Client) BurnProof(ctx context.Context, transaction toll.Hash) (*toll.BurnProof, error) {
	return get[toll.BurnProof](ctx, c, api("/credits/proofs/%s", transaction.String()))
}

// Versions returns the API versions of the service and the effective version of this client.
func (c *Client) Versions(ctx context.Context) (*Versions, error) {
	return get[Versions](ctx, c, api("/meta/versions"))
}

// Requests lists the ended requests of the caller's plans with their receipts, sorted by end time: see [OfPlan], [OfAgent],
// [OfSubscriber], [InState], [Since], and [Until], at most 90 days, and [AsBuyer] for requests that the caller paid. It includes
// settlements after a few seconds.
func (c *Client) Requests(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Settlement, error] {
	return list[toll.Settlement](ctx, c, api("/protocol/requests"), "requests", opts)
}

// InState filters requests by state: "settled", "released", "lapsed", or "held". A held request has not ended.
func InState(status string) ListOption { return Filter("status", status) }

// Request returns a request with its state changes. The caller must be the plan's owner or the subscriber.
func (c *Client) Request(ctx context.Context, agentRequestID string) (*toll.RequestRecord, error) {
	return get[toll.RequestRecord](ctx, c, api("/protocol/requests/%s", agentRequestID))
}

// Settlement returns the outcome of a request. The caller must be the plan's owner or the subscriber.
func (c *Client) Settlement(ctx context.Context, agentRequestID string) (*toll.Settlement, error) {
	return get[toll.Settlement](ctx, c, api("/x402/settlements/%s", agentRequestID))
}

// SettlementByTransaction returns the outcome of the request with this transaction in its receipt.
func (c *Client) SettlementByTransaction(ctx context.Context, transaction string) (*toll.Settlement, error) {
	return fetch[toll.Settlement](ctx, c, call{
		method: http.MethodGet, path: api("/x402/settlements"), query: url.Values{"transaction": {transaction}}, idempotent: true,
	})
}
