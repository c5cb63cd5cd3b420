package api

import (
	"encoding/base64"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// Headers of a payment in the form of http.Header keys.
var (
	signatureHeader = http.CanonicalHeaderKey(x402.HeaderSignature)
	requiredHeader  = http.CanonicalHeaderKey(x402.HeaderRequired)
	responseHeader  = http.CanonicalHeaderKey(x402.HeaderResponse)
	signInHeader    = http.CanonicalHeaderKey(x402.HeaderSignIn)
)

// versionOneHeader carried payments in version 1 of x402.
const versionOneHeader = "X-Payment"

// saleCodes are the refusals of a sale that no payment can cure, unpaidCodes those that one can: they have status 402 here,
// whatever their own is.
var (
	saleCodes = []toll.Code{
		toll.CodeBadID, toll.CodePathNotFound, toll.CodePlanNotFound, toll.CodeFiatPlanOnCryptoRoute, toll.CodeBadRequirements, toll.CodeBadRequest,
		toll.CodeSuspended, toll.CodePlanUnlisted, toll.CodePlanSoldOut, toll.CodeCreditsOverflow, toll.CodeSettleConflict, toll.CodeChainUnreachable,
		toll.CodeChainContracts, toll.CodeChainRelayerLow, toll.CodeChainFeeCap, toll.CodeChainSignerCap,
	}
	unpaidCodes = []toll.Code{
		toll.CodePaymentRequired, toll.CodeTokenUndecodable, toll.CodeBadX402Version, toll.CodeBadRequirements, toll.CodeUnsupportedScheme,
		toll.CodeRequestUsed, toll.CodeChainBalance, toll.CodeOrderLacksMoney, toll.CodeChainToken, toll.CodeChainFailed,
	}
)

type sales struct {
	purchases *purchases.Purchases
	wait      time.Duration
}

func (s sales) routes() []route {
	const at = Base + "/x402/plans/{planId}"
	return []route{
		{
			op: "buyPlan", further: 202, method: "POST", path: at + "/order", auth: open, right: public, tag: "Payments", unpaid: unpaidCodes,
			summary: "Buy a plan with a wallet, without an account. The 402 response contains the price; repeat the call with a payment of scheme exact in the header payment-signature",
			action:  reads(s.buyPlan), codes: saleCodes,
		},
		{
			op: "signInToPlan", further: 202, method: "POST", path: at + "/token", auth: open, right: public, tag: "Payments", unpaid: append([]toll.Code{toll.CodeInsufficientCredits}, unpaidCodes...),
			summary: "Create an access token for a wallet that has credits of the plan. The 402 response contains the message to sign; repeat the call with the signature in the header sign-in-with-x, or buy the plan with payment-signature",
			action:  reads(s.signInToPlan), codes: saleCodes,
		},
	}
}

// WalletAnswer is what a wallet gets for a payment or a sign-in.
type WalletAnswer struct {
	Success           bool             `json:"success"`
	Status            toll.OrderStatus `json:"status,omitzero" doc:"Status of the order. Absent after a sign-in."`
	OrderID           string           `json:"orderId,omitzero" format:"uuid"`
	TxHash            string           `json:"txHash,omitzero" doc:"Transaction that paid for the order. Absent until the transaction exists."`
	PlanID            toll.PlanID      `json:"planId"`
	SubscriberAddress toll.Address     `json:"subscriberAddress"`
	CreditsGranted    *toll.Credits    `json:"creditsGranted,omitzero" doc:"Credits granted by the order. Only for a paid order."`
	Balance           *toll.Credits    `json:"balance,omitzero" doc:"Current credits of the wallet, including held credits."`
	AccessToken       string           `json:"accessToken,omitzero" doc:"Returned only once: in the response to the purchase or to the sign-in."`
	TokenFormat       string           `json:"tokenFormat,omitzero" enum:"jwt,x402"`
	ExpiresAt         *toll.Time       `json:"expiresAt,omitzero" doc:"Expiry of the access token."`
	Replayed          bool             `json:"replayed,omitzero" doc:"True if an earlier call made the purchase."`
}

func (a *WalletAnswer) token(t *toll.AccessToken) {
	if t != nil {
		a.AccessToken, a.TokenFormat, a.ExpiresAt = t.AccessToken, t.TokenFormat, &t.ExpiresAt
	}
}

func (s sales) buyPlan(c *call) (*WalletAnswer, error) {
	payment, err := c.paymentHeader()
	if err != nil {
		return nil, err
	}
	id, err := toll.ParsePlanID(c.param("planId"))
	if err != nil {
		return nil, err
	}
	b, err := s.purchases.Buy(c.context, id, payment, s.wait)
	if err != nil {
		return nil, err
	}
	return c.bought(b), nil
}

func (s sales) signInToPlan(c *call) (*WalletAnswer, error) {
	payment, err := c.paymentHeader()
	if err != nil {
		return nil, err
	}
	proof, err := c.single(signInHeader)
	if err != nil {
		return nil, err
	}
	id, err := toll.ParsePlanID(c.param("planId"))
	if err != nil {
		return nil, err
	}
	b, admitted, err := s.purchases.PlanToken(c.context, id, payment, proof, s.wait)
	if err != nil {
		return nil, err
	}
	if b != nil {
		return c.bought(b), nil
	}
	a := &WalletAnswer{Success: true, PlanID: id, SubscriberAddress: admitted.Subscriber, Balance: &admitted.Balance}
	a.token(admitted.AccessToken)
	return a, nil
}

// single returns the one value of a header, "" when it is absent. Two are refused, as is one that proxies do not carry.
func (c *call) single(name string) (string, error) {
	lines := c.r.Header[name]
	switch {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", toll.Faults([]toll.Fault{{Path: name, Message: "must be a single header"}})
	case len(lines[0]) > x402.MaxTokenBytes:
		return "", toll.NewError(toll.CodeHeadersTooLarge)
	}
	return lines[0], nil
}

// paymentHeader returns the payment of a request. One of version 1 stands for itself: it cannot be read, and is told so.
func (c *call) paymentHeader() (string, error) {
	payment, err := c.single(signatureHeader)
	if err == nil && payment == "" && len(c.r.Header[versionOneHeader]) > 0 {
		return `{"x402Version":1}`, nil
	}
	return payment, err
}

func (c *call) bought(b *purchases.Bought) *WalletAnswer {
	o := b.Order
	a := &WalletAnswer{
		Success: true, Status: o.Status, OrderID: o.OrderID, TxHash: o.TxHash, PlanID: o.PlanID, SubscriberAddress: b.Subscriber, Replayed: b.Replayed,
	}
	if o.HTTPStatus == http.StatusAccepted {
		c.later(o)
		return a
	}
	a.CreditsGranted, a.Balance = &o.CreditsGranted, &b.Balance
	a.token(b.AccessToken)
	c.w.Header()[responseHeader] = []string{base64.StdEncoding.EncodeToString(b.Receipt)}
	return a
}

// PaymentRequiredError is the shape of an error with the price of the route. The header payment-required has the members of x402 alone.
type PaymentRequiredError struct {
	X402Version toll.Int       `json:"x402Version"`
	Error       string         `json:"error" doc:"Payment required, or the reason and a message if the service rejected the payment."`
	Resource    x402.Resource  `json:"resource"`
	Accepts     []PaymentEntry `json:"accepts"`
	Extensions  map[string]any `json:"extensions" doc:"Extensions by name, each with info and schema: payment-identifier and sign-in-with-x."`
	toll.ErrorBody
}

// PaymentEntry is a way to pay: tokens with scheme exact, or credits.
type PaymentEntry struct {
	Scheme            string            `json:"scheme"`
	Network           string            `json:"network"`
	Amount            string            `json:"amount" doc:"Price in base units of the asset, or in credits."`
	Asset             string            `json:"asset"`
	PayTo             string            `json:"payTo"`
	MaxTimeoutSeconds toll.Int          `json:"maxTimeoutSeconds"`
	PlanID            toll.PlanID       `json:"planId,omitzero"`
	Extra             PaymentEntryExtra `json:"extra"`
}

// PaymentEntryExtra has the EIP-712 domain of the asset for scheme exact.
type PaymentEntryExtra struct {
	Name                string      `json:"name,omitzero"`
	Version             string      `json:"version,omitzero"`
	AssetTransferMethod string      `json:"assetTransferMethod,omitzero"`
	PlanID              toll.PlanID `json:"planId,omitzero"`
}

// demand answers 402: a body with the members of what is asked for and of the error, and what is asked for as a header.
func (c *call) demand(u *purchases.Unpaid) {
	required, err := x402.Encode(u.Required)
	if err != nil {
		c.fail(toll.NewError(toll.CodeInternal).WithCause(err))
		return
	}
	failure, err := x402.Encode(u.Cause.Body(c.correlation.ID, c.h.docsBase))
	if err != nil {
		c.fail(toll.NewError(toll.CodeInternal).WithCause(err))
		return
	}
	c.log(u.Cause, http.StatusPaymentRequired)
	c.h.Refused(u.Cause.Code)
	header := c.w.Header()
	header[requiredHeader] = []string{base64.StdEncoding.EncodeToString(required)}
	if u.Receipt != nil {
		if receipt, err := x402.EncodeHeader(u.Receipt); err == nil {
			header[responseHeader] = []string{receipt}
		}
	}
	c.write(http.StatusPaymentRequired, jsonType, append(append(required[:len(required)-1], ','), failure[1:]...))
}
