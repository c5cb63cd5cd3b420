package ledger

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tollhq/toll"
)

// never is the end of what does not end, in microseconds; it sorts last on both engines, which NULL does not.
const never = math.MaxInt64

// Limits of open holds (wire contract, section 16).
const (
	MaxHoldsPerPermission = 64
	MaxHoldsPerAccount    = 256
)

// MaxHoldLife is how long after its creation a hold that is renewed ends at the latest.
const MaxHoldLife = 24 * time.Hour

// lateSettle is how long after the end of its access token a claim may still be settled.
const lateSettle = time.Hour

// Account is the state of one (plan, subscriber) pair. The zero value is an account that never ordered.
type Account struct {
	ID         AccountID
	Plan       toll.PlanID
	Subscriber toll.Address
	Balance    toll.Credits // held credits included
	Held       toll.Credits
	OpenHolds  int64
	Minted     toll.Credits
	Burned     toll.Credits
	Expired    toll.Credits
	TakenBack  toll.Credits
	Returned   toll.Credits
	Seq        int64     // number of entries
	Commitment toll.Hash // of the last entry
	Orders     int64     // orders made
	UpdatedAt  time.Time

	nextLotEnd  int64        // earliest time at which a lot may lose credits to its end, never when none ends
	nextHoldEnd int64        // not later than the earliest end of an open hold, never when none is open
	periodEnd   int64        // latest end of a lot, 0 when there was none
	lowMark     toll.Credits // the balance below which the account is low

	version int64  // counts the writes of the row
	hot     string // encoded [hot]
}

// Available is what can be held or burned now: balance less holds.
func (a Account) Available() toll.Credits { return a.Balance - a.Held }

// Subscribed reports whether a lot runs at t: bought, and not at its end, whatever is left in it.
func (a Account) Subscribed(t time.Time) bool { return a.periodEnd > t.UnixMicro() }

// PeriodEnd is the end of the last lot; zero when none ends or none was bought.
func (a Account) PeriodEnd() time.Time {
	if a.periodEnd == 0 || a.periodEnd == never {
		return time.Time{}
	}
	return micro(a.periodEnd)
}

// Stale reports whether a lot or a hold of the account ended at or before t, so that the next writer will change it.
func (a Account) Stale(t time.Time) bool {
	return a.nextLotEnd <= t.UnixMicro() || a.nextHoldEnd <= t.UnixMicro()
}

// Lot is credits granted together, with one end.
type Lot struct {
	ID        int64 // seq of the entry that minted it
	Ref       string
	Granted   toll.Credits
	Remaining toll.Credits
	EndsAt    time.Time // zero: never
}

// Permission is what one access token may spend.
type Permission struct {
	Hash            toll.Hash
	Plan            toll.PlanID
	Subscriber      toll.Address
	Agent           toll.AgentID // "" when not bound to one agent
	AllowedAgents   []toll.AgentID
	Scheme          string
	Network         string
	DelegationID    string        // "" when there is none
	RedemptionLimit *toll.Credits // credits that it may burn in its life, holds counted; nil: no limit
	OrderLimit      *int64        // top-up orders that it may cause; nil: no limit
	Redeemed        toll.Credits
	Held            toll.Credits
	OpenHolds       int64
	Orders          int64
	Metadata        []byte     // a JSON object, or empty
	APIKeyID        *toll.Hash // key that created it
	CreatedAt       time.Time
	ExpiresAt       time.Time
	RevokedAt       time.Time // zero: not revoked

	lastBurn int64 // seq of the last burn under it, 0 when there is none
}

// closedAfter is how long after the end of its access token a permission counts as closed. It is
// longer than lateSettle, as the clocks of two processes may differ.
const closedAfter = lateSettle + time.Minute

// Closed reports whether no settlement can burn credits under the permission any more, so that Redeemed is final. Credits in open holds
// keep it open. A hold that ended after the account was last written still counts as open.
func (p Permission) Closed(now time.Time) bool {
	switch {
	case p.usedUp():
		return true
	case !p.RevokedAt.IsZero():
		return p.Held == 0
	}
	return p.OpenHolds == 0 && now.After(p.ExpiresAt.Add(closedAfter))
}

func (p *Permission) usedUp() bool {
	return p.RedemptionLimit != nil && p.Redeemed >= *p.RedemptionLimit
}

func (p Permission) Account() AccountID { return NewAccountID(p.Plan, p.Subscriber) }

// State is the state of a request. A request that was never seen has none.
type State int64

// States of a request. Its moves are none to held or settled, held to settled, released or lapsed, and lapsed to settled or given up.
const (
	StateHeld     State = 1
	StateSettled  State = 2
	StateReleased State = 3
	StateLapsed   State = 4 // the hold ran out and is a claim
	StateGivenUp  State = 5 // a claim beyond what its permission could hold at a time
)

// String returns the word of the wire.
func (s State) String() string {
	return word(int64(s), "new", "held", "settled", "released", "lapsed", "lapsed")
}

// Request is one handler run and at most one burn.
type Request struct {
	Account    AccountID
	ID         string
	State      State
	Content    [32]byte // hash of what was settled
	Permission toll.Hash
	Agent      toll.AgentID
	Resource   string
	Held       toll.Credits // what the hold set aside, kept after it ended
	Amount     toll.Credits // what was burned
	HoldEndsAt time.Time    // zero when there was no hold
	CreatedAt  time.Time
	EndedAt    time.Time        // settled, released or lapsed at; zero while held
	OrderTx    string           // the transaction of the order that was made for the hold, "" for none and of a settlement
	Labels     toll.UsageLabels // of a settlement, also after it was removed

	// Of a settlement: the burn, its commitment, the balance after it, and what [SettleOp.Render] returned.
	EntrySeq    int64
	Transaction toll.Hash
	Balance     toll.Credits
	Answer      []byte
	// Removed says that the request was removed after its time (see [Ledger.Retain]): what its entry does not say is zero.
	Removed bool

	previousBurn int64 // the burn before under the same permission, 0 when it is the first
}

// Refusal is a decision against an operation. It changed nothing.
type Refusal struct {
	Kind         Refused
	Needed       toll.Credits // for Insufficient
	Available    toll.Credits // for Insufficient
	Uncovered    toll.Credits // for Insufficient and OrderUnknown: what no hold of the request covers
	NeverOrdered bool         // for Insufficient and PeriodOver
	// For Insufficient, PeriodOver and OrderUnknown: what the permission may buy with, and who made it.
	DelegationID string
	APIKeyID     *toll.Hash
	Transaction  toll.Hash // for Replay: of the settlement
}

// Refused is the kind of a refusal.
type Refused string

// Kinds of refusals.
const (
	Insufficient      Refused = "insufficient credits"
	PeriodOver        Refused = "period over"
	RedemptionLimit   Refused = "redemption limit reached"
	OrderLimit        Refused = "order limit reached"
	PermissionUnknown Refused = "unknown permission"
	PermissionRevoked Refused = "permission revoked"
	PermissionExpired Refused = "permission expired"
	InFlight          Refused = "request in flight"
	Duplicate         Refused = "request already used"
	Conflict          Refused = "request was used with different content"
	HoldExpired       Refused = "hold expired"
	TooManyHolds      Refused = "too many open holds"
	Overflow          Refused = "balance would overflow"
	NotFirst          Refused = "account already has an order"
	SettledAlready    Refused = "request already settled"
	UnknownRequest    Refused = "unknown request"
	HoldOver          Refused = "hold not open" // it is settled, released or lapsed
	// IdentifierConflict is Conflict of a request that a payment identifier named.
	IdentifierConflict Refused = "payment identifier was used with different content"
	// ExceedsHold is an amount above what was held, where that is the bound.
	ExceedsHold Refused = "amount exceeds the hold"
	// Replay is the repeat of a settlement that no hold had opened.
	Replay Refused = "request already settled without a hold"
	// OrderUnknown asks for the order of the request: look it up, and come again with it in OrderTx.
	OrderUnknown Refused = "the order that paid for the request must be read first"
	NotMinted    Refused = "order has no credits"
)

func (r *Refusal) Error() string {
	if r.Kind == Insufficient {
		return fmt.Sprintf("ledger: %s: %d needed, %d available", r.Kind, r.Needed, r.Available)
	}
	return "ledger: " + string(r.Kind)
}

// Is matches refusals of the same kind.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Kind == r.Kind
}

func IsRefused(err error, kind Refused) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Kind == kind
}

// Faults that are no decision about the operation.
var (
	// ErrBusy says that the queue of the writer is full. Nothing was changed.
	ErrBusy = errors.New("ledger: the queue is full")
	// ErrUnknownOutcome says that the store failed around a commit: the operation may have happened or not. The same
	// operation with the same id gets the truth.
	ErrUnknownOutcome = errors.New("ledger: the outcome is unknown")
	// ErrClosed says that the ledger is shutting down. Nothing was changed.
	ErrClosed = errors.New("ledger: closed")
)

// MintOp grants a lot of credits.
type MintOp struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Amount     toll.Credits // >= 1
	EndsAt     time.Time    // zero: never
	Ref        string       // order id or "mint:<uuid>", unique per account: a repeat is replayed
	Order      bool         // counts as an order of the account
	FirstOnly  bool         // refuse when the account has an order already
	// Permission has its count raised by one: that of an order which had failed, and was paid after all. Zero: none.
	Permission toll.Hash
}

type Minted struct {
	Transaction toll.Hash
	Balance     toll.Credits
	Replayed    bool // the lot of this ref was there already

	seq int64
}

// HoldOp sets credits aside for a request.
type HoldOp struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Agent      toll.AgentID
	Permission toll.Hash
	RequestID  string   // "": one is issued
	Keys       []string // "n:" + nonce, "p:" + payment identifier, "j:" + jti: each names one request of the account
	Resource   string
	Amount     toll.Credits
	Kind       toll.PlanKind
	Until      time.Time // its distance from now counts from the time of the account when that is ahead
	// OrderTx is the transaction of the order that was made for the request, "" for none; it is kept for the answer of the
	// settlement. nil: not looked up, which is refused with OrderUnknown where there may be one, that is when the request is
	// named and its permission has a delegation.
	OrderTx *string
}

// Held is the answer to a hold.
type Held struct {
	RequestID string
	Amount    toll.Credits
	Until     time.Time
	Account   Account // after the hold
}

// SettleOp burns the credits of a request, once.
type SettleOp struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Agent      toll.AgentID
	Permission toll.Hash
	RequestID  string   // "": the keys name the request, else one is issued and this call is a new request
	Keys       []string // as in HoldOp
	Resource   string
	Content    [32]byte     // hash of what makes the request the same: equal content replays, other content conflicts
	Amount     toll.Credits // credits to burn, brought into the bounds of the plan by the caller
	UseHeld    bool         // no amount was asked for: burn what is held, Amount when nothing is
	HoldBounds bool         // at most what is held may be burned, and a settlement without a hold is never repeated
	Kind       toll.PlanKind
	OrderTx    *string          // as in HoldOp; a hold knows its own
	Labels     toll.UsageLabels // for usage; a repeat with other labels is the same request
	// Render makes what is stored of the answer, which comes back as Settled.Answer now and in every repeat, byte for byte. It
	// must be pure, and what it returns must not change afterwards. All callers wait for it.
	Render func(Receipt) []byte
}

// Receipt is what a settlement decided. The ledger keeps all but the last two fields, which are empty in a repeat.
type Receipt struct {
	RequestID   string
	Transaction toll.Hash // commitment of the entry
	Amount      toll.Credits
	Balance     toll.Credits // of the entry: right after the burn
	At          time.Time

	Ended   toll.Credits // what the hold had kept of ended lots and the burn left: Balance sinks by it in the same commit
	OrderTx string       // transaction of the order that was made for the request, "" for none
}

// Settled is the answer to a settle.
type Settled struct {
	Receipt
	Answer   []byte
	Replayed bool
	Held     bool // the request had a hold
}

// Released is the answer to a release.
type Released struct {
	RequestID string
	Status    State // StateReleased, StateLapsed or StateGivenUp
	Amount    toll.Credits
}

type TakenBack struct {
	Amount      toll.Credits // moved by this call; the rest of a lot that holds need is taken when they end
	Transaction toll.Hash    // zero when nothing moved
	Balance     toll.Credits
	// Of the lot of the order after this call: what was granted, what is taken back in all, and what is left in it, which for
	// an order that was reversed is what open holds keep. The rest is used up.
	Granted toll.Credits
	Taken   toll.Credits
	Left    toll.Credits
}

// Withdrawn is the answer to [Tx.Withdraw].
type Withdrawn struct {
	Transaction toll.Hash               // commitment of the entry
	Balance     toll.Credits            // after it
	Available   toll.Credits            // of these, what no hold has
	Of          map[string]toll.Credits // what each lot lost, by its ref
}

func micro(us int64) time.Time { return time.UnixMicro(us).UTC() }

// micros is the stored form of a time; zero is the given value.
func micros(t time.Time, zero int64) int64 {
	if t.IsZero() {
		return zero
	}
	return t.UnixMicro()
}
