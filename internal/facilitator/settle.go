package facilitator

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// Settle burns the credits of a request, once. The same request again gets the stored answer, byte for byte in Raw. A
// refusal, whatever its status, is an answer with Success false and Code; so is settlement_pending, which means that the
// same call must be repeated. An error means that the service failed, and that the outcome is not known either.
func (f *Facilitator) Settle(ctx context.Context, caller toll.Address, req *x402.SettleRequest) (*x402.SettleResponse, error) {
	p, e := f.read(ctx, caller, &req.PaymentRequired, req.AccessToken, req.AgentRequestID)
	if e != nil {
		return f.refusedSettle(ctx, p, e)
	}
	if f.foreign(p.account, req.AgentRequestID) {
		return f.refusedSettle(ctx, p, refuse(toll.CodeSettleConflict, x402.ReasonConflict, ""))
	}
	if e = f.bind(ctx, p); e != nil {
		if e.HTTPStatus() >= 500 {
			return f.refusedSettle(ctx, p, e)
		}
		// What was held or settled while all was in order is judged by the ledger alone.
		_, known, err := f.known(ctx, p, req.AgentRequestID)
		if err != nil {
			return f.refusedSettle(ctx, p, toll.AsError(err))
		}
		if !known {
			return f.refusedSettle(ctx, p, e)
		}
	}
	resp := new(x402.SettleResponse)
	op := f.settleOp(p, req, resp)
	settled, err := f.ledger.Settle(ctx, op)
	if err != nil {
		ordered, oe := f.orderFree(ctx, p, err)
		if oe != nil {
			return f.refusedSettle(ctx, p, oe)
		}
		if ordered {
			settled, err = f.ledger.Settle(ctx, op)
		}
	}
	if err != nil {
		// The writer may still fill resp, when its caller has gone.
		resp, fault := f.refusedSettle(ctx, p, f.refusedBy(err))
		// A call that nothing names is repeated by the id that it got, else the repeat would be another request.
		if resp != nil && resp.Code == toll.CodeSettlementPending && req.AgentRequestID == "" && len(p.keys) == 0 {
			resp.Extra = &x402.SettleExtra{AgentRequestID: settled.RequestID}
		}
		return resp, fault
	}
	f.changed(p.account, p.claims.Hash)
	if settled.Replayed {
		if err := x402.Decode(settled.Answer, resp); err != nil {
			return f.refusedSettle(ctx, p, toll.NewError(toll.CodeInternal).WithCause(err))
		}
	}
	resp.Raw, resp.Replayed = settled.Answer, settled.Replayed
	return resp, nil
}

// settleOp is the operation of a settle. answer is filled when the ledger has decided.
func (f *Facilitator) settleOp(p *payment, req *x402.SettleRequest, answer *x402.SettleResponse) ledger.SettleOp {
	asked := p.plan.Credits.MaxAmount
	if req.MaxAmount != nil {
		asked = *req.MaxAmount
	}
	// All callers wait while the writer decides, so what does not depend on its decision is made before.
	receipt := f.receipt(p, requested(p, req))
	return ledger.SettleOp{
		Plan: p.plan.ID, Subscriber: p.claims.Subscriber, Agent: p.agentID, Permission: p.claims.Hash,
		RequestID: req.AgentRequestID, Keys: p.keys, Resource: p.url, Content: f.content(p, req),
		Amount: p.plan.Effective(asked), UseHeld: req.MaxAmount == nil, IsTime: p.plan.IsTime(),
		Render: func(r ledger.Receipt) []byte {
			*answer = receipt(r)
			b, err := x402.Encode(answer)
			if err != nil {
				panic(err) // strings and numbers always encode
			}
			return b
		},
	}
}

// requested is the amount that was asked for when the bounds of the plan changed it, else nil.
func requested(p *payment, req *x402.SettleRequest) *toll.Credits {
	if req.MaxAmount == nil || p.plan.IsTime() || p.plan.Effective(*req.MaxAmount) == *req.MaxAmount {
		return nil
	}
	return req.MaxAmount
}

// receipt makes the answer to a settlement, the one that is stored and repeated. It depends on its arguments alone.
func (f *Facilitator) receipt(p *payment, raised *toll.Credits) func(ledger.Receipt) x402.SettleResponse {
	network, payer, extension := f.wireNetwork(p.claims.Network), p.claims.Subscriber.String(), f.ns.CreditsExtension()
	plan, agent := p.plan.ID, p.agentID
	return func(r ledger.Receipt) x402.SettleResponse {
		amount, balance := r.Amount, r.Balance
		// Request ids are visible ASCII, for which Go and JSON quote alike.
		info := fmt.Appendf(nil, `{"info":{"creditsRedeemed":"%d","remainingBalance":"%d","agentRequestId":%q}}`, amount, balance, r.RequestID)
		return x402.SettleResponse{
			Success: true, Transaction: r.Transaction.String(), Network: network, Payer: payer,
			CreditsRedeemed: &amount, RemainingBalance: &balance, Amount: &amount,
			Extra: &x402.SettleExtra{
				AgentRequestID: r.RequestID, PlanID: plan, AgentID: agent, CreditsRedeemed: &amount,
				RemainingBalance: &balance, RequestedAmount: raised,
			},
			Extensions: map[string]json.RawMessage{extension: info},
		}
	}
}

// contentVersion is the first thing hashed into the content of a request. A change of the fields needs another one.
const contentVersion = "toll/settle/1"

// content is the hash of what makes a settle the same: access token, plan, agent, scheme, network, resource, the amount
// asked for (none is not the same as the amount that is then burned) and the batch mark.
func (f *Facilitator) content(p *payment, req *x402.SettleRequest) [32]byte {
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
	field(f.wireNetwork(p.claims.Network))
	field(p.url)
	if req.MaxAmount == nil {
		field("")
	} else {
		field(req.MaxAmount.String())
	}
	if req.Batch {
		field("batch")
	}
	return sha256.Sum256(b)
}

// refusedSettle is the answer to a settle that burned nothing, or may not have. Only faults of the service are errors.
func (f *Facilitator) refusedSettle(ctx context.Context, p *payment, e *toll.Error) (*x402.SettleResponse, error) {
	if e.HTTPStatus() >= 500 && e.Code != toll.CodeSettlementPending {
		return nil, f.fault(ctx, x402.ActSettle, e)
	}
	e = f.fault(ctx, x402.ActSettle, e)
	resp := &x402.SettleResponse{ErrorReason: e.Reason, ErrorMessage: e.Text(), Code: e.Code}
	if !p.claims.Subscriber.IsZero() {
		resp.Payer, resp.Network = p.claims.Subscriber.String(), f.wireNetwork(p.claims.Network)
	} else {
		resp.Network = f.env.Network()
	}
	return resp, nil
}
