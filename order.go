package toll

import "encoding/json"

// Lot is a part of a balance that was granted together and expires together.
type Lot struct {
	Amount    Credits `json:"amount"`
	Remaining Credits `json:"remaining"`
	ExpiresAt *Time   `json:"expiresAt"` // null: never
}

// Balance is the balance of a subscriber for a plan (wire contract, section 10).
type Balance struct {
	PlanID            PlanID          `json:"planId"`
	PlanName          string          `json:"planName"`
	PlanType          AccessLimit     `json:"planType"`
	HolderAddress     Address         `json:"holderAddress"`
	Balance           Credits         `json:"balance" doc:"Unspent credits, including the held credits: available plus held."`
	Held              Credits         `json:"held" doc:"Credits reserved for open requests."`
	Available         Credits         `json:"available" doc:"Credits that new requests can use: balance minus held."`
	CreditsContract   Address         `json:"creditsContract"`
	IsSubscriber      bool            `json:"isSubscriber" doc:"Whether an order or a grant of the holder has not expired, even if its credits are used up."`
	IsSubscriberAlias bool            `json:"is_subscriber" doc:"The same as isSubscriber, for existing clients."`
	PricePerCredit    json.RawMessage `json:"pricePerCredit"` // a JSON number
	Batch             bool            `json:"batch"`
	Total             Credits         `json:"total" doc:"Credits granted in total, by orders and by the seller."`
	Used              Credits         `json:"used" doc:"Credits burned by settled requests. Expired credits and credits that were taken back are not included."`
	Remaining         Credits         `json:"remaining" doc:"The same as balance, for existing clients."`
	ExpiresAt         *Time           `json:"expiresAt" doc:"Expiry of the credits that expire last. Null if they never expire."`
	Lots              []Lot           `json:"lots,omitzero"`
}

// OrderStatus is the state of an order.
type OrderStatus string

// States of an order. The credits are available from confirmed on; free and card orders skip signed, sent, and included.
const (
	OrderCreated   OrderStatus = "created"
	OrderSigned    OrderStatus = "signed"
	OrderSent      OrderStatus = "sent"
	OrderIncluded  OrderStatus = "included"
	OrderConfirmed OrderStatus = "confirmed"
	OrderFinal     OrderStatus = "final"
	OrderFailed    OrderStatus = "failed"
)

// OrderFailure is the cause of a failed order.
type OrderFailure string

// Causes of failed orders. Later releases can add some.
const (
	FailureExpired        OrderFailure = "expired"                 // the payment page or the authorization expired before the payment
	FailureDeclined       OrderFailure = "declined"                // the bank or the card processor declined the card
	FailureAuthentication OrderFailure = "authentication_required" // the bank requires the cardholder to confirm the payment
	FailureFunds          OrderFailure = "insufficient_funds"      // the card, account, or delegation has too little money
	FailureOther          OrderFailure = "other"                   // FailureReason has the details
)

// OrderFailures returns all causes of failed orders.
func OrderFailures() []OrderFailure {
	return []OrderFailure{FailureExpired, FailureDeclined, FailureAuthentication, FailureFunds, FailureOther}
}

// Order is a purchase of a plan (wire contract, section 10).
type Order struct {
	Success        bool           `json:"success" doc:"False only for a failed order: it is also true while the order is open. An order is a sale if its status is confirmed or final."`
	OrderID        string         `json:"orderId"` // UUID
	Status         OrderStatus    `json:"status" enum:"created,signed,sent,included,confirmed,final,failed" doc:"The credits are available from confirmed on. Free and card orders skip signed, sent, and included."`
	PlanID         PlanID         `json:"planId"`
	TxHash         string         `json:"txHash"` // chain transaction; entry id for free plans; "" while none exists
	CreditsGranted Credits        `json:"creditsGranted"`
	Amount         Units          `json:"amount" doc:"Price: millionths of the currency for USD and EUR, base units for a token."`
	Currency       string         `json:"currency" doc:"Currency of the amount, or the address of another token."`
	Balance        *Balance       `json:"balance,omitempty"`
	FailureCode    OrderFailure   `json:"failureCode,omitempty"`
	FailureReason  string         `json:"failureReason,omitempty"`
	Message        string         `json:"message" doc:"The status as a sentence."`
	HTTPStatus     int            `json:"httpStatus" doc:"202 while an order or a refund is being processed, else 200."`
	Data           map[string]any `json:"data" doc:"Repeats orderId and planId for existing clients. Has transactionUrl if the order was paid on a public chain."`
	When           Time           `json:"when" doc:"Time of the last change."`

	SubscriberAddress Address `json:"subscriberAddress"`
	CreatedAt         Time    `json:"createdAt"`

	RefundedCents   Cents   `json:"refundedCents" doc:"Refunded amount of a card payment, in cents of the currency. A refund does not change the status."`
	RefundedCredits Credits `json:"refundedCredits" doc:"Credits taken back for refunds and disputes."`
	TakenByHand     Credits `json:"takenByHandCredits"` // free orders: credits that the seller took back without a refund
	Disputed        bool    `json:"disputed"`           // the cardholder disputes the payment, or won the dispute
	Replaces        *string `json:"replaces"`           // the failed order that this payment replaces
}

// OrderDispute is the data of the events about a disputed card payment.
type OrderDispute struct {
	Order
	Inquiry bool   `json:"inquiry"`           // an inquiry by the bank: no money has moved
	Outcome string `json:"outcome,omitempty"` // won or lost, for the builder; "" while the dispute is open
}

// ActResult is the answer to a change that returns no record (wire contract, section 4).
type ActResult struct {
	Success    bool           `json:"success"`
	Code       Code           `json:"code,omitempty"` // only when the record was already in the requested state
	Message    string         `json:"message"`
	TxHash     Hash           `json:"txHash"`
	HTTPStatus int            `json:"httpStatus"`
	Data       map[string]any `json:"data"`
	When       Time           `json:"when"`
}
