package chain

import (
	"errors"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
)

// State is where an operation stands. A change of state is one transaction of the database.
type State string

const (
	Created   State = "created"   // what it does is fixed; nothing is signed
	Signed    State = "signed"    // the bytes exist and are stored; nothing has left the process
	Sent      State = "sent"      // at least one transaction that carries it is stored; it may land at any time
	Included  State = "included"  // its event, success=true, is in a block
	Confirmed State = "confirmed" // that block is deep enough to grant credits
	Final     State = "final"     // that block is finalized
	Failed    State = "failed"    // it is never tried again and did not move money
)

// Kind is what an operation is for. All kinds live the same life.
type Kind string

const (
	KindOrder  Kind = "order"  // pays an order
	KindSale   Kind = "sale"   // pays an order with an authorization of a wallet
	KindVoid   Kind = "void"   // makes the operation of an order impossible
	KindRevoke Kind = "revoke" // disables a delegation
)

// Op is a user operation with what it is for. Its JSON form is the document of its record: documents are permanent, later
// releases read them. What has a column of its own, and what [opDocument] writes in another form, is not in it.
type Op struct {
	// ID is the order id of an order or a sale; "void:" and the order id; "revoke:" and the delegation id, of later ones ":" and their number.
	ID      string `json:"-"`
	Kind    Kind   `json:"-"`
	State   State  `json:"-"`
	Version int64  `json:"-"` // counts the writes; an update is conditional on it

	Digest       common.Hash    `json:"digest"` // of the content of the order; the same id with another one is refused
	Sender       common.Address `json:"sender"` // account that runs the operation
	Payer        common.Address `json:"payer"`  // account whose money moves
	Token        common.Address `json:"token"`  // zero: the native token
	Payments     []Payment      `json:"-"`
	Cents        int64          `json:"cents,omitempty"`        // the price in hundredths of the delegation's currency, 0 when it has none
	DelegationID string         `json:"delegationId,omitempty"` // "" for a direct order
	Delegation   common.Hash    `json:"delegation,omitzero"`    // of the delegation on the chain; zero for a direct order
	TopUp        bool           `json:"topUp,omitempty"`        // a request waits for it
	NonceKey     [24]byte       `json:"-"`
	Account      [16]byte       `json:"-"` // of the order; zero: there is none, or it is not known

	// Sale is the authorization that pays, nil for other kinds. Its From is Payer, its To and Value the one payment, and its
	// ValidBefore is Before.
	Sale *SaleTerms `json:"-"`

	// Before is the time, in Unix seconds, of the first block in which the operation can no longer move money; 0: it always can.
	Before uint64 `json:"before,omitempty"`

	// Authorization was given by the holder of Payer. A transaction that carries the operation carries it too while Payer has
	// no code and its nonce is that of Payer. nil: the service has the keys of Sender and Payer.
	Authorization *types.SetCodeAuthorization `json:"authorization,omitempty"`

	Operation *userop.Operation `json:"operation,omitempty"` // nil before Signed
	Hash      common.Hash       `json:"-"`                   // userOpHash of Operation; zero before Signed
	Tx        common.Hash       `json:"tx,omitzero"`         // transaction in which it is, or was last sent; zero before Sent
	Position  Position          `json:"place,omitzero"`      // of its event
	Failure   *Failure          `json:"failure,omitempty"`   // of Failed; of Sent: an event, success=false, that is not deep enough to count

	Delay *rail.Delay `json:"delay,omitempty"` // of Created and Signed: why it cannot be carried on now

	Decided   State     `json:"told,omitempty"` // what its order has taken: "", Confirmed, Final or Failed
	SentAt    time.Time `json:"-"`              // when it was first sent, since its evidence was last undone; zero: nobody but us has seen its bytes
	CreatedAt time.Time `json:"-"`              // of its order; of other operations, their own
	UpdatedAt time.Time `json:"-"`
}

func (o *Op) Pays() bool { return o.Kind == KindOrder || o.Kind == KindSale }

// carriedBy reports whether only this transaction can bring the operation to the chain now.
func (o *Op) carriedBy(tx *Tx) bool { return o.State == Sent && o.Tx == tx.Hash && o.Failure == nil }

// touched are the accounts whose code and nonce an operation needs. The wallet of a sale is not one: it only signed.
func (o *Op) touched() []common.Address {
	if o.Kind == KindSale {
		return []common.Address{o.Sender}
	}
	return []common.Address{o.Sender, o.Payer}
}

// Evidence is where the event is that says what became of the operation: its place, or that of its failure.
func (o *Op) Evidence() Position {
	if o.Position == (Position{}) && o.Failure != nil {
		return o.Failure.Position
	}
	return o.Position
}

// Payment is what one receiver gets, in base units of the token.
type Payment struct {
	To     common.Address
	Amount *big.Int
}

// SaleTerms are what an operation has of an authorization beside its payer, receiver, value and end.
type SaleTerms struct {
	After     uint64 // Unix seconds, exclusive
	Nonce     common.Hash
	Signature []byte // of the payer: r, s, v, or what its code takes
}

// Position locates an event on the chain. The zero value means no event.
type Position struct {
	Block    uint64      `json:"block"`
	Hash     common.Hash `json:"hash"` // of the block
	LogIndex uint        `json:"logIndex"`
	Tx       common.Hash `json:"tx"`
}

// Failure says why an operation did not move money, and what proves it. As an error it decides about the operation, which other
// errors do not.
type Failure struct {
	Code   toll.Code      `json:"code"`
	Reason string         `json:"reason"`
	Params map[string]any `json:"params,omitempty"`

	// Position locates the evidence. It is zero if nothing was sent, and has no LogIndex and Tx if the time of a block ended the operation.
	Position Position `json:"place,omitzero"`
}

func (f *Failure) Error() string { return string(f.Code) + ": " + f.Reason }

// TxState is where a transaction of a relayer stands.
type TxState string

const (
	TxPending  TxState = "pending"  // stored, and sent at least once after that
	TxMined    TxState = "mined"    // its nonce is used by itself
	TxReplaced TxState = "replaced" // another transaction of ours has its nonce
)

// Tx is a signed transaction of a relayer. It is stored before it is sent. Its JSON form is the document of its record, as that of [Op].
type Tx struct {
	Hash      common.Hash    `json:"-"`
	Relayer   common.Address `json:"-"`
	Nonce     uint64         `json:"-"`
	Raw       []byte         `json:"-"`
	Ops       []string       `json:"ops,omitempty"` // ids of the operations in it; empty for one that only fills a gap
	State     TxState        `json:"-"`
	SentBlock uint64         `json:"sentBlock"`      // head when it was sent
	Position  Position       `json:"place,omitzero"` // of its receipt, once mined
	CreatedAt time.Time      `json:"-"`
}

// Cursor is how far the tracker has read the chain. Base is a block so far below that a chain without it is another one.
type Cursor struct {
	Genesis  common.Hash
	Block    uint64
	Hash     common.Hash
	Base     uint64
	BaseHash common.Hash
}

// Orphan is an event of our accounts that no record explains.
type Orphan struct {
	Block    common.Hash   `json:"-"`
	LogIndex uint          `json:"-"`
	Number   uint64        `json:"-"`
	Tx       common.Hash   `json:"tx"`
	OpHash   common.Hash   `json:"opHash"`
	NonceKey hexutil.Bytes `json:"nonceKey"` // 24 bytes
	Reason   string        `json:"reason"`
	Paid     []Transfer    `json:"paid,omitempty"` // by the operation, in USDC and EURC; at most 20
}

// Transfer is money that moved on the chain, in base units of the token.
type Transfer struct {
	Token  common.Address `json:"token"`
	From   common.Address `json:"from"`
	To     common.Address `json:"to"`
	Amount toll.Units     `json:"amount"`
}

// Errors of the records.
var (
	ErrChanged = errors.New("chain: the record was changed by another process")
	ErrSold    = errors.New("chain: the authorization already pays another order")
)
