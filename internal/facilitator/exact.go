package facilitator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// ExactOpen is the policy [ExactPlans] and more: payments that wallets make to other servers are verified and settled, for
// builders who are paid by them.
const ExactOpen ExactPolicy = "open"

// exactVersion is the first thing hashed into the content of a payment. A change of the fields needs another one.
const exactVersion = "toll/exact/1"

// exactPayment is a payment by a wallet to another server that has been read.
type exactPayment struct {
	server    toll.Address // the caller
	token     toll.Address
	signed    *evm.Authorization
	signature []byte
	payment   *x402.ExactPayment
	terms     *saleTerms
	content   toll.Hash
	// settlesFirst says that the route of the server settles before it works. Others say so by their silence.
	settlesFirst bool
}

// isExact reports whether a stock body is about a payment by a wallet that this service takes.
func (f *Facilitator) isExact(stock *x402.StockPayment) bool {
	return f.Exact == ExactOpen && stock != nil && stock.Requirements.Scheme == x402.SchemeExact
}

// readExact makes the checks of a payment that need no chain. What was settled before is repeated whatever the time.
func (f *Facilitator) readExact(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*exactPayment, *toll.Error) {
	asked := &stock.Requirements
	p, err := x402.DecodeExact(stock.Payload)
	if err != nil {
		return nil, refusal.Undecodable(err)
	}
	terms, refused := f.exactTerms(ctx, caller, asked)
	if refused != nil {
		return nil, refused
	}
	// The names of the domain are ours; a server may have others in its entry, and the signature tells.
	terms.entry.Extra = x402.ExactExtra{
		Name: p.Accepted.Extra.Name, Version: p.Accepted.Extra.Version, AssetTransferMethod: x402.MethodEIP3009, PlanID: p.Accepted.Extra.PlanID,
	}
	e := &exactPayment{
		server: caller, token: terms.token, payment: p, signature: p.Signature, terms: terms,
		settlesFirst: asked.Extra.PaymentFlow != "" && asked.Extra.PaymentFlow != flowAuthorization,
	}
	e.content = e.contentOf(asked)
	if e.signed, refused = f.signedSale(ctx, e.terms, p); refused != nil {
		return nil, refused
	}
	return e, nil
}

// contentOf is the hash of what makes two settles of a payment one: the url that the client names, and all that the server asks
// for, as only that tells two routes of a server apart whatever a client says.
func (p *exactPayment) contentOf(asked *x402.Requirements) toll.Hash {
	entry, extra, flow := &p.terms.entry, &asked.Extra, ""
	if p.settlesFirst {
		flow = extra.PaymentFlow
	}
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %s %d %q", exactVersion, entry.Network, entry.Asset, entry.PayTo, entry.Amount, asked.MaxTimeoutSeconds,
		[]string{asked.PlanID, extra.Version, extra.PlanID, extra.AgentID, extra.HTTPVerb, flow, p.payment.ResourceURL}))
}

// before returns what is known of a payment already, by its authorization, else by its payment identifier; nil when nothing is.
func (f *Facilitator) before(ctx context.Context, q store.Querier, p *exactPayment) (*store.ExactPayment, *toll.Error) {
	a, err := store.AuthorizationByNonce(ctx, q, f.brand.Environment.ChainID(), p.token, p.signed.From, p.signed.Nonce)
	if errors.Is(err, store.ErrNotFound) {
		return f.named(ctx, q, p)
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	known, err := store.ExactPaymentByID(ctx, q, a.OrderID)
	used := refusal.New(toll.CodeRequestUsed, x402.ReasonExactNonceUsed, "This authorization has paid something else.")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, used
	case err != nil:
		return nil, toll.AsError(err)
	case known.Server != p.server, a.Receiver != p.signed.To, a.Value.Int().Cmp(p.signed.Value) != 0, uint64(a.ValidBefore) != p.signed.ValidBefore:
		return nil, used
	}
	return known, nil
}

// keepExact keeps a payment before anything happens to it. Another call may have been first: then its record is returned. A suspended
// server begins none.
func (f *Facilitator) keepExact(ctx context.Context, p *exactPayment, opened bool) (k *store.ExactPayment, first bool, e *toll.Error) {
	server, err := store.PrincipalByAddress(ctx, f.Store, p.server)
	if err == nil && !server.SuspendedAt.IsZero() {
		err = toll.NewError(toll.CodeSuspended).WithDetails("workspace %s", p.server)
	}
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	if err := f.saleFits(p.terms, p.payment, p.signed); err != nil {
		return nil, false, toll.AsError(err)
	}
	used, err := f.Checkout.Seller().CheckSale(ctx, rail.Sale{Token: p.token, Authorization: *p.signed, Signature: p.signature})
	if err == nil && used {
		err = refusal.New(toll.CodeRequestUsed, x402.ReasonExactNonceUsed, "The chain has carried this authorization out already.")
	}
	if err != nil {
		if known, e := f.before(ctx, f.Store, p); e != nil || known != nil {
			return known, false, e // the money may have moved for another call
		}
		return nil, false, toll.AsError(err)
	}
	value, err := toll.ParseUnits(p.signed.Value.String())
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	k = &store.ExactPayment{ID: toll.NewUUID(), Server: p.server, Content: p.content, Opened: opened, EndsAt: time.Unix(int64(p.signed.ValidBefore), 0)}
	err = f.Store.Tx(ctx, func(tx *store.Tx) error {
		err := store.InsertAuthorization(ctx, tx, &store.Authorization{
			ChainID: f.brand.Environment.ChainID(), Asset: p.token, Payer: p.signed.From, Nonce: p.signed.Nonce, OrderID: k.ID, Receiver: p.signed.To,
			Value: value, ValidAfter: int64(p.signed.ValidAfter), ValidBefore: int64(p.signed.ValidBefore), Signature: p.signature,
			CreatedAt: f.Clock().UTC().Truncate(time.Microsecond),
		})
		if err != nil {
			return err
		}
		if err := store.InsertExactPayment(ctx, tx, k); err != nil {
			return err
		}
		return p.name(ctx, tx, k.ID)
	})
	if _, taken := errors.AsType[*store.AuthorizationTaken](err); taken || store.IsUnique(err) {
		known, e := f.before(ctx, f.Store, p)
		return known, false, e
	}
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	return k, true, nil
}

// beginExact reads a payment, and keeps it unless it is known already. first says that it was not. A verify opens the payment, unless
// the server settles before it works.
func (f *Facilitator) beginExact(
	ctx context.Context, caller toll.Address, stock *x402.StockPayment, verify bool,
) (p *exactPayment, known *store.ExactPayment, first bool, e *toll.Error) {
	if p, e = f.readExact(ctx, caller, stock); e != nil {
		return nil, nil, false, e
	}
	if known, e = f.before(ctx, f.Store, p); e == nil && known == nil {
		known, first, e = f.keepExact(ctx, p, verify && !p.settlesFirst)
	}
	if e != nil && e.Reason == "" && e.HTTPStatus() == 402 {
		e = e.WithReason(exactReason(e.Code)) // an error of the chain gets the word of the standard
	}
	return p, known, first, e
}

// verifyExact says whether a wallet pays: one verify of an authorization is valid.
func (f *Facilitator) verifyExact(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.VerifyResponse, *toll.Error) {
	p, known, first, e := f.beginExact(ctx, caller, stock, true)
	switch {
	case e != nil:
		return nil, e
	case first:
		return &x402.VerifyResponse{IsValid: true, Payer: p.signed.From.String(), Network: f.brand.Environment.Network()}, nil
	case known != nil && known.Answer == nil:
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonInFlight, "")
	}
	return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonDuplicate, "")
}

// settleExact has the authorization of a wallet carried out. A success is answered once, unless a verify opened the payment:
// servers that never verify run their handler for each success.
func (f *Facilitator) settleExact(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.SettleResponse, *toll.Error) {
	p, known, _, e := f.beginExact(ctx, caller, stock, false)
	switch {
	case e != nil:
		return nil, e
	case known == nil:
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonExactNonceUsed, "This authorization has paid something else.")
	case known.Content != p.content:
		return nil, refusal.New(toll.CodeSettleConflict, x402.ReasonConflict, "")
	case known.Answer != nil:
		return f.settledBefore(known)
	}
	// What the payment was begun with: a wallet can sign again under the same nonce.
	kept, err := store.AuthorizationOfOrder(ctx, f.Store, known.ID)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if kept.Nonce != p.signed.Nonce {
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonInFlight, "Another authorization pays under this payment identifier.")
	}
	wait, cancel := context.WithTimeout(ctx, f.TopUpWait)
	defer cancel()
	paid, err := f.Checkout.Seller().Sell(wait, checkout.SaleOf(kept))
	switch {
	case err == nil && paid.Status == toll.OrderFailed:
		if paid.Ended {
			free := func(tx *store.Tx) error { return store.FreeSaleIdentifier(ctx, tx, p.signed.From, known.ID) }
			if err := f.Store.Tx(ctx, free); err != nil {
				return nil, toll.AsError(err)
			}
		}
		word, _ := paid.Params["reason"].(string)
		word = cmp.Or(word, exactReason(paid.FailureCode))
		return nil, &toll.Error{Code: toll.CodePaymentRequired, Reason: word, Message: "The payment was not carried out.", Details: paid.FailureReason}
	case err == nil && (paid.Status == toll.OrderConfirmed || paid.Status == toll.OrderFinal):
		return f.answerExact(ctx, p, known, paid.TxHash)
	}
	if err != nil {
		f.Log.WarnContext(ctx, "the outcome of a payment by a wallet is not known", "payment", known.ID, "err", err)
	}
	return nil, toll.NewError(toll.CodeSettlementPending).WithParam("transaction", cmp.Or(paid.TxHash, p.content.String()))
}

// answerExact answers a payment that was made, once.
func (f *Facilitator) answerExact(ctx context.Context, p *exactPayment, known *store.ExactPayment, tx string) (*x402.SettleResponse, *toll.Error) {
	amount := toll.Credits(p.signed.Value.Int64())
	out := &x402.SettleResponse{Success: true, Transaction: tx, Network: f.brand.Environment.Network(), Payer: p.signed.From.String(), Amount: &amount}
	raw, err := x402.Encode(out)
	if err != nil {
		return nil, toll.AsError(err)
	}
	first := false
	err = f.Store.Tx(ctx, func(t *store.Tx) (err error) {
		first, err = store.AnswerExactPayment(ctx, t, known.ID, raw)
		return err
	})
	if err != nil {
		return nil, toll.AsError(err)
	}
	if first {
		out.Raw = raw
		return out, nil
	}
	if known, err = store.ExactPaymentByID(ctx, f.Store, known.ID); err != nil {
		return nil, toll.AsError(err)
	}
	return f.settledBefore(known)
}

// settledBefore repeats the answer of a payment that a verify opened, and refuses the repeat of any other.
func (f *Facilitator) settledBefore(known *store.ExactPayment) (*x402.SettleResponse, *toll.Error) {
	out := new(x402.SettleResponse)
	if err := x402.Decode(known.Answer, out); err != nil {
		return nil, toll.AsError(err)
	}
	if !known.Opened {
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonDuplicate, "").WithParam("originalTransaction", out.Transaction)
	}
	out.Raw, out.Replayed = known.Answer, true
	return out, nil
}

// exactSettle answers a settle of a payment by a wallet: refusals are answers, as for every stock body.
func (f *Facilitator) exactSettle(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.SettleResponse, error) {
	out, e := f.settleExact(ctx, caller, stock)
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
