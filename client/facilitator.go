package client

import (
	"cmp"
	"context"
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

var (
	_ x402.Facilitator = (*Client)(nil)
	_ x402.Renewer     = (*Client)(nil)
)

// Terms returns the plan data that a server needs to demand payment.
func (c *Client) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	p, err := c.Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	env, network, err := c.home(ctx)
	if err != nil {
		return nil, err
	}
	t := &x402.Terms{
		PlanID: p.ID, PlanName: p.Metadata.Name, Scheme: c.names.SchemeCrypto(), Network: network, PayTo: p.PayTo().String(),
		MinAmount: p.Credits.MinAmount, MaxAmount: p.Credits.MaxAmount, Kind: p.Kind(),
	}
	if !p.Price.IsCrypto && !p.Price.IsFree() {
		t.Scheme, t.Network = c.names.SchemeCard(), env.CardNetwork()
	}
	if i := c.info.Load(); i != nil {
		t.ServiceURL = i.APIBase
	}
	if t.ServiceURL != "" && soldToWallets(p, env) {
		t.OrderURL = t.ServiceURL + "/x402/plans/" + string(p.ID) + "/order"
	}
	return t, nil
}

// soldToWallets reports whether a wallet can buy the plan with a signed token authorization.
func soldToWallets(p *toll.Plan, env toll.Environment) bool {
	token := p.Price.PayToken(env)
	return p.Price.IsCrypto && !p.Price.IsFree() && p.Kind().Prepaid() && !p.IsTrial && p.IsListed && len(p.Price.Receivers) == 1 &&
		(token == env.USDC() || token == env.EURC())
}

// AgentPlanIDs returns the ids of the listed plans of an agent, oldest first, at most 100, for servers without a configured plan.
func (c *Client) AgentPlanIDs(ctx context.Context, agent toll.AgentID) ([]toll.PlanID, error) {
	var ids []toll.PlanID
	for p, err := range c.AgentPlans(ctx, agent, PageSize(100), Ascending()) {
		if err != nil {
			return nil, err
		}
		if p.IsListed {
			ids = append(ids, p.ID)
		}
		if len(ids) == 100 {
			break
		}
	}
	return ids, nil
}

// home returns the environment and the network of the service, which are constant and therefore cached.
func (c *Client) home(ctx context.Context) (toll.Environment, string, error) {
	if i := c.info.Load(); i != nil {
		return i.Environment, i.Network, nil
	}
	i, err := c.Info(ctx)
	if err != nil {
		return "", "", err
	}
	i.Network = cmp.Or(i.Network, i.Environment.Network())
	c.info.Store(i)
	return i.Environment, i.Network, nil
}

// Verify checks a payment. A refusal is a response with a nil error. Verify retries only if that cannot create a second hold: without a
// hold, or, if the request has its own id (AgentRequestID, or the nonce of a stock body), after a response that rules out an effect.
func (c *Client) Verify(ctx context.Context, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	stock := req.Stock != nil
	var v x402.VerifyResponse
	_, e, err := c.judged(ctx, call{
		path: api("/x402/verify"), body: req, idempotent: stock || !req.Hold || req.AgentRequestID != "",
		// A hold with a lost response is in progress, and a retry would be refused.
		refused: stock || req.Hold,
	}, &v)
	if err != nil {
		return nil, err
	}
	if e != nil {
		if e.Status == http.StatusServiceUnavailable || failed(v.InvalidReason) {
			return nil, e
		}
		v.IsValid, v.Code = false, e.Code
		v.InvalidMessage = cmp.Or(v.InvalidMessage, e.Text())
	}
	return &v, nil
}

// judged sends a verify or settle call and decodes its verdict. e is the error of a response with a status other than 200.
func (c *Client) judged(ctx context.Context, cl call, verdict any) (a *answer, e *toll.Error, err error) {
	cl.method = http.MethodPost
	if a, err = c.send(ctx, cl); err != nil {
		return nil, nil, err
	}
	if a.status != http.StatusOK {
		e = a.err()
	}
	switch a.status {
	case http.StatusOK, http.StatusBadRequest, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default: // the call failed: invalid key, size limit, or service failure
		return nil, nil, e
	}
	if err := x402.Decode(a.body, verdict); err != nil {
		return nil, nil, cmp.Or(e, unreadable(a, err))
	}
	return a, e, nil
}

// failed reports whether a reason concerns the call rather than the payment.
func failed(reason string) bool {
	return reason == "" || reason == x402.ReasonRateLimited || reason == x402.ReasonUnauthorizedServer
}

// Settle burns credits. With an AgentRequestID it is safe to retry, since the service burns once per id. An error means that the
// outcome is unknown, and so does the errorReason settlement_pending.
func (c *Client) Settle(ctx context.Context, req *x402.SettleRequest) (*x402.SettleResponse, error) {
	var s x402.SettleResponse
	a, e, err := c.judged(ctx, call{
		path: api("/x402/settle"), body: req, idempotent: req.AgentRequestID != "" || req.Stock != nil,
		// The repeat of a stock body is a duplicate unless a verify opened the request, which only the caller knows.
		refused: req.Stock != nil,
	}, &s)
	if err != nil {
		return nil, err
	}
	if e != nil {
		if failed(s.ErrorReason) || e.Status == http.StatusServiceUnavailable && s.ErrorReason != x402.ReasonPending {
			return nil, e
		}
		s.Success, s.Code, s.Details = false, e.Code, e.Details
		s.ErrorMessage = cmp.Or(s.ErrorMessage, e.Text())
	}
	s.Raw = a.body
	s.Replayed = a.header.Get("Idempotency-Replayed") == "true"
	return &s, nil
}

// Release releases a hold without burning credits. Repeating it returns the same response.
func (c *Client) Release(ctx context.Context, req *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	return fetch[x402.ReleaseResponse](ctx, c, call{method: http.MethodPost, path: api("/x402/release"), body: req, idempotent: true})
}

// Renew extends an open hold. It is safe to repeat.
func (c *Client) Renew(ctx context.Context, req *x402.RenewRequest) (*x402.RenewResponse, error) {
	return fetch[x402.RenewResponse](ctx, c, call{method: http.MethodPost, path: api("/x402/renew"), body: req, idempotent: true})
}
