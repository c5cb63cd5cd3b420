package toll

import (
	"encoding/json"
	"strconv"
)

// MaxCents is the largest sum of money in cents that a request may name.
const MaxCents Cents = 1_000_000_000_000

// Cents is a sum of money in cents of a currency. On the wire it is a decimal string; a JSON integer is accepted.
type Cents int64

// String returns the decimal text.
func (c Cents) String() string { return strconv.FormatInt(int64(c), 10) }

// MarshalJSON writes a decimal string.
func (c Cents) MarshalJSON() ([]byte, error) { return []byte(`"` + c.String() + `"`), nil }

// UnmarshalJSON takes a decimal string or a JSON integer, 0 to [MaxCents].
func (c *Cents) UnmarshalJSON(b []byte) error {
	return readNumber(b, func(s string) (Cents, error) {
		n, err := parseInt("An amount in cents", s)
		if Cents(n) > MaxCents {
			err = badNumber("An amount in cents", s)
		}
		return Cents(n), err
	}, c)
}

// Provider is the payment rail of a delegation.
type Provider string

// Providers.
const (
	ProviderCrypto Provider = "erc4337" // the wallet of the subscriber
	ProviderCard   Provider = "stripe"  // an enrolled card
)

// StatusPending is the status of a delegation that waits for its signature. A delegation otherwise has a status of a permission.
const StatusPending PermissionStatus = "Pending"

// StatusFrozen is the status of a delegation that cannot pay at present: its card was declined three times in a row, or one
// of its payments is disputed.
const StatusFrozen PermissionStatus = "Frozen"

// Delegation is a spending limit up to which access tokens of its holder can buy plans (wire contract, section 11).
type Delegation struct {
	DelegationID            string           `json:"delegationId"` // UUID
	Provider                Provider         `json:"provider"`
	ProviderPaymentMethodID string           `json:"providerPaymentMethodId"` // the address of the wallet for crypto
	Status                  PermissionStatus `json:"status"`
	SpendingLimitCents      Cents            `json:"spendingLimitCents"`
	AmountSpentCents        Cents            `json:"amountSpentCents"`
	RemainingBudgetCents    Cents            `json:"remainingBudgetCents"` // excludes amounts reserved for pending orders
	Currency                string           `json:"currency"`             // usdc, eurc, usd or eur
	TransactionCount        int64            `json:"transactionCount"`     // orders, including pending ones
	ExpiresAt               Time             `json:"expiresAt"`
	CreatedAt               Time             `json:"createdAt"`
	APIKeyID                *Hash            `json:"apiKeyId"` // null: every key
	PlanID                  *PlanID          `json:"planId"`   // null: every plan
	MerchantAccountID       *string          `json:"merchantAccountId"`
	MaxTransactions         *int64           `json:"maxTransactions"` // null: no limit
	LastUsedAt              *Time            `json:"lastUsedAt"`
	AllowedRecipients       []Address        `json:"allowedRecipients"` // empty: every receiver
}

// DelegationCreated is the answer to the creation of a delegation.
type DelegationCreated struct {
	DelegationID      string           `json:"delegationId"`
	DelegationIDAlias string           `json:"delegation_id"`   // equal
	DelegationToken   *string          `json:"delegationToken"` // a signed reference, for cards only
	Status            PermissionStatus `json:"status"`
	ExpiresAt         Time             `json:"expiresAt"`
	// TypedData is the EIP-712 data that the account must sign, in the form wallets accept, when Status is Pending.
	TypedData map[string]any     `json:"typedData,omitempty"`
	Account   *DelegationAccount `json:"account,omitempty"` // the account that must sign a pending delegation
}

// DelegationAccount is an account that the user controls and that must sign the delegation.
type DelegationAccount struct {
	Address Address `json:"address"`
	// CodeRequired reports that the account has no code yet, so the signature must include a signed EIP-7702 authorization.
	CodeRequired bool `json:"codeRequired"`
}

// TransactionStatus is the state of a payment under a delegation.
type TransactionStatus string

// States of a payment.
const (
	TransactionPending   TransactionStatus = "pending"
	TransactionSucceeded TransactionStatus = "succeeded"
	TransactionFailed    TransactionStatus = "failed"
)

// DelegationTransaction is one order paid, pending, or failed under a delegation.
type DelegationTransaction struct {
	ID                    string            `json:"id"` // UUID
	DelegationID          string            `json:"delegationId"`
	ProviderTransactionID string            `json:"providerTransactionId"` // "" while none exists
	AmountCents           Cents             `json:"amountCents"`
	Currency              string            `json:"currency"`
	Status                TransactionStatus `json:"status"`
	FailureReason         *string           `json:"failureReason"`
	OrderID               string            `json:"orderId"`
	CreatedAt             Time              `json:"createdAt"`
}

// PaymentMethod is a card or the wallet of an account (wire contract, section 12).
type PaymentMethod struct {
	ID               string           `json:"id"`
	Type             string           `json:"type"`  // card or crypto_wallet
	Brand            string           `json:"brand"` // "ethereum" for the wallet
	Last4            string           `json:"last4"`
	ExpMonth         int64            `json:"expMonth"` // 0 for the wallet
	ExpYear          int64            `json:"expYear"`
	Alias            *string          `json:"alias"`
	Provider         Provider         `json:"provider"`
	Status           PermissionStatus `json:"status"`
	AllowedAPIKeyIDs *[]Hash          `json:"allowedApiKeyIds"` // null: every key
	OrgID            *string          `json:"orgId"`
}

// Types of payment methods.
const (
	PaymentCard   = "card"
	PaymentWallet = "crypto_wallet"
)

// Checkout is a page on which a person pays an order (wire contract, section 10).
type Checkout struct {
	Result  CheckoutSession `json:"result"`
	OrderID string          `json:"orderId"`
}

// CheckoutSession is the page itself. The times are seconds since 1970.
type CheckoutSession struct {
	SessionID         string `json:"stripeCheckoutSessionId"`
	Link              string `json:"checkoutLink" doc:"The same as checkoutUrl, for existing clients."`
	URL               string `json:"checkoutUrl" doc:"The page on which a person pays."`
	ClientReferenceID string `json:"clientReferenceId"`
	PaymentStatus     string `json:"paymentStatus"` // unpaid or paid
	CreatedAt         int64  `json:"linkCreatedAt"`
	ExpiresAt         int64  `json:"linkExpiresAt"`
}

// DelegationInput is the request to create a delegation. Every member may be sent in camelCase and in snake_case; see
// [DelegationInput.Merge].
type DelegationInput struct {
	Provider                *string   `json:"provider,omitzero"`
	SpendingLimitCents      *Cents    `json:"spendingLimitCents,omitzero"`
	DurationSecs            *Int      `json:"durationSecs,omitzero"`
	Currency                *string   `json:"currency,omitzero" doc:"usdc (default) or eurc. For cards: usd (default) or eur."`
	ProviderPaymentMethodID *string   `json:"providerPaymentMethodId,omitzero" doc:"For cards: the id from GET /payment-methods."`
	PlanID                  *PlanID   `json:"planId,omitzero"`
	MaxTransactions         *Int      `json:"maxTransactions,omitzero"`
	APIKeyID                *Hash     `json:"apiKeyId,omitzero"`
	AllowedRecipients       []Address `json:"allowedRecipients,omitzero"`
	OwnerAccount            *Address  `json:"ownerAccount,omitzero"`
	MerchantAccountID       *string   `json:"merchantAccountId,omitzero"`

	SpendingLimitCentsSnake      *Cents    `json:"spending_limit_cents,omitzero"`
	DurationSecsSnake            *Int      `json:"duration_secs,omitzero"`
	ProviderPaymentMethodIDSnake *string   `json:"provider_payment_method_id,omitzero"`
	PlanIDSnake                  *PlanID   `json:"plan_id,omitzero"`
	MaxTransactionsSnake         *Int      `json:"max_transactions,omitzero"`
	APIKeyIDSnake                *Hash     `json:"api_key_id,omitzero"`
	AllowedRecipientsSnake       []Address `json:"allowed_recipients,omitzero"`
	OwnerAccountSnake            *Address  `json:"owner_account,omitzero"`
	MerchantAccountIDSnake       *string   `json:"merchant_account_id,omitzero"`
}

// Merge returns the input with every member under its camelCase name only. A member sent under both names with different values is a fault.
func (in DelegationInput) Merge() (DelegationInput, []Fault) {
	var faults []Fault
	twice := func(path string, differs bool) {
		if differs {
			faults = append(faults, Fault{Path: path, Message: "must equal the same member in camelCase"})
		}
	}
	twice("spending_limit_cents", merge(&in.SpendingLimitCents, &in.SpendingLimitCentsSnake))
	twice("duration_secs", merge(&in.DurationSecs, &in.DurationSecsSnake))
	twice("provider_payment_method_id", merge(&in.ProviderPaymentMethodID, &in.ProviderPaymentMethodIDSnake))
	twice("plan_id", merge(&in.PlanID, &in.PlanIDSnake))
	twice("max_transactions", merge(&in.MaxTransactions, &in.MaxTransactionsSnake))
	twice("api_key_id", merge(&in.APIKeyID, &in.APIKeyIDSnake))
	twice("owner_account", merge(&in.OwnerAccount, &in.OwnerAccountSnake))
	twice("merchant_account_id", merge(&in.MerchantAccountID, &in.MerchantAccountIDSnake))
	if in.AllowedRecipients == nil {
		in.AllowedRecipients = in.AllowedRecipientsSnake
	}
	in.AllowedRecipientsSnake = nil
	return in, faults
}

// merge moves *from into *into and reports whether both were set to different values.
func merge[T comparable](into, from **T) (differs bool) {
	if *from == nil {
		return false
	}
	if *into == nil {
		*into = *from
	}
	differs = **into != **from
	*from = nil
	return differs
}

// PaymentMethodChange changes a payment method. Null clears a member; an absent member keeps its value.
type PaymentMethodChange struct {
	Alias            json.RawMessage `json:"alias,omitzero" doc:"At most 100 characters. Null clears it."`
	AllowedAPIKeyIDs json.RawMessage `json:"allowedApiKeyIds,omitzero" doc:"Ids of the API keys that may use it. Null or an empty array allows every key."`
}
