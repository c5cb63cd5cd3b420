package facilitator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// Verify says whether a request is payable, and with Hold sets its credits aside. It burns nothing; a free plan that was
// never ordered is ordered here, unless no credits are asked for and none are held, and what a hold lacks is bought
// through the delegation of the access token. A refusal is an answer. An error is a *toll.Error with a reason word and
// means that the call was wrong or failed: 400, 403, 404, 409 (settle_conflict), 429 (too_many_holds), 503 with
// params.agentRequestId (settlement_pending: an order is not decided; repeat the same call), other 5xx. With Stock all but
// 5xx are answers.
func (f *Facilitator) Verify(ctx context.Context, caller toll.Address, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	if req.Stock == nil && (req.HoldSecs < 0 || req.HoldSecs > x402.MaxHoldSecs) {
		return nil, malformed("holdSecs", "must be 1 to 900")
	}
	if f.isExact(req.Stock) {
		resp, e := f.verifyExact(ctx, caller, req.Stock)
		if e != nil {
			return f.refusedVerify(newPayment(true), e)
		}
		return resp, nil
	}
	p, resp, e := f.verify(ctx, caller, req)
	if e != nil {
		var err error
		if resp, err = f.refusedVerify(p, e); err != nil {
			return nil, err
		}
	}
	if p.token != nil {
		if d := declarationOf(req, p); d != nil {
			resp.ExtensionResponses = f.declared(ctx, p, resp.IsValid, d)
		}
	}
	return resp, nil
}

func (f *Facilitator) verify(ctx context.Context, caller toll.Address, req *x402.VerifyRequest) (*payment, *x402.VerifyResponse, *toll.Error) {
	in := &asked{stock: req.Stock, required: &req.PaymentRequired, token: req.AccessToken}
	if req.Stock == nil {
		in.requestID = req.AgentRequestID
	}
	p, e := f.read(ctx, caller, in)
	if e == nil && p.stock {
		e = sameAmount(p)
	}
	if e != nil {
		return p, nil, e
	}
	if e = f.bind(ctx, p); e != nil {
		return p, nil, e
	}
	if f.foreign(p.account, in.requestID) {
		return p, nil, refuse(toll.CodeSettleConflict, x402.ReasonConflict, "")
	}
	max, life, hold := req.MaxAmount, holdLife(req.HoldSecs), req.Hold
	if p.stock {
		if max, e = stockAmount(p); e != nil {
			return p, nil, e
		}
		life, hold = holdLife(int(min(p.entry.MaxTimeoutSeconds, x402.MaxHoldSecs)))+stockGrace, true
	}
	if e = f.afterToken(ctx, p, inBounds(p, max)); e != nil {
		return p, nil, e
	}
	orders := max == nil || *max > 0
	max = cmp.Or(max, &p.plan.Credits.MaxAmount)
	amount := p.plan.Effective(*max)
	var resp *x402.VerifyResponse
	if hold {
		resp, e = f.verifyWithHold(ctx, p, in.requestID, amount, life)
	} else {
		resp, e = f.verifyNow(ctx, p, in.requestID, amount, orders)
	}
	return p, resp, e
}

func holdLife(secs int) time.Duration {
	secs = cmp.Or(secs, x402.DefaultHoldSecs)
	return time.Duration(secs) * time.Second
}

// verifyWithHold lets the ledger decide. What is short is ordered, see [Facilitator.remedy].
func (f *Facilitator) verifyWithHold(ctx context.Context, p *payment, id string, amount toll.Credits, life time.Duration) (*x402.VerifyResponse, *toll.Error) {
	op := ledger.HoldOp{
		Plan: p.plan.ID, Subscriber: p.claims.Subscriber, Agent: p.agentID, Permission: p.claims.Hash,
		RequestID: id, Keys: p.keys, Resource: p.url, Amount: amount, Kind: p.plan.Kind(),
		Until: f.Clock().Add(life).Truncate(time.Microsecond),
	}
	if e := f.takeHold(p); e != nil {
		return nil, e
	}
	held, err := f.Ledger.Hold(ctx, op)
	if err != nil {
		lack := f.lacking(p, id)
		for err != nil {
			if e := f.remedy(ctx, lack, err); e != nil {
				f.freeHolds.Give(p.buyer()) // nothing was held
				return nil, e
			}
			op.RequestID, op.OrderTx = lack.id, lack.orderTx
			// Buying took its time; the hold gets its whole life.
			op.Until = f.Clock().Add(life).Truncate(time.Microsecond)
			held, err = f.Ledger.Hold(ctx, op)
		}
	}
	resp := f.valid(p, &held.Account, held.RequestID, amount)
	resp.Extra.HeldAmount = held.Amount.Ptr()
	resp.Extra.HoldExpiresAt = toll.AtPtr(held.Until)
	return resp, nil
}

// takeHold counts a hold for the quota of the subscriber with this builder: neither the builder's other subscribers nor the
// subscriber's other builders notice. [Facilitator.Settle] gives it back.
func (f *Facilitator) takeHold(p *payment) *toll.Error {
	e := f.freeHolds.Take(p.buyer(), 1)
	if e != nil {
		e.Code = toll.CodeTooManyHolds
		e = e.WithReason(x402.ReasonTooManyHolds)
	}
	return e
}

// verifyNow gives advice from a snapshot. A refusal from a cached one is confirmed by a fresh read. orders says that a free plan
// is ordered when it never was; who asks for no credits is told that it could be.
func (f *Facilitator) verifyNow(ctx context.Context, p *payment, id string, amount toll.Credits, orders bool) (*x402.VerifyResponse, *toll.Error) {
	if id != "" || len(p.keys) > 0 {
		r, ok, err := f.known(ctx, p, id)
		switch {
		case err != nil:
			return nil, toll.AsError(err)
		case ok && r.State == ledger.StateHeld && f.Clock().Before(r.HoldEndsAt): // else it has lapsed, and nobody wrote it yet
			return nil, refuse(toll.CodeRequestUsed, x402.ReasonInFlight, "")
		case ok:
			return nil, refuse(toll.CodeRequestUsed, x402.ReasonDuplicate, "")
		}
	}
	// The account first: its read gives the permission back what lapsed holds had set aside.
	account, accountCached, err := f.accounts.get(ctx, p.account)
	if err != nil {
		return nil, toll.AsError(err)
	}
	perm, permCached, err := f.permissions.get(ctx, p.permission())
	if err != nil {
		return nil, toll.AsError(err)
	}
	refusal := f.advise(&account, &perm, p, amount)
	if refusal != nil && (permCached || accountCached) {
		refusal, err = f.adviseAnew(ctx, &account, &perm, p, amount)
		if err != nil {
			return nil, toll.AsError(err)
		}
	}
	if refusal != nil && ordersItself(p.plan) && !orders && account.Orders == 0 && lacksOrder(refusal) {
		if !p.plan.IsListed {
			return nil, refuse(toll.CodePlanUnlisted, x402.ReasonPlanUnlisted, "")
		}
		refusal = nil
	}
	if refusal != nil && ordersItself(p.plan) {
		ordered, e := f.orderFree(ctx, p, refusal)
		if e != nil {
			return nil, e
		}
		if ordered {
			if refusal, err = f.adviseAnew(ctx, &account, &perm, p, amount); err != nil {
				return nil, toll.AsError(err)
			}
		}
	}
	if refusal != nil {
		if e := f.couldBuy(ctx, p, id, refusal); e != nil {
			return nil, e
		}
	}
	if id == "" {
		id = f.Ledger.NewRequestID(p.account)
	}
	return f.valid(p, &account, id, amount), nil
}

// advise judges as the ledger would: nil, or a *ledger.Refusal.
func (f *Facilitator) advise(a *ledger.Account, perm *ledger.Permission, p *payment, amount toll.Credits) error {
	return ledger.Judge(a, perm, amount, p.plan.Kind(), f.Clock())
}

// adviseAnew reads again what may have changed elsewhere.
func (f *Facilitator) adviseAnew(ctx context.Context, a *ledger.Account, perm *ledger.Permission, p *payment, amount toll.Credits) (refusal, err error) {
	if *a, err = f.accounts.fresh(ctx, p.account); err != nil {
		return nil, err
	}
	if *perm, err = f.permissions.fresh(ctx, p.permission()); err != nil {
		return nil, err
	}
	return f.advise(a, perm, p, amount), nil
}

// lacksOrder reports whether an order may bring what a refused request lacks.
func lacksOrder(refusal error) bool {
	return ledger.IsRefused(refusal, ledger.Insufficient) || ledger.IsRefused(refusal, ledger.PeriodOver)
}

// orderFree makes the first order of a free plan when that is what a refused request lacks. ordered says that the same
// request may now pass.
func (f *Facilitator) orderFree(ctx context.Context, p *payment, refusal error) (ordered bool, e *toll.Error) {
	if !lacksOrder(refusal) {
		return false, nil
	}
	a, err := f.Ledger.Account(ctx, p.account)
	if err != nil {
		return false, toll.AsError(err)
	}
	if a.Orders > 0 {
		// The order may have come from another request between the refusal and this read.
		var r *ledger.Refusal
		errors.As(refusal, &r)
		return r.Kind == ledger.PeriodOver && a.Subscribed(f.Clock()) || r.Kind == ledger.Insufficient && a.Available() >= r.Needed, nil
	}
	err = f.Checkout.EnsureFree(ctx, p.plan, p.claims.Subscriber)
	if err == nil {
		f.changed(p.account, p.claims.Hash)
		return true, nil
	}
	e = toll.AsError(err)
	switch e.Code {
	case toll.CodePlanUnlisted:
		return false, e.WithReason(x402.ReasonPlanUnlisted)
	case toll.CodeTrialUsed:
		return false, e.WithReason(x402.ReasonTrialUsed)
	case toll.CodePlanSoldOut:
		return false, e.WithReason(x402.ReasonInsufficientFunds)
	}
	return false, f.refusedBy(err)
}

func (f *Facilitator) valid(p *payment, a *ledger.Account, requestID string, amount toll.Credits) *x402.VerifyResponse {
	resp := &x402.VerifyResponse{
		IsValid: true, Payer: p.claims.Subscriber.String(), Network: f.networkOf(p), AgentRequestID: requestID,
		PlanID: p.plan.ID, AgentID: p.agentID, Amount: &amount, URLMatching: p.urlMatching, VerbMatching: p.verbMatching,
		Extra: &x402.VerifyExtra{AgentRequestID: requestID},
	}
	if p.agent != nil {
		resp.AgentRequest = &x402.AgentRequest{
			AgentRequestID: requestID, AgentName: p.agent.Metadata.Name, AgentID: p.agent.ID,
			Balance:     checkout.BalanceOf(p.plan, p.claims.Subscriber, a, f.Clock()),
			URLMatching: p.urlMatching, VerbMatching: p.verbMatching,
		}
	}
	return resp
}

// refusedVerify is the verdict, or the error that is none.
func (f *Facilitator) refusedVerify(p *payment, e *toll.Error) (*x402.VerifyResponse, error) {
	f.count(p, e, x402.ReasonOf(f.ns, e, x402.ActVerify))
	// Standard software knows no other refusals: all but faults and an outcome that is still to come.
	stock := p.stock && e.HTTPStatus() < 500 && e.Code != toll.CodeSettlementPending
	if !isVerdict(e) && !stock {
		return nil, f.fault(x402.ActVerify, e)
	}
	resp := &x402.VerifyResponse{InvalidReason: x402.ReasonOf(f.ns, e, x402.ActVerify), InvalidMessage: e.Text(), Code: e.Code}
	if page := checkoutPage(e); page != "" {
		resp.Extra = &x402.VerifyExtra{CheckoutURL: page}
	}
	if !p.claims.Subscriber.IsZero() {
		resp.Payer, resp.Network = p.claims.Subscriber.String(), f.networkOf(p)
	}
	return resp, nil
}

// checkoutPage returns the address of the page on which a person can pay what a delegation could not, "" when there is none.
func checkoutPage(e *toll.Error) string {
	page, _ := e.Params["checkoutUrl"].(string)
	return page
}

// fault completes an error that leaves verify or settle with a reason word for the union of bodies. Who answers with it logs
// its cause.
func (f *Facilitator) fault(act x402.Act, e *toll.Error) *toll.Error {
	return e.WithReason(x402.ReasonOf(f.ns, e, act))
}
