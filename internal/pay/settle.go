package pay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/x402"
)

// Settle burns the credits of a request, once. The same request again gets the stored answer, byte for byte in Raw. A
// refusal, whatever its status, is an answer with Success false and Code; so is settlement_pending, which means that the
// same call must be repeated. An error means that the service failed, and that the outcome is not known either.
func (f *Facilitator) Settle(ctx context.Context, caller toll.Address, req *x402.SettleRequest) (*x402.SettleResponse, error) {
	if f.Purchases.Exact.Takes(req.Stock) {
		return f.settleExact(ctx, caller, req.Stock)
	}
	in := newAsked(req.Stock, &req.PaymentRequired, req.AccessToken, req.AgentRequestID)
	p, e := f.read(ctx, caller, in)
	if e == nil {
		e = checkLabels(req)
	}
	if e != nil {
		return f.refusedSettle(ctx, p, e)
	}
	if isOtherAccount(f.Ledger, p.account, in.requestID) {
		return f.refusedSettle(ctx, p, refusal.New(toll.CodeSettleConflict, x402.ReasonConflict, ""))
	}
	if e = f.bind(ctx, p); e != nil {
		if e.HTTPStatus() >= 500 {
			return f.refusedSettle(ctx, p, e)
		}
		// What was held or settled while all was in order is judged by the ledger alone.
		r, known, err := f.known(ctx, p, in.requestID)
		if err != nil {
			return f.refusedSettle(ctx, p, toll.AsError(err))
		}
		if !known || r.Removed {
			return f.refusedSettle(ctx, p, e)
		}
	}
	w, e := f.wanted(ctx, p, req)
	if e != nil {
		return f.refusedSettle(ctx, p, e)
	}
	free := !w.useHeld && w.amount == 0 // a record without a burn
	if free {
		if e := f.takeHold(p); e != nil {
			if r, known, err := f.known(ctx, p, in.requestID); err != nil || !known || r.HoldEndsAt.IsZero() {
				return f.refusedSettle(ctx, p, e)
			}
			free = false // its hold counts
		}
	}
	op := ledger.SettleOp{
		Plan: p.plan.ID, Subscriber: p.claims.Subscriber, Agent: p.agentID, Permission: p.claims.Hash,
		RequestID: in.requestID, Keys: p.keys, Resource: p.url, Content: w.content,
		Amount: w.amount, UseHeld: w.useHeld, HoldBounds: p.stock, Kind: p.plan.Kind(), Render: f.storedAnswer(ctx, p, w.raised), Labels: req.Labels,
	}
	done, err := f.Ledger.Settle(ctx, op)
	id := done.RequestID
	if err != nil && !errors.Is(err, ledger.ErrUnknownOutcome) {
		short := newShortfall(p, in.requestID)
		for err != nil && e == nil {
			if e = f.cover(ctx, short, err); e == nil {
				op.RequestID, op.OrderTx = short.id, short.orderTx
				done, err = f.Ledger.Settle(ctx, op)
			}
		}
		if id = done.RequestID; id == "" {
			id = short.id
		}
	}
	if err != nil {
		if e == nil {
			e = refusal.By(f.brand.Names, err)
		}
		return f.unsettled(ctx, p, e, err, &op, id, done.Transaction)
	}
	if !done.Replayed && (done.Amount > 0 || free && done.Held) { // a hold and its settlement count once
		f.freeHolds.Give(p.buyer())
	}
	resp, err := answerOf(f.brand.Names, done.Answer, settled{Receipt: done.Receipt, payer: p.claims.Subscriber, plan: p.plan.ID, agent: p.agentID})
	if err != nil {
		return f.refusedSettle(ctx, p, toll.NewError(toll.CodeInternal).WithCause(err))
	}
	resp.Replayed = done.Replayed
	return resp, nil
}

// checkLabels bounds the labels, which are stored. Standard x402 software sends none.
func checkLabels(req *x402.SettleRequest) *toll.Error {
	l := &req.Labels
	for i, text := range []string{l.Upstream, l.Route, l.Model} {
		if len(text) > toll.MaxLabelBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			name := []string{"upstream", "route", "model"}[i]
			return refusal.Malformed("labels."+name, "must be at most 64 bytes of UTF-8 without control characters")
		}
	}
	return nil
}

// unsettled is the answer when the ledger did not settle. id is the request as far as it has one, about the transaction that
// was to be written.
func (f *Facilitator) unsettled(ctx context.Context, p *payment, e *toll.Error, cause error, op *ledger.SettleOp, id string, about toll.Hash) (*x402.SettleResponse, error) {
	resp, fault := f.refusedSettle(ctx, p, e)
	if resp == nil {
		return nil, fault
	}
	if r, ok := errors.AsType[*ledger.Refusal](cause); ok && r.Kind == ledger.Replay {
		resp.Extra = &x402.SettleExtra{OriginalTransaction: r.Transaction.String()}
	}
	if resp.Code != toll.CodeSettlementPending {
		return resp, nil
	}
	// A call that nothing names is repeated by the id that it got, else the repeat would be another request.
	if id != "" && (len(p.keys) == 0 || !about.IsZero()) {
		resp.Extra = &x402.SettleExtra{AgentRequestID: id}
	}
	resp.Transaction, _ = e.Params["transaction"].(string)
	switch {
	case resp.Transaction != "":
	case !about.IsZero():
		resp.Transaction = about.String()
	case p.stock:
		// Without a transaction a stock server takes it for a refusal. Nothing is written yet, so the content names the call.
		resp.Transaction = toll.Hash(op.Content).String()
	}
	return resp, nil
}

type burning struct {
	amount  toll.Credits  // that the ledger burns, in the bounds of the plan
	useHeld bool          // no amount was asked for
	raised  *toll.Credits // what was asked for, when the bounds of the plan changed it
	content [32]byte
}

// wanted returns what is to be burned.
func (f *Facilitator) wanted(ctx context.Context, p *payment, req *x402.SettleRequest) (w burning, e *toll.Error) {
	max, margin, batch := req.MaxAmount, req.MarginPercent, req.Batch
	if p.stock {
		margin, batch = nil, false
		if max, e = stockAmount(p); e == nil {
			e = p.withinAccepted(f.brand.Names, max)
		}
		if e != nil {
			return w, e
		}
	}
	w.content = p.content(f.brand, max, margin, batch)
	switch {
	case margin != nil && max != nil:
		return w, refusal.New(toll.CodeAmountAndMargin, x402.ReasonInvalidPayload, "")
	case margin != nil:
		if max, e = f.withMargin(ctx, p, req.AgentRequestID, *margin); e != nil {
			return w, e
		}
	case max == nil:
		w.useHeld, max = true, &p.plan.Credits.MaxAmount
	}
	if margin == nil {
		if e := f.settleBounds(ctx, p, req.AgentRequestID, max); e != nil {
			return w, e
		}
	}
	w.amount = p.plan.Effective(*max)
	if !w.useHeld && p.plan.Kind().Charges() && w.amount != *max {
		w.raised = max
	}
	return w, nil
}

// contentVersion is the first thing hashed into the content of a request. A change of the fields needs another one.
const contentVersion = "toll/settle/1"

// content is the hash of what makes a settle the same: access token, plan, agent, scheme, network, resource, the amount
// asked for (none is not the same as the amount that is then burned), the batch mark and the margin.
func (p *payment) content(brand catalogue.Brand, max *toll.Credits, margin *x402.Margin, batch bool) [32]byte {
	b := make([]byte, 0, 512)
	field := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	field(contentVersion)
	field(string(p.claims.Hash[:]))
	field(string(p.plan.ID))
	field(string(p.agentID))
	field(p.claims.Scheme)
	field(brand.Network(p.claims.Network))
	field(p.url)
	if max == nil {
		field("")
	} else {
		field(max.String())
	}
	if batch {
		field("batch")
	}
	if margin != nil {
		field("margin")
		field(margin.String())
	}
	return sha256.Sum256(b)
}

// refusedSettle is the answer to a settle that burned nothing, or may not have. Only faults of the service are errors.
func (f *Facilitator) refusedSettle(ctx context.Context, p *payment, e *toll.Error) (*x402.SettleResponse, error) {
	e = e.WithReason(x402.ReasonOf(f.brand.Names, e, x402.ActSettle))
	if e.HTTPStatus() >= 500 && e.Code != toll.CodeSettlementPending {
		return nil, e
	}
	if e.HTTPStatus() >= 500 && e.Err != nil && ctx.Err() == nil {
		f.Log.ErrorContext(ctx, "the outcome of a settlement is pending", "error", e.Err.Error()) // its cause leaves with no answer
	}
	if e.HTTPStatus() >= 500 && f.Pending != nil {
		f.Pending()
	}
	f.refused.count(p, e, e.Reason, f.Clock())
	resp := &x402.SettleResponse{ErrorReason: e.Reason, ErrorMessage: e.Text(), Code: e.Code, Details: e.Details}
	if page := checkoutPage(e); page != "" {
		resp.Extra = &x402.SettleExtra{CheckoutURL: page}
	}
	if !p.claims.Subscriber.IsZero() {
		resp.Payer, resp.Network = p.claims.Subscriber.String(), p.networkOf(f.brand)
	} else {
		resp.Network = cmp.Or(p.network, f.brand.Environment.Network())
	}
	return resp, nil
}

// settleExact answers a settle of a payment by a wallet: refusals are answers, as for every stock body.
func (f *Facilitator) settleExact(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.SettleResponse, error) {
	out, e := f.Purchases.Exact.Settle(ctx, caller, stock)
	if e == nil {
		return out, nil
	}
	p := newPayment(true)
	p.network = stock.Requirements.Network
	resp, err := f.refusedSettle(ctx, p, e)
	if resp == nil {
		return nil, err
	}
	resp.Transaction, _ = e.Params["transaction"].(string)
	if first, ok := e.Params["originalTransaction"].(string); ok {
		resp.Extra = &x402.SettleExtra{OriginalTransaction: first}
	}
	return resp, nil
}
