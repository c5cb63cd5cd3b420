// Package pay verifies, settles, and releases paid requests, buys missing credits on the way, and reads what became of requests.
//
// The checks that need no lock (caller, access token, plan, agent, endpoint) use records that are at most a second old. The ledger
// decides everything that other requests of the account could change, under the lock of the account. Verify without a hold is advice
// from a snapshot; it confirms a refusal by a fresh read, so that a purchase shows at once.
//
// To follow a paid call, read verify.go and settle.go, then payment.go (the checks), and topup.go (missing credits).
package pay

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// Deps is what a facilitator is built on.
type Deps struct {
	Store     *store.Store
	Ledger    *ledger.Ledger
	Auth      *auth.Auth
	Checkout  *checkout.Checkout
	Catalogue *catalogue.Catalogue
	Tokens    *tokens.Tokens
	Purchases *purchases.Purchases
	Clock     func() time.Time
	Log       *slog.Logger  // nil: discard
	Pending   func()        // called for a settlement whose outcome is not known; nil: nobody counts
	TopUpWait time.Duration // how long a verify or settle waits for the order of missing credits; 0: 20 s
	Service   toll.Address  // service account on the chain, zero: none
	// FreeHolds is how many holds of a subscriber with one builder that burn nothing, and settlements of nothing, may be added in an
	// hour, in this process: 0 is 36,000, a negative number lifts it.
	FreeHolds int64
	// Horizon is how long after the end of its access token a request is known; 0: for ever.
	Horizon time.Duration
}

// Facilitator verifies and settles payments. Safe for concurrent use.
type Facilitator struct {
	Deps
	Requests  *Requests
	brand     catalogue.Brand
	refused   refusals
	snapshots *tokens.Snapshots
	freeHolds *meter.Quota // each hold counts until a settlement burns credits
}

// New returns a facilitator.
func New(d Deps) *Facilitator {
	d.TopUpWait, d.Log = cmp.Or(d.TopUpWait, purchases.Wait), cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	return &Facilitator{
		Requests: &Requests{d.Store, d.Ledger, d.Checkout, d.Catalogue, d.Catalogue.Brand, d.Clock, d.Horizon},
		Deps:     d, brand: d.Catalogue.Brand, snapshots: d.Tokens.Snapshots,
		freeHolds: meter.NewQuota("holds that burn nothing", d.FreeHolds, 36_000),
	}
}

// As returns the facilitator as the caller with this address sees it, for middleware in the same process.
func (f *Facilitator) As(caller toll.Address) x402.Facilitator { return as{f, caller} }

type as struct {
	f      *Facilitator
	caller toll.Address
}

func (a as) Terms(ctx context.Context, plan toll.PlanID) (*x402.Terms, error) {
	return a.f.Purchases.Terms(ctx, plan)
}

func (a as) Verify(ctx context.Context, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	return a.f.Verify(ctx, a.caller, req)
}

func (a as) Settle(ctx context.Context, req *x402.SettleRequest) (*x402.SettleResponse, error) {
	return a.f.Settle(ctx, a.caller, req)
}

func (a as) Release(ctx context.Context, req *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	return a.f.Release(ctx, a.caller, req)
}

func (a as) Renew(ctx context.Context, req *x402.RenewRequest) (*x402.RenewResponse, error) {
	return a.f.Renew(ctx, a.caller, req)
}

func (a as) Offers(ctx context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	return a.f.Purchases.Offers(ctx, a.caller, req)
}

// AgentPlanIDs returns the listed plans of an agent, the oldest first and at most 100: those with which a server that names
// none itself may be paid.
func (a as) AgentPlanIDs(ctx context.Context, agent toll.AgentID) ([]toll.PlanID, error) {
	plans, err := store.PlansOfAgent(ctx, a.f.Store, agent, store.Page{Size: 100, Ascending: true})
	if err != nil {
		return nil, toll.AsError(err)
	}
	var ids []toll.PlanID
	for _, p := range plans.Items {
		if p.IsListed {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}
