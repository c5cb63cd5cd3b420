package chain

import (
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
)

// Purchase is an order to be paid.
type Purchase struct {
	OrderID    string
	Subscriber toll.Address   // owns the credits; its account pays, unless the delegation names another
	Token      toll.Address   // zero: the native token
	Receivers  []toll.Address // of Amounts
	Amounts    []toll.Units   // base units
	Total      toll.Units     // sum of Amounts
	Delegation *Delegation    // limit on money to pay with; nil for a direct order
	TopUp      bool           // a request waits for it
}

// Delegation is a limit on money as the service records it. With the keys of the accounts it says all that is signed.
type Delegation struct {
	ID                string // UUID
	Owner             toll.Address
	OwnerAccount      toll.Address // account that the user holds; zero: the wallet that the service holds for Owner
	Currency          string       // "usdc" or "eurc"
	LimitCents        int64
	CreatedAt         time.Time
	ExpiresAt         time.Time
	AllowedRecipients []toll.Address // empty: any
	Signature         []byte         // of a user-held account; nil: the service signs
}

// Outcome is how an order stands. Confirmed, Final and Failed decide it.
type Outcome struct {
	State   State
	Tx      common.Hash // zero while none exists
	Failure *Failure    // set when State is Failed
}
