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
	PaymentSent    PaymentState = "sent"    // sent, or about to be sent
	PaymentPaid    PaymentState = "paid"    // settled, according to the receipt or the service
	PaymentRefused PaymentState = "refused" // nothing was spent
	PaymentUnknown PaymentState = "unknown" // possibly settled: its maximum cost counts as spent
)

// Payment is the record of a payment. It does not contain the access token, the signature, or the query of the URL.
type Payment struct {
	ID          string       `json:"id"` // also sent as the payment identifier if the server supports it
	At          time.Time    `json:"at"`
	Host        string       `json:"host"` // see [HostOf]
	Method      string       `json:"method"`
	Path        string       `json:"path"`
	Scheme      string       `json:"scheme"`
	Network     string       `json:"network"`
	Asset       string       `json:"asset"`
	PayTo       string       `json:"payTo,omitempty"`
	PlanID      string       `json:"planId,omitempty"`
	Unit        string       `json:"unit"`  // see [x402.Quote]
	Most        toll.Units   `json:"most"`  // maximum cost
	Spent       toll.Units   `json:"spent"` // cost, once State is paid
	State       PaymentState `json:"state"`
	Transaction string       `json:"transaction,omitempty"`
	// Authorization is the signed authorization of a wallet, else nil. If it expires unused on the chain, the payment can be closed
	// again, as refused.
	Authorization *x402.ExactAuthorization `json:"authorization,omitempty"`
	// Permission identifies the access token, so that [CreditsPayer.Check] can read the outcome from the service; else nil.
	Permission *toll.Hash `json:"permission,omitempty"`
}

// Counts returns how much of the limits the payment uses: Spent if paid, zero if refused, and otherwise Most.
func (p *Payment) Counts() toll.Units {
	switch p.State {
	case PaymentPaid:
		return p.Spent
	case PaymentRefused:
		return toll.Units{}
	}
	return p.Most
}

// Purse approves and records payments.
type Purse interface {
	// Take records a payment before it is created and counts its Most against the limits. An error refuses the payment.
	Take(ctx context.Context, p Payment) error
	// Close updates the record of a payment: first, in state [PaymentSent], with its Authorization or Permission, when an error
	// stops the payment, and later with its outcome.
	Close(ctx context.Context, p Payment) error
}

// Limits bound payments. The zero value allows none.
type Limits struct {
	// Hosts that may be paid, such as "agent.example.com" and "127.0.0.1:8403". A name without a port means https, so that an
	// attacker on the network cannot impersonate the host; for http, name the port, even port 80.
	Hosts []string
	// Plan credits, per request and in total.
	CreditsPerCall, Credits toll.Credits
	// Tokens with 6 decimals, such as USDC, in base units (1,000,000 is one token), per request and in total, for each token separately.
	MoneyPerCall, Money toll.Units
}

// Allows returns an error, safe to show, if a payment exceeds the limits. spent is the amount spent so far in the payment's unit.
func (l *Limits) Allows(p *Payment, spent toll.Units) error {
	if !slices.ContainsFunc(l.Hosts, func(h string) bool { return strings.EqualFold(h, p.Host) }) {
		return fmt.Errorf("the host %s is not in the list of allowed hosts", p.Host)
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
		return fmt.Errorf("the request costs up to %s, but the limit for one request is %s", show(most), show(call))
	}
	if sum := new(big.Int).Add(spent.Int(), most); sum.Cmp(total) > 0 {
		left := new(big.Int).Sub(total, spent.Int())
		if left.Sign() < 0 {
			left.SetInt64(0) // spent under a higher limit
		}
		return fmt.Errorf("the request costs up to %s, but only %s of %s remain", show(most), show(left), show(total))
	}
	return nil
}

// Spending is an in-memory [Purse]. It is safe for concurrent use.
type Spending struct {
	limits Limits

	mu       sync.Mutex
	spent    map[string]*big.Int // by unit
	payments []Payment
	index    map[string]int // by id
}

// NewPurse returns an in-memory purse with these limits.
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
		return fmt.Errorf("client: the payment %s is unknown", p.ID)
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

// Payments returns copies of the records, oldest first.
func (s *Spending) Payments() []Payment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.payments)
}

func units(n *big.Int) toll.Units {
	u, err := toll.ParseUnits(n.String())
	if err != nil {
		return toll.Units{} // unreachable: sums within the limits are valid units
	}
	return u
}
