// Package facilitator decides about payments: verify, settle, release, and the permissions that access tokens carry.
//
// What a payment may do is decided twice. The checks that need no lock (who asks, the access token, plan, agent, endpoint)
// are made here, on records that are at most a second old; everything that other requests of the account could change is
// decided by the ledger, under the lock of the account. Verify without a hold is advice and uses a snapshot; a "no" from
// a cached snapshot is confirmed by a fresh read, so that a purchase made anywhere shows at once.
package facilitator

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
	"github.com/tollhq/toll/internal/recent"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// snapshotTTL is how old an account or a permission may be where a stale "yes" is harmless.
	snapshotTTL = time.Second
	// boundTTL is how long the agents of a permission are kept: they never change.
	boundTTL = time.Hour

	accountBound    = 1 << 16
	permissionBound = 1 << 16
)

// Deps is what a facilitator is built on.
type Deps struct {
	Store       *store.Store
	Ledger      *ledger.Ledger
	Auth        *auth.Auth
	Checkout    *checkout.Checkout
	Catalogue   *catalogue.Catalogue
	Clock       func() time.Time // nil: the clock of the system
	Log         *slog.Logger     // nil: discard
	Pending     func()           // called for a settlement whose outcome is not known; nil: nobody counts
	TokenFormat string           // default rendering of access tokens: "jwt" (also for "") or "x402"
	TopUpWait   time.Duration    // how long a verify or settle waits for the order of missing credits; 0: 20 s
	Exact       ExactPolicy      // "": [ExactPlans]
	Treasury    toll.Address     // who wallets pay for plans; zero: the receiver of the price, when there is one
	Receipts    bool             // every successful settlement carries a signed receipt
	Service     toll.Address     // service account on the chain, zero: none
	Quotas      Quotas
	// Horizon is how long after the end of its access token a request is known; 0: for ever.
	Horizon time.Duration
}

// Quotas bound what one account adds in an hour, in this process. 0 is the default of each, a negative number lifts it.
type Quotas struct {
	Permissions int64 // default 36,000
	FreeHolds   int64 // default 36,000: holds of a subscriber with one builder that burn nothing, and settlements of nothing
}

// Facilitator verifies and settles payments. It keeps nothing that another process could not have changed, but for what
// its caches hold for at most a second.
type Facilitator struct {
	Deps
	brand catalogue.Brand

	refused refusalCounts
	// Accounts and permissions apart: what one access token burns shows to all tokens of the account.
	accounts    *recent.Reader[ledger.AccountID, ledger.Account]
	permissions *recent.Reader[permissionKey, ledger.Permission]
	bound       *recent.Reader[permissionKey, []toll.AgentID] // the agents that a permission allows; nil: any

	newPermissions *meter.Quota
	freeHolds      *meter.Quota // each hold counts until a settlement burns credits
}

type permissionKey struct {
	account ledger.AccountID
	hash    toll.Hash
}

// New returns a facilitator.
func New(d Deps) *Facilitator {
	d.Exact, d.TopUpWait = cmp.Or(d.Exact, ExactPlans), cmp.Or(d.TopUpWait, topUpWait)
	d.TokenFormat, d.Log = cmp.Or(d.TokenFormat, formatJWT), cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	if d.Clock == nil {
		d.Clock = time.Now
	}
	f := &Facilitator{Deps: d, brand: d.Catalogue.Brand}
	f.accounts = recent.New(f.Clock, snapshotTTL, accountBound, f.readAccount)
	f.permissions = recent.New(f.Clock, snapshotTTL, permissionBound, func(ctx context.Context, k permissionKey) (ledger.Permission, error) {
		_, p, err := f.Ledger.Snapshot(ctx, k.account, k.hash)
		return p, err
	})
	f.bound = recent.New(f.Clock, boundTTL, permissionBound, func(ctx context.Context, k permissionKey) ([]toll.AgentID, error) {
		_, p, err := f.Ledger.Snapshot(ctx, k.account, k.hash)
		return p.AllowedAgents, err
	})
	f.newPermissions = meter.NewQuota("permissions", d.Quotas.Permissions, 36_000)
	f.freeHolds = meter.NewQuota("holds that burn nothing", d.Quotas.FreeHolds, 36_000)
	f.Auth.EndTokensBy(f)
	f.Ledger.OnCommit(f.committed)
	return f
}

// ForgetPermissions makes a change of this process to whoever's permissions count at once: the end of a delegation ends
// them, and nothing names them all. Other processes see it within a second.
func (f *Facilitator) ForgetPermissions() { f.permissions.ForgetAll() }

// As returns the facilitator as the caller with this address sees it, for middleware in the same process.
func (f *Facilitator) As(caller toll.Address) x402.Facilitator { return as{f, caller} }

type as struct {
	f      *Facilitator
	caller toll.Address
}

func (a as) Terms(ctx context.Context, plan toll.PlanID) (*x402.Terms, error) {
	return a.f.Terms(ctx, plan)
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
	return a.f.Offers(ctx, a.caller, req)
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

// Terms returns what a server must know of a plan to ask for payment, or an error with [toll.CodePlanNotFound].
func (f *Facilitator) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	p, err := f.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	t := f.brand.Terms(p)
	t.ServiceURL = f.Auth.Issuer()
	if _, e := f.saleTerms(p); e == nil {
		t.OrderURL = f.saleURL(p.ID)
	}
	return t, nil
}

// readAccount writes what time has done to the account first, so that ended credits do not count and those of lapsed holds
// do.
func (f *Facilitator) readAccount(ctx context.Context, id ledger.AccountID) (ledger.Account, error) {
	a, err := f.Ledger.Account(ctx, id)
	if err != nil || !a.Stale(f.Clock()) || a.Seq == 0 {
		return a, err
	}
	if err := f.Ledger.Touch(ctx, id); err != nil {
		return a, err
	}
	return f.Ledger.Account(ctx, id)
}

// committed keeps what the writer of this process has just written. What time has done to the account since is read.
func (f *Facilitator) committed(a ledger.Account, permissions []ledger.Permission) {
	if a.Stale(f.Clock()) {
		f.accounts.Forget(a.ID)
	} else {
		f.accounts.Put(a.ID, a)
	}
	for _, p := range permissions {
		f.permissions.Put(permissionKey{a.ID, p.Hash}, p)
	}
}

// changed forgets what this process has just changed past the writer of the ledger.
func (f *Facilitator) changed(account ledger.AccountID, permission toll.Hash) {
	f.accounts.Forget(account)
	f.permissions.Forget(permissionKey{account, permission})
}
