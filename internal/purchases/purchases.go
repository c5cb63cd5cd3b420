// Package purchases sells plans to wallets: for a payment that the wallet signs, in the same call (scheme exact of x402). It also
// admits wallets that sign in, signs offers and receipts, and settles the payments that wallets make to servers of builders.
package purchases

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// Policy says which payments of the scheme exact the service takes.
type Policy string

// Policies.
const (
	ExactOff   Policy = "off"
	ExactPlans Policy = "plans" // for plans of this service
	ExactOpen  Policy = "open"  // also those to other servers, which it verifies and settles for the builders that are paid
)

// Wait is how long one call waits for an order or a payment on the chain.
const Wait = 20 * time.Second

// Deps is what purchases are built on.
type Deps struct {
	Store     *store.Store
	Auth      *auth.Auth
	Checkout  *checkout.Checkout
	Catalogue *catalogue.Catalogue
	Tokens    *tokens.Tokens
	Clock     func() time.Time
	Log       *slog.Logger  // nil: discard
	Policy    Policy        // "": ExactPlans
	Treasury  toll.Address  // receives the payments of wallets; zero: the receiver of the price, if it has only one
	Receipts  bool          // every successful settlement has a signed receipt
	Wait      time.Duration // of a payment to another server; 0: [Wait]
}

// Purchases sells plans to wallets. Safe for concurrent use.
type Purchases struct {
	Deps
	Exact      *Exact
	brand      catalogue.Brand
	signatures signatures
}

func New(d Deps) *Purchases {
	d.Policy, d.Wait, d.Log = cmp.Or(d.Policy, ExactPlans), cmp.Or(d.Wait, Wait), cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	brand := d.Catalogue.Brand
	s := signatures{d.Store, d.Checkout, brand.Environment.ChainID()}
	return &Purchases{
		Deps: d, brand: brand, signatures: s,
		Exact: &Exact{d.Store, d.Checkout, brand, d.Clock, d.Log, d.Wait, d.Policy == ExactOpen, s},
	}
}

// Terms returns what a server must know of a plan to ask for payment, or [toll.CodePlanNotFound].
func (s *Purchases) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	p, e := s.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if e != nil {
		return nil, e
	}
	t := s.brand.Terms(p)
	t.ServiceURL = s.Auth.Issuer()
	if _, e := s.saleTerms(p); e == nil {
		t.OrderURL = s.saleURL(p.ID)
	}
	return t, nil
}
