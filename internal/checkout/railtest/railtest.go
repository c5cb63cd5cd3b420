// Package railtest is a rail for tests that behaves as one for cards does: behind it is a processor that keeps what it was paid,
// and can refuse, decline, hang, be away, lose its answers, wait for a person, refund, and say late what became of a payment.
// The row of an order is in the database of its service.
package railtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Behaviour is how a rail takes what it is asked. The zero value pays at once.
type Behaviour struct {
	Refuse      toll.Code // with which Prepare refuses; "" for none
	Decline     bool      // refuses to pay
	ByBank      bool      // says of refusals that the bank declined the charge
	DeclineNext int       // refuses so many orders that are new
	Code        toll.Code // of the refusal
	Reason      string    // of the refusal
	Unreachable toll.Code // a code with status 503: cannot be used, and nothing happens; "" for reachable
	Revoking    bool      // Revoke says that it is under way
	LoseAnswers int       // so many answers get lost after the rail has acted
	Steps       int       // so many answers of an order say sent before it is paid
	Hang        bool      // answers when its caller gives up, or when it stops hanging; it has not acted before
	Silent      bool      // says nothing by itself: it has to be asked
	Person      bool      // opens a page and waits for Complete or Expire
	NoRefund    string    // why the processor refuses refunds; "" for none
	BadAccount  toll.Code // with which it refuses signatures of delegations, and accounts of users; "" for none
	// Time is the time of the chain, at which authorizations end; nil: they do not.
	Time func() time.Time
}

// Rail is safe for concurrent use, and by several processes at the same time.
type Rail struct {
	mu     sync.Mutex
	now    Behaviour
	change chan struct{} // closed when the behaviour changes
	db     *store.Store  // where refunds are read
	orders map[string]*order
	way    rail.Orders // back to the service that was connected last
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

var errLost = errors.New("railtest: the response was lost")

func (r *Rail) Connect(o rail.Orders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.way = o
}

func (r *Rail) Prepare(_ context.Context, p *rail.Purchase) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Refuse != "" {
		return toll.NewError(r.now.Refuse).WithDetails("%s", r.now.Reason)
	}
	return nil
}

// rowName names the row of an order in the database of its service.
func rowName(orderID string) string { return "railtest/" + orderID }

func (r *Rail) Begin(ctx context.Context, tx *store.Tx, p *rail.Purchase) error {
	text, err := json.Marshal(rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}})
	if err == nil {
		_, err = store.PutSettingIfAbsent(ctx, tx, rowName(p.OrderID), text)
	}
	return err
}

func (r *Rail) Payment(ctx context.Context, q store.Querier, orderID string) (rail.Payment, error) {
	var p rail.Payment
	text, err := store.Setting(ctx, q, rowName(orderID))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

func (r *Rail) Resume(ctx context.Context, p *rail.Purchase) error {
	r.mu.Lock()
	way := r.way
	r.mu.Unlock()
	return r.ResumeBy(ctx, way, p)
}

// ResumeBy is Resume in the process that has this way back.
func (r *Rail) ResumeBy(ctx context.Context, way rail.Orders, p *rail.Purchase) error {
	r.mu.Lock()
	o, err := r.order(ctx, p)
	var payment rail.Payment
	if err == nil {
		r.act(o)
		payment, err = r.answer(o)
	}
	r.mu.Unlock()
	if err == nil {
		return write(ctx, way, p.OrderID, p.Account, payment)
	}
	delay := rail.NewDelay(err, p.OrderedAt)
	if delay == nil {
		return err
	}
	return errors.Join(way.Change(ctx, p.Account, func(t *rail.Tx) error {
		now, err := r.Payment(ctx, t, p.OrderID)
		if err != nil {
			return err
		}
		now.Delay = delay
		return put(ctx, t.Tx, p.OrderID, now)
	}), err)
}

// write stores what is known of a payment, and decides its order with it.
func write(ctx context.Context, way rail.Orders, orderID string, account [16]byte, payment rail.Payment) error {
	return way.Change(ctx, account, func(t *rail.Tx) error {
		if payment.Decided() {
			if err := t.Decide(orderID, payment.Outcome); err != nil {
				return err
			}
		}
		return put(ctx, t.Tx, orderID, payment)
	})
}

func put(ctx context.Context, tx *store.Tx, orderID string, payment rail.Payment) error {
	text, err := json.Marshal(payment)
	if err != nil {
		return err
	}
	return store.PutSetting(ctx, tx, rowName(orderID), text)
}

// order waits while the processor hangs, and returns an order as the processor knows it; nil when it was not reached.
func (r *Rail) order(ctx context.Context, p *rail.Purchase) (*order, error) {
	r.calls++
	for r.now.Hang {
		change := r.change
		r.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	o := r.orders[p.OrderID]
	if r.now.Unreachable != "" {
		return o, toll.NewError(r.now.Unreachable)
	}
	if o == nil {
		o = &order{purchase: *p, steps: r.now.Steps, payment: rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}}}
		r.orders[p.OrderID] = o
		if r.now.DeclineNext > 0 {
			r.now.DeclineNext--
			r.decline(o)
		}
	}
	if f := differs(o.purchase, *p); f != "" {
		r.faults = append(r.faults, fmt.Sprintf("order %s was sent with a different %s", p.OrderID, f))
	}
	return o, nil
}

func (r *Rail) act(o *order) {
	switch {
	case paid(o) || o.payment.Status == toll.OrderFailed:
	case o.purchase.Sale != nil:
		r.sell(o, *o.purchase.Sale)
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
	o.payment.Declined = r.now.ByBank
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
	case (a.Plan == nil) != (b.Plan == nil), a.Plan != nil && a.Plan.ID != b.Plan.ID:
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

// Complete is a person who pays the page of an order. The processor says so by itself.
func (r *Rail) Complete(orderID string) error {
	return r.happens(orderID, func(o *order) {
		if !paid(o) {
			charge(o)
		}
	})
}

// Expire is the end of the page of an order that nobody paid.
func (r *Rail) Expire(orderID string) error {
	return r.happens(orderID, func(o *order) {
		if !paid(o) {
			o.payment.Status, o.payment.FailureReason = toll.OrderFailed, "the page has expired"
		}
	})
}

// happens changes an order at the processor, which tells the service that was connected last.
func (r *Rail) happens(orderID string, what func(o *order)) error {
	r.mu.Lock()
	o := r.orders[orderID]
	if o == nil {
		r.mu.Unlock()
		return fmt.Errorf("railtest: no order %s", orderID)
	}
	what(o)
	way, payment, silent := r.way, o.payment, r.now.Silent
	r.mu.Unlock()
	if silent {
		return nil
	}
	return write(context.Background(), way, orderID, o.purchase.Account, payment)
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
			out = append(out, fmt.Sprintf("order %s was charged %d times", id, o.charges))
		}
	}
	return out
}
