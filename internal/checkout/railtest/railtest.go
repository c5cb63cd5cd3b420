// Package railtest has a rail for tests: it keeps what it was paid, as a chain or a card processor would, and can decline,
// hang, be away, lose its answers, wait for a person, and change its mind.
package railtest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// Behaviour is how a rail takes what it is asked. The zero value pays at once.
type Behaviour struct {
	Decline     bool      // refuses to pay
	DeclineNext int       // refuses so many orders that are new
	Code        toll.Code // of the refusal
	Reason      string    // of the refusal
	Unreachable toll.Code // a code with status 503: cannot be used, and nothing happens; "" for reachable
	Revoking    bool      // Revoke says that it is under way
	LoseAnswers int       // so many answers get lost after the rail has acted
	Steps       int       // so many answers of an order say sent before it is paid
	Hang        bool      // answers when its caller gives up, or when it stops hanging; it has not acted before
	Person      bool      // opens a page and waits for Complete or Expire
	BadAccount  toll.Code // with which it refuses signatures of delegations, and accounts of users; "" for none
	// Time is the time of the chain, at which authorizations end; nil: they do not.
	Time func() time.Time
}

// Rail is safe for concurrent use, and by several processes at the same time.
type Rail struct {
	mu     sync.Mutex
	now    Behaviour
	change chan struct{} // closed when the behaviour changes
	orders map[string]*order
	calls  int
	faults []string

	revoked map[string]int // how often a delegation was to be disabled, by its id

	purses    map[purse]*big.Int
	spent     map[nonce]rail.Sale
	transfers int
	code      map[toll.Address]func(digest [32]byte, signature []byte) bool
	asked     int
}

type order struct {
	purchase rail.Purchase
	payment  rail.Payment
	steps    int
	charges  int
}

// New returns a rail that pays.
func New() *Rail {
	return &Rail{
		orders: map[string]*order{}, change: make(chan struct{}), revoked: map[string]int{}, purses: map[purse]*big.Int{},
		spent: map[nonce]rail.Sale{}, code: map[toll.Address]func([32]byte, []byte) bool{},
	}
}

// Behave changes how the rail takes calls from now on. What it has decided stays.
func (r *Rail) Behave(b Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = b
	close(r.change)
	r.change = make(chan struct{})
}

var errLost = errors.New("railtest: the answer is lost")

// Pay implements rail.Rail.
func (r *Rail) Pay(ctx context.Context, p rail.Purchase) (rail.Payment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for r.now.Hang {
		change := r.change
		r.mu.Unlock()
		select {
		case <-change:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			return rail.Payment{}, ctx.Err()
		}
	}
	if r.now.Unreachable != "" {
		return rail.Payment{}, toll.NewError(r.now.Unreachable)
	}
	o := r.orders[p.OrderID]
	if o == nil {
		o = &order{purchase: p, steps: r.now.Steps, payment: rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}}}
		r.orders[p.OrderID] = o
		if r.now.DeclineNext > 0 {
			r.now.DeclineNext--
			r.decline(o)
		}
	}
	if f := differs(o.purchase, p); f != "" {
		r.faults = append(r.faults, fmt.Sprintf("order %s: another %s", p.OrderID, f))
	}
	r.act(o)
	return r.answer(o)
}

// Outcome implements rail.Rail.
func (r *Rail) Outcome(_ context.Context, orderID string) (rail.Payment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.now.Unreachable != "" {
		return rail.Payment{}, toll.NewError(r.now.Unreachable)
	}
	o := r.orders[orderID]
	if o == nil {
		return rail.Payment{}, fmt.Errorf("railtest: no order %s", orderID)
	}
	return r.answer(o)
}

// act moves an undecided order on.
func (r *Rail) act(o *order) {
	switch {
	case paid(o) || o.payment.Status == toll.OrderFailed:
	case r.now.Person || o.payment.CheckoutURL != "":
		o.payment.CheckoutURL = "https://pay.example/" + o.purchase.OrderID
		o.payment.SessionID = "cs_" + o.purchase.OrderID
		o.payment.CreatedAt, o.payment.ExpiresAt = time.Unix(1_800_000_000, 0), time.Unix(1_800_086_400, 0)
	case r.now.Decline:
		r.decline(o)
	case o.steps > 0:
		o.steps--
		o.payment.Status, o.payment.TxHash = toll.OrderSent, transaction(o)
	default:
		charge(o)
	}
}

func (r *Rail) decline(o *order) {
	o.payment.Status, o.payment.FailureCode, o.payment.FailureReason = toll.OrderFailed, r.now.Code, r.now.Reason
}

func paid(o *order) bool {
	return o.payment.Status == toll.OrderConfirmed || o.payment.Status == toll.OrderFinal
}

func charge(o *order) {
	o.charges++
	o.payment.Status, o.payment.TxHash = toll.OrderConfirmed, transaction(o)
}

func transaction(o *order) string {
	return toll.Hash(toll.Keccak256([]byte(o.purchase.OrderID))).String()
}

func (r *Rail) answer(o *order) (rail.Payment, error) {
	if r.now.LoseAnswers > 0 {
		r.now.LoseAnswers--
		return rail.Payment{}, errLost
	}
	return o.payment, nil
}

func differs(a, b rail.Purchase) string {
	switch {
	case a.Plan.ID != b.Plan.ID:
		return "plan"
	case a.Subscriber != b.Subscriber:
		return "subscriber"
	case a.Total.Cmp(b.Total) != 0, !slices.EqualFunc(a.Amounts, b.Amounts, func(x, y toll.Units) bool { return x.Cmp(y) == 0 }):
		return "amount"
	case a.DelegationID != b.DelegationID, (a.Delegation == nil) != (b.Delegation == nil):
		return "delegation"
	case a.Delegation != nil && !reflect.DeepEqual(a.Delegation, b.Delegation):
		return "content of the delegation"
	case a.TopUp != b.TopUp:
		return "kind of order"
	case !slices.Equal(a.Receivers, b.Receivers):
		return "receiver"
	case a.Credits != b.Credits:
		return "number of credits"
	}
	return ""
}

// Complete is a person who pays the page of an order.
func (r *Rail) Complete(orderID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.orders[orderID]; o != nil && !paid(o) {
		charge(o)
	}
}

// Expire is the end of the page of an order that nobody paid.
func (r *Rail) Expire(orderID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.orders[orderID]; o != nil && !paid(o) {
		o.payment.Status, o.payment.FailureReason = toll.OrderFailed, "the page has expired"
	}
}

// Charges returns how often money moved, and the sum.
func (r *Rail) Charges() (n int, sum toll.Units) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.orders {
		n += o.charges
		for range o.charges {
			sum, _ = sum.Add(o.purchase.Total)
		}
	}
	return n, sum
}

// Purchases returns what the rail was asked to pay, one for each order.
func (r *Rail) Purchases() []rail.Purchase {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []rail.Purchase
	for _, o := range r.orders {
		out = append(out, o.purchase)
	}
	return out
}

// Calls returns how often the rail was asked.
func (r *Rail) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Faults returns what no rail should see: an order that was charged twice, or asked for again with other content.
func (r *Rail) Faults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.faults)
	for id, o := range r.orders {
		if o.charges > 1 {
			out = append(out, fmt.Sprintf("order %s is charged %d times", id, o.charges))
		}
	}
	return out
}
