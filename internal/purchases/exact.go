package purchases

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// FlowAuthorization is the payment flow in which the server verifies, works, and settles.
const FlowAuthorization = "authorization"

// exactVersion is the first thing hashed into the content of a payment. A change of the fields needs another one.
const exactVersion = "toll/exact/1"

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

// Exact verifies and settles payments that wallets make to servers of builders with the scheme exact.
type Exact struct {
	store      *store.Store
	checkout   *checkout.Checkout
	brand      catalogue.Brand
	clock      func() time.Time
	log        *slog.Logger
	wait       time.Duration // for the outcome of one payment on the chain
	open       bool          // the policy is ExactOpen
	signatures signatures
}

// Open reports whether such payments are settled here.
func (x *Exact) Open() bool { return x.open && x.checkout.Seller() != nil }

// Takes reports whether a stock body is about such a payment. nil is none.
func (x *Exact) Takes(stock *x402.StockPayment) bool {
	return x.open && stock != nil && stock.Requirements.Scheme == x402.SchemeExact
}

// readExact makes the checks of a payment that need no chain. What was settled before is repeated whatever the time.
func (x *Exact) read(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*exactPayment, *toll.Error) {
	asked := &stock.Requirements
	p, err := x402.DecodeExact(stock.Payload)
	if err != nil {
		return nil, refusal.Undecodable(err)
	}
	terms, refused := x.terms(ctx, caller, asked)
	if refused != nil {
		return nil, refused
	}
	// The names of the domain are ours; a server may have others in its entry, and the signature tells.
	terms.entry.Extra = x402.ExactExtra{
		Name: p.Accepted.Extra.Name, Version: p.Accepted.Extra.Version, AssetTransferMethod: x402.MethodEIP3009, PlanID: p.Accepted.Extra.PlanID,
	}
	e := &exactPayment{
		server: caller, token: terms.token, payment: p, signature: p.Signature, terms: terms,
		settlesFirst: asked.Extra.PaymentFlow != "" && asked.Extra.PaymentFlow != FlowAuthorization,
	}
	e.content = e.contentOf(asked)
	if e.signed, refused = x.signatures.signed(ctx, e.terms, p); refused != nil {
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
func (x *Exact) before(ctx context.Context, q store.Querier, p *exactPayment) (*store.ExactPayment, *toll.Error) {
	a, found, err := store.IfThere(store.AuthorizationByNonce(ctx, q, x.brand.Environment.ChainID(), p.token, p.signed.From, p.signed.Nonce))
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !found {
		return x.named(ctx, q, p)
	}
	known, found, err := store.IfThere(store.ExactPaymentByID(ctx, q, a.OrderID))
	switch {
	case err != nil:
		return nil, toll.AsError(err)
	case !found, known.Server != p.server, a.Receiver != p.signed.To, a.Value.Int().Cmp(p.signed.Value) != 0, uint64(a.ValidBefore) != p.signed.ValidBefore:
		return nil, errUsed
	}
	return known, nil
}

var errUsed = refusal.New(toll.CodeRequestUsed, x402.ReasonExactNonceUsed, "This authorization was already used for another payment.")

// named returns what the wallet pays under the payment identifier by another authorization, nil for nothing. A wallet uses an
// identifier once, over all its plans and calls; a payment that the chain has ended frees it.
func (x *Exact) named(ctx context.Context, q store.Querier, p *exactPayment) (*store.ExactPayment, *toll.Error) {
	if p.payment.PaymentIdentifier == "" {
		return nil, nil
	}
	is, found, err := store.IfThere(store.SaleByIdentifier(ctx, q, p.signed.From, p.payment.PaymentIdentifier))
	if err != nil || !found {
		return nil, toll.AsError(err)
	}
	known, found, err := store.IfThere(store.ExactPaymentByID(ctx, q, is.OrderID))
	switch {
	case err != nil:
		return nil, toll.AsError(err)
	case !found, known.Server != p.server, is.Content != p.content:
		return nil, refusal.New(toll.CodeSettleConflict, x402.ReasonIdentifierConflict, "This payment identifier was already used for another payment.")
	}
	return known, nil
}

// keep records a payment before anything happens to it, or returns the record of another call that was first. It refuses a suspended
// server.
func (x *Exact) keep(ctx context.Context, p *exactPayment, opened bool) (k *store.ExactPayment, first bool, e *toll.Error) {
	server, err := store.PrincipalByAddress(ctx, x.store, p.server)
	if err == nil && !server.SuspendedAt.IsZero() {
		err = toll.NewError(toll.CodeSuspended).WithDetails("workspace %s", p.server)
	}
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	if err := saleFits(x.clock(), p.terms, p.payment, p.signed); err != nil {
		return nil, false, toll.AsError(err)
	}
	used, err := x.checkout.Seller().CheckSale(ctx, rail.Sale{Token: p.token, Authorization: *p.signed, Signature: p.signature})
	if err == nil && used {
		err = refusal.New(toll.CodeRequestUsed, x402.ReasonExactNonceUsed, "This authorization was already executed on the chain.")
	}
	if err != nil {
		if known, e := x.before(ctx, x.store, p); e != nil || known != nil {
			return known, false, e // the money may have moved for another call
		}
		return nil, false, toll.AsError(err)
	}
	value, err := toll.ParseUnits(p.signed.Value.String())
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	k = &store.ExactPayment{ID: toll.NewUUID(), Server: p.server, Content: p.content, Opened: opened, EndsAt: time.Unix(int64(p.signed.ValidBefore), 0)}
	err = x.store.Tx(ctx, func(tx *store.Tx) error {
		err := store.InsertAuthorization(ctx, tx, &store.Authorization{
			ChainID: x.brand.Environment.ChainID(), Asset: p.token, Payer: p.signed.From, Nonce: p.signed.Nonce, OrderID: k.ID, Receiver: p.signed.To,
			Value: value, ValidAfter: int64(p.signed.ValidAfter), ValidBefore: int64(p.signed.ValidBefore), Signature: p.signature,
			CreatedAt: x.clock().UTC().Truncate(time.Microsecond),
		})
		if err != nil {
			return err
		}
		if err := store.InsertExactPayment(ctx, tx, k); err != nil || p.payment.PaymentIdentifier == "" {
			return err
		}
		return store.PutSaleIdentifier(ctx, tx, &store.SaleIdentifier{
			Subscriber: p.signed.From, Identifier: p.payment.PaymentIdentifier, Content: p.content, OrderID: k.ID,
		})
	})
	if _, taken := errors.AsType[*store.AuthorizationTaken](err); taken || store.IsUnique(err) {
		known, e := x.before(ctx, x.store, p)
		return known, false, e
	}
	if err != nil {
		return nil, false, toll.AsError(err)
	}
	return k, true, nil
}

// begin reads a payment, and keeps it if it is new, which first reports. A verify opens the payment, unless the server settles before
// it works.
func (x *Exact) begin(ctx context.Context, caller toll.Address, stock *x402.StockPayment, verify bool) (p *exactPayment, known *store.ExactPayment, first bool, e *toll.Error) {
	if p, e = x.read(ctx, caller, stock); e != nil {
		return nil, nil, false, e
	}
	if known, e = x.before(ctx, x.store, p); e == nil && known == nil {
		known, first, e = x.keep(ctx, p, verify && !p.settlesFirst)
	}
	if e != nil && e.Reason == "" && e.HTTPStatus() == 402 {
		e = e.WithReason(exactReason(e.Code)) // an error of the chain gets the word of the standard
	}
	return p, known, first, e
}

// Verify says whether a wallet pays. Only one verify of an authorization is valid.
func (x *Exact) Verify(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.VerifyResponse, *toll.Error) {
	p, known, first, e := x.begin(ctx, caller, stock, true)
	switch {
	case e != nil:
		return nil, e
	case first:
		return &x402.VerifyResponse{IsValid: true, Payer: p.signed.From.String(), Network: x.brand.Environment.Network()}, nil
	case known != nil && known.Answer == nil:
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonInFlight, "")
	}
	return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonDuplicate, "")
}

// Settle has the authorization of a wallet carried out. It answers a success once, unless a verify opened the payment, because a
// server that never verifies runs its handler for each success.
func (x *Exact) Settle(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*x402.SettleResponse, *toll.Error) {
	p, known, _, e := x.begin(ctx, caller, stock, false)
	switch {
	case e != nil:
		return nil, e
	case known == nil:
		return nil, errUsed
	case known.Content != p.content:
		return nil, refusal.New(toll.CodeSettleConflict, x402.ReasonConflict, "")
	case known.Answer != nil:
		return x.settledBefore(known)
	}
	// What the payment was begun with: a wallet can sign again under the same nonce.
	kept, err := store.AuthorizationOfOrder(ctx, x.store, known.ID)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if kept.Nonce != p.signed.Nonce {
		return nil, refusal.New(toll.CodeRequestUsed, x402.ReasonInFlight, "Another authorization already pays with this payment identifier.")
	}
	wait, cancel := context.WithTimeout(ctx, x.wait)
	defer cancel()
	paid, err := x.checkout.Seller().Sell(wait, checkout.SaleOf(kept))
	switch {
	case err == nil && paid.Status == toll.OrderFailed:
		if paid.Ended {
			free := func(tx *store.Tx) error { return store.FreeSaleIdentifier(ctx, tx, p.signed.From, known.ID) }
			if err := x.store.Tx(ctx, free); err != nil {
				return nil, toll.AsError(err)
			}
		}
		word, _ := paid.Params["reason"].(string)
		return nil, &toll.Error{Code: toll.CodePaymentRequired, Reason: cmp.Or(word, exactReason(paid.FailureCode)), Message: "The payment failed.", Details: paid.FailureReason}
	case err == nil && (paid.Status == toll.OrderConfirmed || paid.Status == toll.OrderFinal):
		return x.answer(ctx, p, known, paid.TxHash)
	}
	if err != nil {
		x.log.WarnContext(ctx, "the outcome of a wallet payment is unknown", "payment", known.ID, "err", err)
	}
	return nil, toll.NewError(toll.CodeSettlementPending).WithParam("transaction", cmp.Or(paid.TxHash, p.content.String()))
}

// answer answers a payment that was made, once.
func (x *Exact) answer(ctx context.Context, p *exactPayment, known *store.ExactPayment, tx string) (*x402.SettleResponse, *toll.Error) {
	amount := toll.Credits(p.signed.Value.Int64())
	out := &x402.SettleResponse{Success: true, Transaction: tx, Network: x.brand.Environment.Network(), Payer: p.signed.From.String(), Amount: &amount}
	raw, err := x402.Encode(out)
	if err != nil {
		return nil, toll.AsError(err)
	}
	var first bool
	err = x.store.Tx(ctx, func(t *store.Tx) (err error) {
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
	if known, err = store.ExactPaymentByID(ctx, x.store, known.ID); err != nil {
		return nil, toll.AsError(err)
	}
	return x.settledBefore(known)
}

// settledBefore repeats the answer of a payment that a verify opened, and refuses the repeat of any other.
func (x *Exact) settledBefore(known *store.ExactPayment) (*x402.SettleResponse, *toll.Error) {
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

// exactTerms returns what a server of the caller asks of a wallet, without the names of its entry, when payments of that are settled here.
func (x *Exact) terms(ctx context.Context, caller toll.Address, asked *x402.Requirements) (*saleTerms, *toll.Error) {
	if !x.open {
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "This service settles wallet payments only for its own plans.").
			WithHint("The operator can allow other payments with x402.exact = open.")
	}
	seller := x.checkout.Seller()
	if seller == nil {
		return nil, toll.NewError(toll.CodeChainUnreachable)
	}
	if asked.Network != x.brand.Environment.Network() {
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonInvalidNetwork, "The network must be "+x.brand.Environment.Network()+".")
	}
	token, err := toll.ParseAddress(asked.Asset)
	domain, ok := seller.Domain(token)
	if err != nil || !ok {
		return nil, refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The asset must be USDC or EURC on this network.")
	}
	payTo, err1 := toll.ParseAddress(asked.PayTo)
	amount, err2 := toll.ParseCredits(asked.Amount) // base units of an answer have the range of credits
	if err1 != nil || err2 != nil || amount == 0 {
		return nil, refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "payTo must be an address, and amount must be a whole number from 1 to 2^63-1.")
	}
	ours, err := store.IsReceiver(ctx, x.store, caller, payTo)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !ours {
		return nil, refusal.New(toll.CodeNotPlanOwner, x402.ReasonUnauthorizedServer, "payTo is not a receiver of any of your plans.")
	}
	return newSaleTerms(asked.Network, domain, token, payTo, toll.UnitsOf(int64(amount)), asked.MaxTimeoutSeconds), nil
}
