package chain

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/userop"
)

// State is where an operation stands. A change of state is one write of the journal.
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

// Op is a user operation with what it is for.
type Op struct {
	ID      string // the order id of an order or a sale; "void:" and the order id; "revoke:" and the delegation id, of later ones ":" and their number
	Kind    Kind
	State   State
	Version int64 // counts the writes; [Journal.UpdateOp] is conditional on it

	Digest       common.Hash    // of the content of the order; the same id with another one is refused
	Sender       common.Address // account that runs the operation
	Payer        common.Address // account whose money moves
	Token        common.Address // zero: the native token
	Payments     []Payment
	Cents        int64       // the price in hundredths of the delegation's currency, 0 when it has none
	DelegationID string      // "" for a direct order
	Delegation   common.Hash // of the delegation on the chain; zero for a direct order
	TopUp        bool        // a request waits for it
	NonceKey     [24]byte

	// Sale is the authorization that pays, nil for other kinds. Its From is Payer, its To and Value the one payment, and its
	// ValidBefore is Before.
	Sale *SaleTerms

	// Before is the time, in Unix seconds, of the first block in which the operation can no longer move money; 0: it always can.
	Before uint64

	// Authorization was given by the holder of Payer. A transaction that carries the operation carries it too while Payer has
	// no code and its nonce is that of Payer. nil: the service has the keys of Sender and Payer.
	Authorization *types.SetCodeAuthorization

	Operation *userop.Operation // nil before Signed
	Hash      common.Hash       // userOpHash of Operation; zero before Signed
	Tx        common.Hash       // transaction in which it is, or was last sent; zero before Sent
	Place     Place             // of its event
	Failure   *Failure          // of Failed; of Sent: an event, success=false, that is not deep enough to count

	Told      State     // what the sink has heard: "", Confirmed, Final or Failed
	SentAt    time.Time // when it was first sent, since its evidence was last undone; zero: nobody but us has seen its bytes
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Pays reports whether the operation is one that pays an order.
func (o *Op) Pays() bool { return o.Kind == KindOrder || o.Kind == KindSale }

// touched are the accounts whose code and nonce an operation needs. The wallet of a sale is not one: it only signed.
func (o *Op) touched() []common.Address {
	if o.Kind == KindSale {
		return []common.Address{o.Sender}
	}
	return []common.Address{o.Sender, o.Payer}
}

// Evidence is where the event is that says what became of the operation: its place, or that of its failure.
func (o *Op) Evidence() Place {
	if o.Place == (Place{}) && o.Failure != nil {
		return o.Failure.Place
	}
	return o.Place
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

// Place is where an event is. The zero value is nowhere.
type Place struct {
	Block    uint64
	Hash     common.Hash // of the block
	LogIndex uint
	Tx       common.Hash
}

// Failure says why an operation did not move money, and what proves it.
type Failure struct {
	Code   toll.Code
	Reason string
	Params map[string]any
	Place  Place // of the evidence; zero when nothing was ever sent; without LogIndex and Tx when it is a block whose time ends all
}

// TxState is where a transaction of a relayer stands.
type TxState string

const (
	TxPending  TxState = "pending"  // stored, and sent at least once after that
	TxMined    TxState = "mined"    // its nonce is used by itself
	TxReplaced TxState = "replaced" // another transaction of ours has its nonce
)

// Tx is a signed transaction of a relayer. It is stored before it is sent.
type Tx struct {
	Hash      common.Hash
	Relayer   common.Address
	Nonce     uint64
	Raw       []byte
	Ops       []string // ids of the operations in it; empty for one that only fills a gap
	State     TxState
	SentBlock uint64 // head when it was sent
	Place     Place  // of its receipt, once mined
	CreatedAt time.Time
}

// Lease says that one process is at some work. Fence rises with each holder: a write with an old one is refused.
type Lease struct {
	Name   string // "relayer:0x…", "tracker", "mirror"
	Holder string // of this process
	Fence  int64
	Until  time.Time
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
	Block    common.Hash
	LogIndex uint
	Number   uint64
	Tx       common.Hash
	OpHash   common.Hash
	NonceKey [24]byte
	Reason   string
}

// Errors of a journal.
var (
	ErrUnknown = errors.New("chain: no such record")
	ErrChanged = errors.New("chain: the record was changed by another process")
	ErrLeased  = errors.New("chain: another process holds the lease")
	ErrSold    = errors.New("chain: the authorization pays another order")
)

// Journal is the memory of the rail. Each method is one transaction that is on disk when it returns nil. Any number of
// processes share one journal.
type Journal interface {
	// AddOp stores a new operation and returns what is stored under its id: the given one, or an older one as it is. Of a sale it
	// stores, too, that the authorization (token, payer, nonce) pays its order, for ever; [ErrSold] when it pays another one.
	AddOp(ctx context.Context, op *Op) (*Op, error)
	// UpdateOp stores operations whose Version is still the stored one and counts it up in them, or changes nothing:
	// [ErrChanged], also for one that is not there.
	UpdateOp(ctx context.Context, ops ...*Op) error
	// Op returns an operation by its id, OpOfHash by its userOpHash, OpOfKey by its nonce key; [ErrUnknown].
	Op(ctx context.Context, id string) (*Op, error)
	OpOfHash(ctx context.Context, hash common.Hash) (*Op, error)
	OpOfKey(ctx context.Context, key [24]byte) (*Op, error)
	// OpsIn lists operations in these states, those that have waited longest (UpdatedAt) first, at most limit.
	OpsIn(ctx context.Context, limit int, states ...State) ([]*Op, error)
	// OpsAt lists operations in any state whose evidence ([Op.Evidence]) is in block from or a later one, by block.
	OpsAt(ctx context.Context, from uint64) ([]*Op, error)
	// Untold lists operations of [KindOrder] and [KindSale] that are confirmed, final or failed while Told is another state, those that have
	// waited longest first, at most limit.
	Untold(ctx context.Context, limit int) ([]*Op, error)

	// AddTx stores a transaction and updates its operations, all or nothing, as [Journal.UpdateOp] does; [ErrLeased] when
	// the lease is no longer the newest of its name. replaces is the transaction with the same nonce that it takes the place
	// of, or zero.
	AddTx(ctx context.Context, lease Lease, tx *Tx, replaces common.Hash, ops ...*Op) error
	// UpdateTx stores state, place and SentBlock of a transaction and updates operations, all or nothing, as AddTx does.
	UpdateTx(ctx context.Context, lease Lease, tx *Tx, ops ...*Op) error
	// PendingTxs lists the transactions of a relayer that are not mined or replaced, by nonce.
	PendingTxs(ctx context.Context, relayer common.Address) ([]*Tx, error)
	// TxsFrom lists the transactions of a relayer in any state with this nonce or a higher one, by nonce and CreatedAt.
	TxsFrom(ctx context.Context, relayer common.Address, nonce uint64) ([]*Tx, error)
	// TxOf returns a transaction of ours, or [ErrUnknown].
	TxOf(ctx context.Context, hash common.Hash) (*Tx, error)
	// MaxNonce returns the highest nonce of the stored transactions of a relayer; false when there is none.
	MaxNonce(ctx context.Context, relayer common.Address) (uint64, bool, error)

	// Acquire takes a lease whose time is over or that was given back, prolongs that of the same holder, or returns [ErrLeased].
	// The times are those of now. A lease that is prolonged keeps its fence, unless it was given back before.
	Acquire(ctx context.Context, name, holder string, now time.Time, ttl time.Duration) (Lease, error)
	// Release gives a lease back before its end.
	Release(ctx context.Context, lease Lease) error

	// Cursor returns where the tracker is, the zero value at the first start. SetCursor is conditional on the lease.
	Cursor(ctx context.Context) (Cursor, error)
	SetCursor(ctx context.Context, lease Lease, c Cursor) error

	// AddOrphan stores an event that nothing explains, and reports whether it is new.
	AddOrphan(ctx context.Context, o Orphan) (bool, error)
	// AddDelegation remembers the id of a delegation by its hash; DelegationOfHash returns it, or [ErrUnknown].
	AddDelegation(ctx context.Context, hash common.Hash, id string) error
	DelegationOfHash(ctx context.Context, hash common.Hash) (string, error)
}

// Sink hears what became of orders. A call is repeated until it returns nil, also after a restart, so it must be idempotent.
type Sink interface {
	// Paid says that an order is paid, at the depth at which credits are granted; also one that was said to have failed.
	Paid(ctx context.Context, orderID string, tx common.Hash) error
	// Failed says that an order moved no money; also one that was said to be paid, after a reorganisation.
	Failed(ctx context.Context, orderID string, f Failure) error
	// Final says that a paid order can no longer be undone by the chain.
	Final(ctx context.Context, orderID string) error
	// Spent says how many base units the chain has counted against a delegation.
	Spent(ctx context.Context, delegationID string, units *big.Int) error
	// Disabled says that a delegation was revoked on the chain.
	Disabled(ctx context.Context, delegationID string) error
}
