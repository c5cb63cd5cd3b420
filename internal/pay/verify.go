package pay

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/x402"
)

// Verify says whether a request is payable, and with Hold sets its credits aside. It burns nothing; a free plan that was never ordered is
// ordered here, unless no credits are asked for and none are held, and what a hold lacks is bought through the delegation of the access
// token. A refusal is an answer. An error is a *toll.Error with a reason word and means that the call was wrong or failed: 400, 403, 404,
// 409 (settle_conflict), 429 (too_many_holds), 503 with params.agentRequestId (settlement_pending: an order is not decided; repeat the
// same call), other 5xx. With Stock all but 5xx are answers.
func (f *Facilitator) Verify(ctx context.Context, caller toll.Address, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	if req.Stock == nil && (req.HoldSecs < 0 || req.HoldSecs > x402.MaxHoldSecs) {
		return nil, refusal.Malformed("holdSecs", "must be 1 to 900")
	}
	if f.Purchases.Exact.Takes(req.Stock) {
		resp, e := f.Purchases.Exact.Verify(ctx, caller, req.Stock)
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
			d.Valid = resp.IsValid
			resp.ExtensionResponses = f.Catalogue.Declare(ctx, d)
		}
	}
	return resp, nil
}

// declarationOf returns what a verify that has been read says about its resource, nil for nothing. In the spec body the server itself
// says it. In the stock body everything came back from the payer.
func declarationOf(req *x402.VerifyRequest, p *payment) *catalogue.Declaration {
	d := &catalogue.Declaration{Agent: p.agent, URL: p.url, Owner: true}
	if p.entry != nil {
		d.Verb = p.entry.Extra.HTTPVerb
	}
	resource := &req.PaymentRequired.Resource
	var ok bool
	if d.Extension, ok = req.PaymentRequired.Extensions[x402.ExtensionBazaar]; !ok || p.stock {
		if d.Extension, ok = p.token.Extensions[x402.ExtensionBazaar]; !ok {
			return nil
		}
		resource, d.Owner = p.token.Resource, p.agent != nil && p.claims.Subscriber == p.agent.Owner
	}
	if resource != nil {
		d.MimeType = resource.MimeType
	}
	return d
}

func (f *Facilitator) verify(ctx context.Context, caller toll.Address, req *x402.VerifyRequest) (*payment, *x402.VerifyResponse, *toll.Error) {
	in := newAsked(req.Stock, &req.PaymentRequired, req.AccessToken, req.AgentRequestID)
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
	if isOtherAccount(f.Ledger, p.account, in.requestID) {
		return p, nil, refusal.New(toll.CodeSettleConflict, x402.ReasonConflict, "")
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
	return time.Duration(cmp.Or(secs, x402.DefaultHoldSecs)) * time.Second
}

// verifyWithHold lets the ledger decide. What is short is ordered, see [Facilitator.cover].
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
		short := newShortfall(p, id)
		for err != nil {
			if e := f.cover(ctx, short, err); e != nil {
				f.freeHolds.Give(p.buyer()) // nothing was held
				return nil, e
			}
			op.RequestID, op.OrderTx = short.id, short.orderTx
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
		e.Code, e.Message = toll.CodeTooManyHolds, "The subscriber has made too many holds and settlements of 0 credits with this builder within an hour."
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
			return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonInFlight, "")
		case ok:
			return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonDuplicate, "")
		}
	}
	// The account first: its read gives the permission back what lapsed holds had set aside.
	account, accountCached, err := f.snapshots.Account(ctx, p.account)
	if err != nil {
		return nil, toll.AsError(err)
	}
	perm, permCached, err := f.snapshots.Permission(ctx, p.permission())
	if err != nil {
		return nil, toll.AsError(err)
	}
	refused := ledger.Judge(&account, &perm, amount, p.plan.Kind(), f.Clock())
	if refused != nil && (permCached || accountCached) {
		refused, err = f.adviseAnew(ctx, &account, &perm, p, amount)
		if err != nil {
			return nil, toll.AsError(err)
		}
	}
	if refused != nil && ordersItself(p.plan) && !orders && account.Orders == 0 && needsOrder(refused) {
		if !p.plan.IsListed {
			return nil, refusal.New(toll.CodePlanUnlisted, x402.ReasonPlanUnlisted, "")
		}
		refused = nil
	}
	if refused != nil && ordersItself(p.plan) {
		ordered, e := f.orderFree(ctx, p, refused)
		if e != nil {
			return nil, e
		}
		if ordered {
			if refused, err = f.adviseAnew(ctx, &account, &perm, p, amount); err != nil {
				return nil, toll.AsError(err)
			}
		}
	}
	if refused != nil {
		if e := f.couldBuy(ctx, p, id, refused); e != nil {
			return nil, e
		}
	}
	if id == "" {
		id = f.Ledger.NewRequestID(p.account)
	}
	return f.valid(p, &account, id, amount), nil
}

// adviseAnew reads the account and the permission, and judges them as the ledger would.
func (f *Facilitator) adviseAnew(ctx context.Context, a *ledger.Account, perm *ledger.Permission, p *payment, amount toll.Credits) (refused, err error) {
	if *a, *perm, err = f.snapshots.Read(ctx, p.permission()); err != nil {
		return nil, err
	}
	return ledger.Judge(a, perm, amount, p.plan.Kind(), f.Clock()), nil
}

// needsOrder reports whether an order may bring what a refused request lacks.
func needsOrder(refused error) bool {
	return ledger.IsRefused(refused, ledger.Insufficient) || ledger.IsRefused(refused, ledger.PeriodOver)
}

// orderFree makes the first order of a free plan when that is what a refused request lacks. ordered says that the same
// request may now pass.
func (f *Facilitator) orderFree(ctx context.Context, p *payment, refused error) (ordered bool, e *toll.Error) {
	if !needsOrder(refused) {
		return false, nil
	}
	a, err := f.Ledger.Account(ctx, p.account)
	if err != nil {
		return false, toll.AsError(err)
	}
	if a.Orders > 0 {
		// The order may have come from another request between the refusal and this read.
		var r *ledger.Refusal
		errors.As(refused, &r)
		return r.Kind == ledger.PeriodOver && a.Subscribed(f.Clock()) || r.Kind == ledger.Insufficient && a.Available() >= r.Needed, nil
	}
	err = f.Checkout.EnsureFree(ctx, p.plan, p.claims.Subscriber)
	if err == nil {
		f.snapshots.Forget(p.permission())
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
	return false, refusal.By(f.brand.Names, err)
}

func (f *Facilitator) valid(p *payment, a *ledger.Account, requestID string, amount toll.Credits) *x402.VerifyResponse {
	resp := &x402.VerifyResponse{
		IsValid: true, Payer: p.claims.Subscriber.String(), Network: p.networkOf(f.brand), AgentRequestID: requestID,
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
	reason := x402.ReasonOf(f.brand.Names, e, x402.ActVerify)
	f.refused.count(p, e, reason, f.Clock())
	// Standard software knows no other refusals: all but faults and an outcome that is still to come.
	stock := p.stock && e.HTTPStatus() < 500 && e.Code != toll.CodeSettlementPending
	if !isVerdict(e) && !stock {
		return nil, e.WithReason(reason)
	}
	resp := &x402.VerifyResponse{InvalidReason: reason, InvalidMessage: e.Text(), Code: e.Code}
	if page := checkoutPage(e); page != "" {
		resp.Extra = &x402.VerifyExtra{CheckoutURL: page}
	}
	if !p.claims.Subscriber.IsZero() {
		resp.Payer, resp.Network = p.claims.Subscriber.String(), p.networkOf(f.brand)
	}
	return resp, nil
}

// checkoutPage returns the address of the page on which a person can pay what a delegation could not, "" when there is none.
func checkoutPage(e *toll.Error) string {
	page, _ := e.Params["checkoutUrl"].(string)
	return page
}

// isVerdict reports whether a failed verify is answered 200 with isValid false. The others leave 200: the caller is wrong
// about the call itself, or the service is (wire contract, section 16).
func isVerdict(e *toll.Error) bool {
	if e.Reason == "" || e.Reason == x402.ReasonInvalidPayload {
		return false
	}
	switch e.Code {
	case toll.CodeNotPlanOwner, toll.CodePaymentPlanNotFound, toll.CodePaymentAgentNotFound,
		toll.CodeTooManyHolds, toll.CodeSettlementPending:
		return false
	case toll.CodeSettleConflict:
		return e.Reason == x402.ReasonIdentifierConflict
	}
	return e.HTTPStatus() < 500
}
