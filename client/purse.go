package client

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// PaymentState is the state of a payment to a server.
type PaymentState string

const (
	PaymentSent    PaymentState = "sent"    // it is about to leave, or has left
	PaymentPaid    PaymentState = "paid"    // the server says that it was settled
	PaymentRefused PaymentState = "refused" // nothing was spent
	PaymentUnknown PaymentState = "unknown" // it may have been settled: what it can cost counts as spent
)

// Payment is the record of a payment, without access token, signature and query of the url.
type Payment struct {
	ID          string       `json:"id"` // also the payment identifier, for a server that takes one
	At          time.Time    `json:"at"`
	Host        string       `json:"host"` // with the port, when the url has one
	Method      string       `json:"method"`
	Path        string       `json:"path"`
	Scheme      string       `json:"scheme"`
	Network     string       `json:"network"`
	Asset       string       `json:"asset"`
	PayTo       string       `json:"payTo,omitempty"`
	PlanID      string       `json:"planId,omitempty"`
	Unit        string       `json:"unit"`  // see [x402.Quote]
	Most        toll.Units   `json:"most"`  // that it can cost
	Spent       toll.Units   `json:"spent"` // of a paid one
	State       PaymentState `json:"state"`
	Transaction string       `json:"transaction,omitempty"`
	// Authorization is the signed authorization of a wallet. Once it has expired unused on the chain, the payment can be closed
	// again, as refused.
	Authorization *x402.ExactAuthorization `json:"authorization,omitempty"`
	// Permission identifies the access token, with which [CreditsPayer.Check] asks the service for the outcome.
	Permission *toll.Hash `json:"permission,omitempty"`
}

// Counts returns how much of the limits the payment uses: what was spent, or may have been.
func (p *Payment) Counts() toll.Units {
	switch p.State {
	case PaymentPaid:
		return p.Spent
	case PaymentRefused:
		return toll.Units{}
	}
	return p.Most
}

// Purse decides about payments and records them.
type Purse interface {
	// Take records a payment before it is made, and counts its Most against the limits. An error refuses the payment.
	Take(ctx context.Context, p Payment) error
	// Close records the state of a payment: its outcome, and before that, while it is [PaymentSent], its Authorization or
	// Permission. An error then stops the payment.
	Close(ctx context.Context, p Payment) error
}

// Limits bound payments. The zero value allows none.
type Limits struct {
	// Hosts that may be paid: "agent.example.com", "127.0.0.1:8403". A name without a port means https, so that nobody on the
	// network can ask in its place; port 80 must be named.
	Hosts []string
	// Credits of plans, per request and in total.
	CreditsPerCall, Credits toll.Credits
	// Tokens with 6 decimals, such as USDC, in base units (1,000,000 is one unit), per request and in total, for each token
	// separately.
	MoneyPerCall, Money toll.Units
}

// Allows checks a payment against the limits, after spent in its unit. Errors are safe to show.
func (l *Limits) Allows(p *Payment, spent toll.Units) error {
	if !slices.ContainsFunc(l.Hosts, func(h string) bool { return strings.EqualFold(h, p.Host) }) {
		return fmt.Errorf("the host %s is not among those that may be paid", p.Host)
	}
	call, total := l.MoneyPerCall.Int(), l.Money.Int()
	show := func(n *big.Int) string { return toll.FormatAmount(units(n), 6) + " " + p.Unit }
	if p.Unit == x402.UnitCredits {
		call, total = big.NewInt(int64(l.CreditsPerCall)), big.NewInt(int64(l.Credits))
		show = func(n *big.Int) string {
			if n.IsInt64() {
				return toll.Credits(n.Int64()).Text()
			}
			return n.String() + " credits"
		}
	}
	most := p.Most.Int()
	if most.Cmp(call) > 0 {
		return fmt.Errorf("it asks for up to %s, and one request may cost %s", show(most), show(call))
	}
	if sum := new(big.Int).Add(spent.Int(), most); sum.Cmp(total) > 0 {
		left := new(big.Int).Sub(total, spent.Int())
		if left.Sign() < 0 {
			left.SetInt64(0) // spent under a higher limit
		}
		return fmt.Errorf("it asks for up to %s, with %s left of %s", show(most), show(left), show(total))
	}
	return nil
}

// Spending is a [Purse] in memory. It is safe for concurrent use.
type Spending struct {
	limits Limits

	mu       sync.Mutex
	spent    map[string]*big.Int // by unit
	payments []Payment
	index    map[string]int // by id
}

// NewPurse returns a purse in memory.
func NewPurse(l Limits) *Spending {
	return &Spending{limits: l, spent: map[string]*big.Int{}, index: map[string]int{}}
}

// Take implements [Purse].
func (s *Spending) Take(_ context.Context, p Payment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.limits.Allows(&p, units(s.of(p.Unit))); err != nil {
		return err
	}
	s.of(p.Unit).Add(s.of(p.Unit), p.Most.Int())
	s.index[p.ID] = len(s.payments)
	s.payments = append(s.payments, p)
	return nil
}

// Close implements [Purse].
func (s *Spending) Close(_ context.Context, p Payment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[p.ID]
	if !ok {
		return fmt.Errorf("client: no payment %s was taken", p.ID)
	}
	sum := s.of(p.Unit)
	sum.Sub(sum, s.payments[i].Counts().Int()).Add(sum, p.Counts().Int())
	s.payments[i] = p
	return nil
}

func (s *Spending) of(unit string) *big.Int {
	if s.spent[unit] == nil {
		s.spent[unit] = new(big.Int)
	}
	return s.spent[unit]
}

// Payments returns the records, oldest first.
func (s *Spending) Payments() []Payment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.payments)
}

func units(n *big.Int) toll.Units {
	u, err := toll.ParseUnits(n.String())
	if err != nil {
		return toll.Units{} // sums of what was within the limits are
	}
	return u
}
