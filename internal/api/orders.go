package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
)

// orderWait is how long the answer to an order waits for its credits unless the operator says otherwise.
const orderWait = 30 * time.Second

type orders struct {
	store    *store.Store
	checkout *checkout.Checkout
	chain    *Chain
	wait     time.Duration
}

func (s orders) routes(cards cardEvents) []route {
	const at = Base + "/protocol/plans"
	return []route{
		{
			op: "orderPlan", further: 202, method: "POST", path: at + "/{planId}/order", auth: keyed, right: toll.RightSpend, tag: "Orders", summary: "Order a plan",
			action: createsLive(s.orderPlan, s.currentOrder), codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadUUID, toll.CodePlanNotFound, toll.CodeFiatPlanOnCryptoRoute, toll.CodeSuspended, toll.CodePlanUnlisted, toll.CodePlanSoldOut,
				toll.CodeTrialUsed, toll.CodeCreditsOverflow, toll.CodeOrderLacksMoney, toll.CodeDelegationNotFound, toll.CodeDelegationRevoked,
				toll.CodeDelegationExpired, toll.CodeDelegationExhausted, toll.CodeDelegationInsufficient, toll.CodeDelegationPlanMismatch,
				toll.CodeDelegationFrozen, toll.CodePaymentMethodUnusable, toll.CodePaymentMethodRevoked, toll.CodePaymentMethodNotAllowed,
				toll.CodeUnsupportedScheme, toll.CodeCardOff, toll.CodeCardUnreachable, toll.CodeCardDeclined, toll.CodeCardAuthentication,
				toll.CodeCheckoutFailed, toll.CodeChainUnreachable,
				toll.CodeChainContracts, toll.CodeChainBalance, toll.CodeChainOrderConflict, toll.CodeChainFailed, toll.CodeChainRelayerLow,
				toll.CodeChainFeeCap, toll.CodeChainToken, toll.CodeChainNativeDelegation, toll.CodeChainForeignCode, toll.CodeChainSignature,
				toll.CodeChainPaused, toll.CodeChainSignerCap, toll.CodeSpendLimit, toll.CodeSpendLimitDelegation,
			},
		},
		{
			op: "openCheckout", method: "POST", path: at + "/{planId}/checkout", auth: keyed, right: toll.RightSpend, tag: "Orders",
			summary: "Create a checkout page on which a person pays for a fiat plan", action: createsLive(s.openCheckout, s.openedCheckout), codes: checkoutCodes,
		},
		{
			op: "openStripePayment", method: "POST", path: Base + "/fiat/stripe/payment", auth: keyed, right: toll.RightSpend, tag: "Orders",
			summary: "Create a checkout page on which a person pays for a fiat plan", action: createsLive(s.openStripePayment, s.openedCheckout), codes: checkoutCodes,
		},
		{
			op: "receiveStripeEvent", method: "POST", path: PathStripeEvent, auth: open, right: public, tag: "Orders",
			anyVersion: true, summary: "Receive events from the card processor",
			action: raw(maxStripeEvent, cards.checkHead, cards.receive),
			codes:  []toll.Code{toll.CodeCardOff, toll.CodeWebhookSignature, toll.CodeBodyTooLarge, toll.CodeDatabaseUnavailable},
		},
		{
			op: "listOrders", export: toll.RightMoney, method: "GET", path: Base + "/protocol/orders", auth: keyed, right: toll.RightRead, tag: "Orders",
			summary: "List your orders or the orders for your plans, without balances", action: lists("OrderList", list.Orders, s.listOrders),
			query: slices.Concat([]query{
				{"role", "buyer (default): your orders; seller: orders for your plans."},
				{"planId", "Only orders of this plan."},
				{"subscriber", "Only orders of this address. Requires role=seller and planId."},
			}, between, sortedBy(store.SortCreated)),
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeBadID, toll.CodeBadAddress, toll.CodePlanNotFound, toll.CodeNotPlanOwner},
		},
		{
			op: "listSubscribers", export: toll.RightMoney, method: "GET", path: at + "/{planId}/subscribers", auth: owners, right: toll.RightRead, tag: "Plans",
			summary: "List the balances of the subscribers to one of your plans", action: lists("SubscriberList", list.Subscribers, s.listSubscribers),
			query: sortedBy(store.SortSubscriber), codes: []toll.Code{toll.CodeBadPage, toll.CodeBadID, toll.CodePlanNotFound, toll.CodeNotPlanOwner},
		},
		{
			op: "listHoldings", export: toll.RightRead, method: "GET", path: Base + "/protocol/holdings", auth: keyed, right: toll.RightRead, tag: "Plans",
			summary: "List your balances", action: lists("HoldingList", list.Holdings, s.listHoldings),
			query: sortedBy(store.SortPlan), codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "readOrder", method: "GET", path: Base + "/protocol/orders/{orderId}", auth: ends, right: toll.RightRead, tag: "Orders", summary: "Read an order",
			action: reads(s.readOrder), codes: []toll.Code{toll.CodeBadUUID, toll.CodeOrderNotFound},
		},
		{
			op: "refundOrder", further: 202, method: "POST", path: Base + "/protocol/orders/{orderId}/refund", auth: owners, right: toll.RightMoney, tag: "Orders",
			summary: "Refund a card payment, in full or in part", action: createsLive(s.refundOrder, s.currentRefund),
			codes: []toll.Code{
				toll.CodeBadUUID, toll.CodeBadNumber, toll.CodeOrderNotFound, toll.CodeNotPlanOwner, toll.CodeRefundRefused, toll.CodeCardOff,
				toll.CodeCardUnreachable,
			},
		},
		{
			op: "mintCredits", method: "POST", path: at + "/mint", auth: owners, right: toll.RightManage, tag: "Orders", summary: "Grant credits of a plan to an address",
			action: creates(s.mint), codes: mintCodes,
		},
		{
			op: "mintExpirableCredits", method: "POST", path: at + "/mintExpirable", auth: owners, right: toll.RightManage, tag: "Orders", summary: "Grant credits that expire",
			action: creates(s.mintExpirable), codes: mintCodes,
		},
		{
			op: "takeBackCredits", method: "POST", path: at + "/takeBack", auth: owners, right: toll.RightMoney, tag: "Orders",
			summary: "Take back credits that were granted without payment and are neither spent nor on hold", action: creates(s.takeBack),
			codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadAddress, toll.CodeBadNumber, toll.CodeCreditsNotFree, toll.CodeNotPlanOwner,
				toll.CodePlanNotFound,
			},
		},
	}
}

var mintCodes = []toll.Code{
	toll.CodeBadID, toll.CodeBadAddress, toll.CodeBadNumber, toll.CodeMintNotPositive, toll.CodeCreditsOverflow, toll.CodeNotPlanOwner, toll.CodePlanNotFound,
}

var checkoutCodes = []toll.Code{
	toll.CodeBadID, toll.CodePlanNotFound, toll.CodeCheckoutWrongPlan, toll.CodeCheckoutFailed, toll.CodeSuspended, toll.CodePlanUnlisted, toll.CodePlanSoldOut,
	toll.CodeTrialUsed, toll.CodeCreditsOverflow, toll.CodeCardOff, toll.CodeCardUnreachable,
}

// OrderInput is the body of an order, all of it optional.
type OrderInput struct {
	DelegationID *string `json:"delegationId,omitzero" doc:"Delegation to pay with: its id or its signed reference. Not needed for a free plan."`
}

func (s orders) listHoldings(c *call, p store.Page, _ url.Values) (store.List[toll.Balance], error) {
	return s.checkout.Reports.Holdings(c.context, c.caller.Address, p)
}

// orderPlan answers 202 when the order is not decided in time.
func (s orders) orderPlan(c *call, in *OrderInput, once *store.Once) (*toll.Order, error) {
	delegation := ""
	if in.DelegationID != nil {
		var err error
		if delegation, err = s.checkout.Delegations.ID(c.caller.Address, *in.DelegationID); err != nil {
			return nil, err
		}
	}
	plan, err := planInPath(c, s.store, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	o, err := s.checkout.Order(c.context, checkout.OrderRequest{
		Caller: c.caller.Address, APIKeyID: c.caller.KeyID, UserID: c.caller.UserID, Plan: plan, DelegationID: delegation, Wait: s.wait,
	}, once)
	return s.answer(c, o, err)
}

func (s orders) currentOrder(c *call, earlier checkout.OrderRef) (*toll.Order, error) {
	o, err := s.checkout.ReplayOrder(c.context, c.caller.Address, earlier.OrderID, s.wait)
	return s.answer(c, o, err)
}

func (s orders) answer(c *call, o *toll.Order, err error) (*toll.Order, error) {
	if err != nil {
		return nil, err
	}
	s.link(o)
	if o.HTTPStatus == http.StatusAccepted {
		c.later(o)
	}
	return o, nil
}

// later says that an order is not decided, and where it is read.
func (c *call) later(o *toll.Order) {
	c.status = http.StatusAccepted
	header := c.w.Header()
	header["Location"] = []string{Base + "/protocol/orders/" + o.OrderID}
	header["Retry-After"] = []string{"2"}
}

// CheckoutInput says how the page is made on which a person pays.
type CheckoutInput struct {
	SessionType *string `json:"sessionType,omitzero" enum:"embedded,hosted" doc:"embedded (default): the order page contains the card form. hosted: it links to the page of the card processor."`
	SuccessURL  *string `json:"successUrl,omitzero" format:"uri" doc:"Address to open after the payment."`
	CancelURL   *string `json:"cancelUrl,omitzero" format:"uri" doc:"Address to open if the person cancels."`
}

// StripePaymentInput is a checkout that names its plan.
type StripePaymentInput struct {
	PlanID toll.PlanID `json:"planId"`
	CheckoutInput
}

func (*StripePaymentInput) required() []string { return []string{"planId"} }

func (s orders) openCheckout(c *call, in *CheckoutInput, once *store.Once) (*toll.Checkout, error) {
	plan, err := planInPath(c, s.store, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	return s.openPage(c, plan, in, once)
}

func (s orders) openStripePayment(c *call, in *StripePaymentInput, once *store.Once) (*toll.Checkout, error) {
	plan, err := planByID(c.context, s.store, in.PlanID, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	return s.openPage(c, plan, &in.CheckoutInput, once)
}

func (s orders) openedCheckout(c *call, earlier checkout.OrderRef) (*toll.Checkout, error) {
	return s.checkout.ReplayFiat(c.context, c.caller.Address, earlier.OrderID, s.wait)
}

func (s orders) openPage(c *call, plan *toll.Plan, in *CheckoutInput, once *store.Once) (*toll.Checkout, error) {
	r := checkout.FiatRequest{Caller: c.caller.Address, Plan: plan, Wait: s.wait}
	if in.SessionType != nil {
		switch strings.ToLower(*in.SessionType) {
		case "hosted":
			r.Session.Hosted = true
		case "embedded", "":
		default:
			return nil, toll.Faults([]toll.Fault{{Path: "sessionType", Message: "must be embedded or hosted"}})
		}
	}
	if in.SuccessURL != nil {
		r.Session.SuccessURL = *in.SuccessURL
	}
	if in.CancelURL != nil {
		r.Session.CancelURL = *in.CancelURL
	}
	return s.checkout.Fiat(c.context, r, once)
}

func (s orders) listOrders(c *call, p store.Page, q url.Values) (none store.List[*toll.Order], err error) {
	f := filters{q: q}
	asked := checkout.OrderQuery{
		AsSeller: filter(&f, "role", wordOf("buyer", "seller")) == "seller", Plan: filter(&f, "planId", toll.ParsePlanID),
		Subscriber: filter(&f, "subscriber", toll.ParseAddress), Page: p,
	}
	asked.Since, asked.Until = f.between()
	if f.err == nil && !asked.Subscriber.IsZero() && (!asked.AsSeller || asked.Plan == "") {
		f.err = toll.Faults([]toll.Fault{{Path: "subscriber", Message: "requires role=seller and planId"}})
	}
	if f.err != nil {
		return none, f.err
	}
	list, err := s.checkout.Orders(c.context, c.caller.Address, asked)
	for _, o := range list.Items {
		s.link(o)
	}
	return list, err
}

func (s orders) listSubscribers(c *call, p store.Page, _ url.Values) (none store.List[toll.Balance], err error) {
	id, err := toll.ParsePlanID(c.param("planId"))
	if err != nil {
		return none, err
	}
	return s.checkout.Reports.Subscribers(c.context, c.caller.Address, id, p)
}

func (s orders) readOrder(c *call) (*toll.Order, error) {
	o, err := s.checkout.OrderByID(c.context, c.caller.Address, c.param("orderId"))
	if err == nil {
		s.link(o)
	}
	return o, err
}

// link adds the page about the transaction of an order that was paid on a public chain.
func (s orders) link(o *toll.Order) {
	onChain := o.Currency != toll.CurrencyUSD && o.Currency != toll.CurrencyEUR && !o.Amount.IsZero()
	if s.chain == nil || s.chain.Explorer == "" || o.TxHash == "" || !onChain {
		return
	}
	o.Data["transactionUrl"] = s.chain.Explorer + "/tx/" + o.TxHash
}

type RefundInput struct {
	AmountCents *toll.Cents `json:"amountCents,omitzero" doc:"Amount to refund, in cents of the order's currency, at least 1. Defaults to everything that can still be refunded. Null and unknown members are rejected."`
}

// refundOrder answers 202 while the card processor has not taken the refund. It refuses unknown members
// and null, because without amountCents everything goes back.
func (s orders) refundOrder(c *call, in *RefundInput, once *store.Once) (*toll.Order, error) {
	var faults []toll.Fault
	for _, path := range c.unknown {
		faults = append(faults, toll.Fault{Path: path, Message: "is unknown; send the amount of the refund in amountCents"})
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(c.current, &given) // it was decoded before
	if raw, there := given["amountCents"]; there && string(raw) == "null" {
		faults = append(faults, toll.Fault{Path: "amountCents", Message: "must be a number of cents; omit it for a full refund"})
	}
	if len(faults) > 0 {
		return nil, toll.Faults(faults)
	}
	o, err := s.checkout.Refund(c.context, c.caller.Address, c.param("orderId"), in.AmountCents, once, s.wait)
	return s.answer(c, o, err)
}

func (s orders) currentRefund(c *call, earlier checkout.RefundRef) (*toll.Order, error) {
	o, err := s.checkout.ReplayRefund(c.context, c.caller.Address, earlier, s.wait)
	return s.answer(c, o, err)
}

// MintInput grants credits.
type MintInput struct {
	PlanID          toll.PlanID   `json:"planId"`
	Amount          *toll.Credits `json:"amount,omitzero" doc:"Number of credits. This or creditsAmount is required."`
	CreditsAmount   *toll.Credits `json:"creditsAmount,omitzero" doc:"Alias of amount."`
	CreditsReceiver *toll.Address `json:"creditsReceiver,omitzero" doc:"Receiver of the credits. This or holderAddress is required."`
	HolderAddress   *toll.Address `json:"holderAddress,omitzero" doc:"Alias of creditsReceiver."`
}

func (*MintInput) required() []string { return []string{"planId"} }

// MintExpirableInput grants credits that end.
type MintExpirableInput struct {
	PlanID          toll.PlanID     `json:"planId"`
	CreditsAmount   *toll.Credits   `json:"creditsAmount,omitzero" doc:"Number of credits. This or amount is required."`
	Amount          *toll.Credits   `json:"amount,omitzero" doc:"Alias of creditsAmount."`
	CreditsReceiver *toll.Address   `json:"creditsReceiver,omitzero" doc:"Receiver of the credits. This or holderAddress is required."`
	HolderAddress   *toll.Address   `json:"holderAddress,omitzero" doc:"Alias of creditsReceiver."`
	CreditsDuration toll.Units      `json:"creditsDuration,omitzero" doc:"Seconds until the credits expire. Defaults to 0 (never)."`
	ExpirationBlock json.RawMessage `json:"expirationBlock,omitzero" doc:"Not supported: credits expire at a time, not at a block. Use creditsDuration." deprecated:"true"`
}

func (*MintExpirableInput) required() []string { return []string{"planId"} }

func (s orders) mint(c *call, in *MintInput, once *store.Once) (*toll.ActResult, error) {
	holder, err := either("creditsReceiver", in.CreditsReceiver, "holderAddress", in.HolderAddress)
	if err != nil {
		return nil, err
	}
	amount, err := either("amount", in.Amount, "creditsAmount", in.CreditsAmount)
	if err != nil {
		return nil, err
	}
	return s.checkout.Mint(c.context, c.caller.Address, in.PlanID, holder, amount, toll.Units{}, once)
}

func (s orders) mintExpirable(c *call, in *MintExpirableInput, once *store.Once) (*toll.ActResult, error) {
	if len(in.ExpirationBlock) > 0 && string(in.ExpirationBlock) != "null" {
		return nil, toll.Faults([]toll.Fault{{Path: "expirationBlock", Message: "is not supported: credits expire at a time, not at a block; use creditsDuration"}})
	}
	holder, err := either("creditsReceiver", in.CreditsReceiver, "holderAddress", in.HolderAddress)
	if err != nil {
		return nil, err
	}
	amount, err := either("creditsAmount", in.CreditsAmount, "amount", in.Amount)
	if err != nil {
		return nil, err
	}
	return s.checkout.Mint(c.context, c.caller.Address, in.PlanID, holder, amount, in.CreditsDuration, once)
}

type TakeBackInput struct {
	PlanID        toll.PlanID  `json:"planId"`
	Amount        toll.Credits `json:"amount" doc:"Credits to take back, at least 1. If fewer credits can be taken back, the call fails and returns their number."`
	HolderAddress toll.Address `json:"holderAddress" doc:"Holder of the credits."`
}

func (*TakeBackInput) required() []string { return []string{"planId", "amount", "holderAddress"} }

// takeBack moves no money; see refundOrder.
func (s orders) takeBack(c *call, in *TakeBackInput, once *store.Once) (*toll.ActResult, error) {
	return s.checkout.Withdraw(c.context, c.caller.Address, in.PlanID, in.HolderAddress, in.Amount, once)
}

// either returns a member that has two names: it must be there, and not with two values.
func either[T comparable](name string, value *T, other string, otherValue *T) (v T, err error) {
	switch {
	case value == nil && otherValue == nil:
		return v, toll.Faults([]toll.Fault{{Path: name, Message: "is required"}})
	case value == nil:
		return *otherValue, nil
	case otherValue != nil && *otherValue != *value:
		return v, toll.Faults([]toll.Fault{{Path: other, Message: "must equal " + name}})
	}
	return *value, nil
}

// PathStripeEvent is where the card processor sends its events.
const PathStripeEvent = Base + "/fiat/stripe/webhook"

// maxStripeEvent bounds an event of the card processor, in bytes.
const maxStripeEvent = 512 << 10

// StripeEvents takes the events of the card processor. signature is the header Stripe-Signature.
type StripeEvents interface {
	// CheckHead rejects an event with an invalid header before its body is read. Error: [toll.CodeWebhookSignature].
	CheckHead(signature string) error
	// Receive verifies an event and stores it. body is as it came, byte for byte. Errors:
	// [toll.CodeWebhookSignature], those of the database.
	Receive(ctx context.Context, signature string, body []byte) error
}

// cardEvents hands events of the card processor to its rail.
type cardEvents struct{ stripe StripeEvents }

// checkHead refuses an event before its body is read.
func (s cardEvents) checkHead(c *call) error {
	if s.stripe == nil {
		return toll.NewError(toll.CodeCardOff)
	}
	lines := c.r.Header["Stripe-Signature"]
	if len(lines) != 1 {
		return toll.NewError(toll.CodeWebhookSignature).WithDetails("The request must have a single Stripe-Signature header.")
	}
	return s.stripe.CheckHead(lines[0])
}

// StripeEventReceived is the answer to an event of the card processor.
type StripeEventReceived struct {
	Received bool `json:"received"`
}

func (s cardEvents) receive(c *call, body []byte) (*StripeEventReceived, error) {
	if err := s.stripe.Receive(c.context, c.r.Header["Stripe-Signature"][0], body); err != nil {
		return nil, err
	}
	return &StripeEventReceived{Received: true}, nil
}
