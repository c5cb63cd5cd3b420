package purchases

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

const (
	// saleTimeoutSecs is maxTimeoutSeconds of a sale: stock wallets sign for so long.
	saleTimeoutSecs = 120
	// An authorization must live long enough to be carried out, and not so long that a payment stays open.
	minSignedFor = 6 * time.Second
	maxSignedFor = time.Hour
	// saleVersion is the first thing hashed into what a payment identifier stands for. A change of the fields needs another one.
	saleVersion     = "toll/sale/1"
	walletTokenSecs = 3600
)

// Unpaid refuses the call of a wallet, with status 402, and says what the route costs.
type Unpaid struct {
	Cause    *toll.Error
	Required any                // *x402.SaleRequired, or *x402.PaymentRequired where nothing is sold
	Receipt  *x402.ExactReceipt // of a payment that failed; nil: none was made
}

func (u *Unpaid) Error() string { return u.Cause.Error() }

func (u *Unpaid) Unwrap() error { return u.Cause }

// Bought is the answer to a purchase by a wallet.
type Bought struct {
	Order       *toll.Order
	Subscriber  toll.Address
	Receipt     []byte            // JSON of an [x402.ExactReceipt], always the same for an order; nil while it is not paid
	Balance     toll.Credits      // as it is now
	AccessToken *toll.AccessToken // nil for everybody but who made the purchase
	Replayed    bool              // an earlier call made the purchase
}

type saleTerms struct {
	entry  x402.ExactRequirements
	token  toll.Address
	payTo  toll.Address
	domain evm.Domain
	total  toll.Units
}

func newSaleTerms(network string, domain evm.Domain, token, payTo toll.Address, total toll.Units, timeoutSecs toll.Int) *saleTerms {
	return &saleTerms{
		token: token, payTo: payTo, domain: domain, total: total,
		entry: x402.ExactRequirements{
			Scheme: x402.SchemeExact, Network: network, Amount: total.String(), Asset: token.String(), PayTo: payTo.String(), MaxTimeoutSeconds: timeoutSecs,
		},
	}
}

// saleTerms returns how the plan is sold. Errors: [toll.CodePathNotFound] where nothing is sold to wallets,
// [toll.CodeFiatPlanOnCryptoRoute], [toll.CodeBadRequirements] for a plan that cannot be sold like this, and [toll.CodeChainUnreachable].
func (s *Purchases) saleTerms(plan *toll.Plan) (*saleTerms, *toll.Error) {
	if s.Policy == ExactOff {
		return nil, toll.NewError(toll.CodePathNotFound).WithHint("This service does not sell plans to wallets without an account.")
	}
	price := plan.Price
	not := func(why string) (*saleTerms, *toll.Error) {
		return nil, toll.Errorf(toll.CodeBadRequirements, "This plan is not sold to wallets: %s.", why).WithDetails("planId %s", plan.ID).
			WithHint("Order the plan with an API key.")
	}
	switch {
	case !price.IsCrypto:
		return nil, toll.NewError(toll.CodeFiatPlanOnCryptoRoute).WithDetails("planId %s", plan.ID)
	case plan.IsTrial:
		return not("the plan is a trial")
	case !plan.Kind().Prepaid():
		return not("the plan is pay-as-you-go")
	case price.IsFree():
		return not("the plan is free")
	}
	payTo := s.Treasury
	if payTo.IsZero() {
		if len(price.Receivers) != 1 {
			return not("the price has several receivers")
		}
		payTo = price.Receivers[0]
	}
	seller := s.Checkout.Seller()
	if seller == nil {
		return nil, toll.NewError(toll.CodeChainUnreachable)
	}
	token := price.PayToken(s.brand.Environment)
	domain, ok := seller.Domain(token)
	if !ok {
		return not("the price is not in USDC or EURC")
	}
	t := newSaleTerms(s.brand.Environment.Network(), domain, token, payTo, price.Total(), saleTimeoutSecs)
	t.entry.Extra = x402.ExactExtra{Name: domain.Name, Version: domain.Version, AssetTransferMethod: x402.MethodEIP3009, PlanID: string(plan.ID)}
	return t, nil
}

func (s *Purchases) saleURL(id toll.PlanID) string {
	return s.Auth.Issuer() + "/x402/plans/" + string(id) + "/order"
}

func (s *Purchases) saleRequired(ctx context.Context, plan *toll.Plan, t *saleTerms, url string) *x402.SaleRequired {
	what := plan.Credits.Amount.String() + " credits of plan"
	if !plan.Kind().Charges() {
		what = "A period of plan"
	}
	const maxName = 200
	if name := []rune(plan.Metadata.Name); len(name) > maxName {
		what += " " + string(name[:maxName])
	} else if len(name) > 0 {
		what += " " + string(name)
	}
	r := &x402.SaleRequired{
		X402Version: x402.Version, Error: "Payment required",
		Resource:   x402.Resource{URL: url, Description: what, MimeType: "application/json"},
		Accepts:    []x402.ExactRequirements{t.entry},
		Extensions: map[string]json.RawMessage{x402.ExtensionPaymentIdentifier: x402.PaymentIdentifier(false)},
	}
	s.offerSale(ctx, r)
	return r
}

// unpaid refuses a call for which the wallet has not paid. The reason is that of the error; without one it says that a payment is required.
func unpaid(required *x402.SaleRequired, e *toll.Error) *Unpaid {
	u := &Unpaid{Required: required}
	u.Cause, required.Error = paymentRequired(e, required.Error)
	return u
}

// paymentRequired returns an error with status 402, and what the answer says of it: usual for one without a reason.
func paymentRequired(e *toll.Error, usual string) (*toll.Error, string) {
	c := *e
	c.Status = 402
	if e.Reason != "" {
		usual = e.Reason + ": " + e.Text()
	}
	return &c, usual
}

// Buy sells a plan to the wallet that signed the payment, the value of payment-signature; "" asks for the price, which
// the [*Unpaid] then tells. The access token of a purchase is answered once, to who made it. wait bounds how long the answer
// waits for the credits; an order that is not decided by then has status 202.
//
// Other errors: [toll.CodePlanNotFound], [toll.CodePathNotFound], [toll.CodeFiatPlanOnCryptoRoute], [toll.CodeBadRequirements],
// [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeCreditsOverflow], [toll.CodeSettleConflict] with the reason
// payment_identifier_conflict, and those of the chain with status 503.
func (s *Purchases) Buy(ctx context.Context, id toll.PlanID, payment string, wait time.Duration) (*Bought, error) {
	plan, e := s.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if e != nil {
		return nil, e
	}
	terms, e := s.saleTerms(plan)
	if e != nil {
		return nil, e
	}
	required := s.saleRequired(ctx, plan, terms, s.saleURL(id))
	if payment == "" {
		switch {
		case plan.Suspended:
			return nil, refusal.Suspended(plan)
		case !plan.IsListed:
			return nil, toll.NewError(toll.CodePlanUnlisted).WithDetails("planId %s", id)
		}
		return nil, unpaid(required, toll.Errorf(toll.CodePaymentRequired, "Pay for this plan with a wallet.").
			WithHint("Sign a payment for an entry of accepts, then repeat the call with the payment in the header payment-signature."))
	}
	return s.sellPlan(ctx, plan, terms, required, payment, wait)
}

func (s *Purchases) sellPlan(ctx context.Context, plan *toll.Plan, terms *saleTerms, required *x402.SaleRequired, payment string, wait time.Duration) (*Bought, error) {
	p, err := x402.DecodeExact(payment)
	if err != nil {
		e := toll.AsError(err)
		return nil, unpaid(required, e.WithReason(cmp.Or(e.Reason, x402.ReasonOf(s.brand.Names, e, x402.ActVerify))))
	}
	signed, e := s.signatures.signed(ctx, terms, p)
	if e == nil && x402.EchoMismatch(required.Extensions, p.Extensions) != "" {
		e = refusal.New(toll.CodeBadRequirements, x402.ReasonEchoMismatch, "The payment must repeat the advertised extensions unchanged.")
	}
	if e != nil && e.HTTPStatus() >= 500 {
		return nil, e
	}
	if e != nil {
		return nil, unpaid(required, e)
	}
	sold, err := s.Checkout.Sell(ctx, checkout.SaleRequest{
		Plan: plan, Sale: rail.Sale{Token: terms.token, Authorization: *signed, Signature: p.Signature}, ChainID: s.brand.Environment.ChainID(),
		Identifier: p.PaymentIdentifier, Content: saleContent(plan, terms), Wait: wait,
		Check: func() error { return saleFits(s.Clock(), terms, p, signed) },
	})
	if err != nil {
		return nil, s.saleRefused(required, signed.From, err)
	}
	b := &Bought{Order: sold.Order, Subscriber: signed.From, Replayed: !sold.Recorded}
	if sold.Order.HTTPStatus == 202 {
		return b, nil
	}
	if b.Balance, b.Receipt, err = s.saleReceipt(ctx, plan, b); err != nil {
		return nil, err
	}
	if sold.First {
		// Whoever was shown the authorization may be the one who buys: what the wallet had before is not theirs.
		var limit *toll.Credits
		if plan.Kind().Charges() {
			limit = &sold.Order.CreditsGranted
		}
		b.AccessToken, err = s.walletToken(ctx, plan.ID, signed.From, limit)
		if err != nil {
			// The plan is bought: the wallet signs in for its access token.
			s.Log.WarnContext(ctx, "cannot create an access token after a wallet bought a plan", "order", sold.Order.OrderID, "err", err)
		}
	}
	return b, nil
}

// saleFits compares a payment with the price as it is now.
func saleFits(now time.Time, t *saleTerms, p *x402.ExactPayment, a *evm.Authorization) error {
	after, before := new(big.Int).SetUint64(a.ValidAfter), new(big.Int).SetUint64(a.ValidBefore)
	at := func(d time.Duration) *big.Int { return big.NewInt(now.Add(d).Unix()) }
	switch {
	case a.To != t.payTo:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactRecipient, "The authorization does not pay the address in payTo.")
	case a.Value.Cmp(t.total.Int()) != 0:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactValue, "The amount of the authorization does not equal the price.")
	case after.Cmp(at(0)) > 0:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactValidAfter, "The authorization is not valid yet.")
	case before.Cmp(at(minSignedFor)) < 0:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactValidBefore, "The authorization expires too soon to be executed.")
	case before.Cmp(at(maxSignedFor)) > 0:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactValidBefore, "The authorization must expire within an hour.")
	case !t.entry.Pays(&p.Accepted):
		return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The accepted entry does not match the current price.")
	}
	return nil
}

// saleContent is what a payment identifier stands for.
func saleContent(plan *toll.Plan, t *saleTerms) toll.Hash {
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %s %s", saleVersion, plan.ID, t.entry.Network, t.entry.Asset, t.entry.Amount, t.entry.PayTo))
}

// saleRefused tells why a payment came to nothing: with status 402 what the wallet can mend.
func (s *Purchases) saleRefused(required *x402.SaleRequired, payer toll.Address, err error) error {
	e := toll.AsError(err)
	if e.Code == toll.CodeSettleConflict {
		return e.WithReason(x402.ReasonIdentifierConflict)
	}
	orderID, failed := e.Params["orderId"]
	switch e.Code {
	case toll.CodePlanUnlisted, toll.CodePlanSoldOut, toll.CodeCreditsOverflow:
		return e
	}
	if status := e.HTTPStatus(); status == 503 || e.Reason == "" && status != 402 && !failed {
		return e
	}
	word, _ := e.Params["reason"].(string)
	e = e.WithReason(cmp.Or(e.Reason, word, exactReason(e.Code)))
	u := unpaid(required, e)
	if failed && orderID != "" {
		u.Receipt = &x402.ExactReceipt{ErrorReason: e.Reason, ErrorMessage: e.Text(), Network: s.brand.Environment.Network(), Payer: payer.String()}
	}
	return u
}

// exactReason is the word of the standard for an error of the chain.
func exactReason(code toll.Code) string {
	switch code {
	case toll.CodeRequestUsed:
		return x402.ReasonExactNonceUsed
	case toll.CodeChainBalance, toll.CodeOrderLacksMoney:
		return x402.ReasonExactBalance
	}
	return x402.ReasonTransactionState
}

// saleReceipt returns the receipt of an order that is paid, and the balance of the subscriber now.
func (s *Purchases) saleReceipt(ctx context.Context, plan *toll.Plan, b *Bought) (toll.Credits, []byte, error) {
	balance := b.Order.Balance
	if balance == nil {
		var err error
		if balance, err = s.Checkout.Balance(ctx, plan, b.Subscriber, false); err != nil {
			return 0, nil, err
		}
	}
	kept, err := store.SaleReceipt(ctx, s.Store, b.Order.OrderID)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return balance.Balance, kept, checkout.Fault(err)
	}
	receipt, err := x402.Encode(&x402.ExactReceipt{
		Success: true, Transaction: b.Order.TxHash, Network: s.brand.Environment.Network(), Payer: b.Subscriber.String(), Amount: b.Order.Amount.String(),
		Extra: &x402.ExactGrant{
			OrderID: b.Order.OrderID, PlanID: plan.ID, CreditsGranted: b.Order.CreditsGranted, RemainingBalance: balance.Balance,
		},
		Extensions: s.Receipt(ctx, s.saleURL(plan.ID), s.brand.Environment.Network(), b.Subscriber.String(), b.Order.TxHash, s.Clock()),
	})
	if err != nil {
		return 0, nil, err
	}
	err = s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		kept, err = store.KeepSaleReceipt(ctx, tx, b.Order.OrderID, receipt)
		return err
	})
	return balance.Balance, kept, checkout.Fault(err)
}

// walletToken makes an access token for a wallet: for an hour, and without a delegation, so that it can never buy. limit are the
// credits that it may burn, nil for all of the wallet.
func (s *Purchases) walletToken(ctx context.Context, id toll.PlanID, wallet toll.Address, limit *toll.Credits) (*toll.AccessToken, error) {
	secs := int64(walletTokenSecs)
	return s.Tokens.Create(ctx, auth.Caller{Address: wallet}, &tokens.PermissionRequest{PlanID: id, RedemptionLimit: limit, ExpiresInSecs: &secs}, nil)
}
