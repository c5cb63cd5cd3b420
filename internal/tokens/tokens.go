// Package tokens creates, renews, lists, and revokes permissions. A permission is what the ledger keeps of an access token: its plan,
// its agents, its limits, and the delegation that pays when credits are short.
package tokens

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const recentUses = 100

// Deps is what tokens are built on.
type Deps struct {
	Store     *store.Store
	Ledger    *ledger.Ledger
	Auth      *auth.Auth
	Checkout  *checkout.Checkout
	Catalogue *catalogue.Catalogue
	Clock     func() time.Time
	Format    string // default rendering of access tokens: "jwt" (also for "") or "x402"
	Quota     int64  // permissions that one account creates in an hour, in this process: 0 is 36,000, a negative number lifts it
}

// Tokens creates and revokes access tokens. Safe for concurrent use.
type Tokens struct {
	Deps
	Snapshots *Snapshots
	created   *meter.Quota
}

// New returns the tokens of a service. They are also those that end with an API key.
func New(d Deps) *Tokens {
	d.Format = cmp.Or(d.Format, formatJWT)
	t := &Tokens{Deps: d, Snapshots: newSnapshots(d.Ledger, d.Clock), created: meter.NewQuota("permissions", d.Quota, 36_000)}
	d.Auth.EndTokensBy(t)
	return t
}

type draft struct {
	*ledger.Permission
	req        *PermissionRequest
	plan       *toll.Plan
	delegation *checkout.DelegationDraft // created with the permission; nil: none
	warnings   []toll.Warning
}

// weight is what the permission counts against the quota. Large metadata counts for several.
func (d *draft) weight() int64 { return 1 + int64(len(d.Metadata))/4096 }

// Create creates a permission of the caller and returns its access token, which is shown only once. once may be nil. A delegation
// that cannot pay for the plan is recorded with a warning; it is refused when a request needs an order.
//
// Errors: [toll.CodePaymentPlanNotFound], [toll.CodePaymentAgentNotFound], [toll.CodeAgentMismatch] for an agent without the plan,
// [toll.CodeWrongNetwork], [toll.CodeUnsupportedScheme], [toll.CodeBadNumber] for a life out of bounds, [toll.CodeRateLimited]
// beyond the quota; with a delegation also those of [checkout.Checkout.TokenDelegation] and [checkout.Checkout.MayUse], and with one
// that is created in the same call those of [checkout.Checkout.CreateDelegation].
func (t *Tokens) Create(ctx context.Context, caller auth.Caller, req *PermissionRequest, once *store.Once) (*toll.AccessToken, error) {
	d, err := t.draft(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	if e := t.created.Take(d.Subscriber, d.weight()); e != nil {
		return nil, e
	}
	if c := req.Delegation; c != nil && c.New != nil {
		if err = t.draftDelegation(ctx, caller, d, c.New); err != nil {
			return nil, refusal.By(t.Catalogue.Brand.Names, err)
		}
	}
	out, err := t.issue(d)
	if err != nil {
		return nil, err
	}
	err = t.Store.Tx(ctx, func(tx *store.Tx) error {
		out.Warnings = d.warnings
		return t.insert(ctx, tx, d, once, out)
	})
	if err != nil {
		return nil, refusal.By(t.Catalogue.Brand.Names, err)
	}
	return out, nil
}

// insert stores a new permission with the delegation of its draft, and the answer.
func (t *Tokens) insert(ctx context.Context, tx *store.Tx, d *draft, once *store.Once, out *toll.AccessToken) error {
	var events []store.NewEvent
	if d.delegation != nil {
		var err error
		if events, err = d.delegation.Insert(ctx, tx); err != nil {
			return err
		}
		shortfall, err := t.Checkout.Delegations.ForToken(ctx, tx, d.Subscriber, d.APIKeyID, d.DelegationID, d.plan)
		if err != nil {
			return err
		}
		out.Warnings = append([]toll.Warning{{
			Code:    toll.CodeDeprecatedForm,
			Message: "Creating a delegation inside delegationConfig is deprecated: create it with POST /delegation/create and send its delegationId.",
		}}, shortfallWarnings(shortfall)...)
	}
	if d.APIKeyID != nil { // keeps the key from being revoked until the transaction ends
		if err := t.Auth.LockKey(ctx, tx, *d.APIKeyID); err != nil {
			return err
		}
	}
	if err := t.Ledger.InsertPermission(ctx, tx, *d.Permission); err != nil {
		return err
	}
	if err := store.PutOAuthIssue(ctx, tx, d.req.Issue, d.Hash); err != nil {
		return err
	}
	if err := store.PutAnswer(ctx, tx, once, out); err != nil {
		return err
	}
	created := checkout.PermissionEvent(toll.EventPermissionCreated, d.Permission, d.CreatedAt)
	return store.InsertEvent(ctx, tx, append([]store.NewEvent{created}, events...)...)
}

// draft returns the permission that a request describes, with the warnings of an existing delegation.
func (t *Tokens) draft(ctx context.Context, caller auth.Caller, req *PermissionRequest) (*draft, error) {
	plan, e := t.Catalogue.Plan(ctx, req.PlanID, toll.CodePaymentPlanNotFound)
	if e != nil {
		return nil, e
	}
	p := &ledger.Permission{
		Hash: toll.NewHash(), Plan: plan.ID, Subscriber: caller.Address, Agent: req.AgentID, AllowedAgents: req.AllowedAgents,
		RedemptionLimit: req.RedemptionLimit, OrderLimit: req.OrderLimit, Metadata: req.Metadata,
		APIKeyID: store.NonZero(caller.KeyID),
	}
	d := &draft{Permission: p, req: req, plan: plan}
	if err := d.setScheme(t.Catalogue.Brand); err != nil {
		return nil, err
	}
	if err := t.setAgents(ctx, d); err != nil {
		return nil, err
	}
	// Claims count whole seconds, and the ledger ends the permission in the same moment as the access token.
	now := t.Clock().UTC()
	p.CreatedAt = now.Truncate(time.Microsecond)
	var err error
	if p.ExpiresAt, err = req.end(now.Truncate(time.Second)); err != nil {
		return nil, err
	}
	if !caller.Ends.IsZero() && p.ExpiresAt.After(caller.Ends) {
		p.ExpiresAt = caller.Ends.Truncate(time.Second) // it ends with the API key of the caller
		if !p.ExpiresAt.After(now) {
			return nil, toll.NewError(toll.CodeNotAuthenticated).WithDetails("the API key expires within a second")
		}
	}
	if c := req.Delegation; c != nil && c.New == nil {
		if err = t.setDelegation(ctx, caller, d, c); err != nil {
			return nil, err
		}
	}
	if req.Delegation != nil && p.OrderLimit == nil {
		p.OrderLimit = ordersFor(plan, p.RedemptionLimit)
	}
	return d, nil
}

// ordersFor returns how many orders bring the credits of a redemption limit, rounded up: the default order limit of a permission with
// a delegation. It returns nil, no limit, when the permission has no redemption limit, when credits of the plan expire, and when
// orders have no fixed number of credits.
func ordersFor(plan *toll.Plan, limit *toll.Credits) *int64 {
	n := plan.Credits.Amount
	if limit == nil || n < 1 || !plan.Kind().AddsUp() || !plan.Credits.DurationSecs.IsZero() {
		return nil
	}
	return new(int64((*limit-1)/n) + 1)
}

// setScheme sets scheme and network in the form of records. A request may name only those of the plan.
func (d *draft) setScheme(brand catalogue.Brand) error {
	scheme, network := brand.Scheme(d.plan)
	if asked := d.req.Scheme; asked != "" && asked != scheme {
		if other := brand.Names.OtherBrand(asked); other != "" {
			return toll.Errorf(toll.CodeUnsupportedScheme, "Wrong namespace: %s.", other)
		}
		return toll.Errorf(toll.CodeUnsupportedScheme, "The scheme of this plan is %s.", scheme)
	}
	if asked := d.req.Network; asked != "" && !x402.SameNetwork(asked, network, brand.Environment) {
		return toll.Errorf(toll.CodeWrongNetwork, "The network of this plan is %s.", network)
	}
	if !d.plan.Price.IsCrypto {
		network = catalogue.CardNetwork
	}
	d.Scheme, d.Network = scheme, network
	return nil
}

// setAgents checks that every agent has the plan. A permission for one agent is bound to it.
func (t *Tokens) setAgents(ctx context.Context, d *draft) error {
	slices.Sort(d.AllowedAgents)
	d.AllowedAgents = slices.Compact(d.AllowedAgents)
	if d.Agent == "" && len(d.AllowedAgents) == 1 {
		d.Agent = d.AllowedAgents[0]
	}
	if d.Agent != "" && len(d.AllowedAgents) > 0 && !slices.Contains(d.AllowedAgents, d.Agent) {
		return toll.Errorf(toll.CodeAgentMismatch, "agentId must be one of allowedAgents.")
	}
	ids := d.AllowedAgents
	if d.Agent != "" && len(ids) == 0 {
		ids = []toll.AgentID{d.Agent}
	}
	for _, id := range ids {
		a, e := t.Catalogue.AgentNow(ctx, id)
		if e != nil {
			return e
		}
		if !a.HasPlan(d.plan.ID) {
			return toll.Errorf(toll.CodeAgentMismatch, "The plan is not attached to the agent.").WithDetails("agentId %s", id)
		}
	}
	return nil
}

// setDelegation sets an existing delegation, with a warning when it cannot pay for the plan.
func (t *Tokens) setDelegation(ctx context.Context, caller auth.Caller, d *draft, c *DelegationConfig) (err error) {
	if c.APIKeyID != nil && (d.APIKeyID == nil || *c.APIKeyID != *d.APIKeyID) {
		return toll.Errorf(toll.CodePaymentMethodNotAllowed, "delegationConfig.apiKeyId must be the API key of this call.")
	}
	if d.DelegationID, err = t.Checkout.Delegations.ID(d.Subscriber, c.ID); err != nil {
		return err
	}
	if err := t.Checkout.Delegations.MayUse(ctx, d.Subscriber, caller.UserID, d.DelegationID); err != nil {
		return err
	}
	shortfall, err := t.Checkout.Delegations.ForToken(ctx, t.Store, d.Subscriber, d.APIKeyID, d.DelegationID, d.plan)
	d.warnings = shortfallWarnings(shortfall)
	return err
}

// shortfallWarnings returns a warning that a delegation cannot pay for an order, none when it can.
func shortfallWarnings(shortfall *toll.Error) []toll.Warning {
	if shortfall == nil {
		return nil
	}
	return []toll.Warning{{
		Code:    shortfall.Code,
		Message: "The delegation cannot pay for this plan, so the access token spends existing credits only. " + shortfall.Text(),
	}}
}

// Defaults of a delegation that is created with its permission.
const (
	inlineCents = 1000
	inlineSecs  = 3600
)

// draftDelegation checks a delegation that the request describes, and sets it.
func (t *Tokens) draftDelegation(ctx context.Context, caller auth.Caller, d *draft, asked *toll.DelegationInput) (err error) {
	in := *asked
	provider := string(toll.ProviderCrypto)
	if !d.plan.Price.IsCrypto {
		provider = string(toll.ProviderCard)
	}
	cents, secs := toll.Cents(inlineCents), toll.Int(inlineSecs)
	in.Provider = cmp.Or(in.Provider, &provider)
	in.SpendingLimitCents, in.DurationSecs = cmp.Or(in.SpendingLimitCents, &cents), cmp.Or(in.DurationSecs, &secs)
	if in.PlanID != nil && *in.PlanID != d.plan.ID {
		return toll.Errorf(toll.CodeDelegationPlanMismatch, "delegationConfig.planId must be the plan of the access token.")
	}
	owner := checkout.Owner{Address: caller.Address, KeyID: caller.KeyID, UserID: caller.UserID}
	if d.delegation, err = t.Checkout.Delegations.Draft(ctx, owner, in); err == nil {
		d.DelegationID = d.delegation.Created.DelegationID
	}
	return err
}

// PermissionQuery selects permissions. The zero value selects the first page of all.
type PermissionQuery struct {
	PlanID toll.PlanID
	Status string // a word of toll.PermissionStatus in any case
	Page   store.Page
}

var states = []toll.PermissionStatus{toll.StatusActive, toll.StatusRevoked, toll.StatusExpired, toll.StatusExhausted}

// List returns a page of the caller's permissions.
func (t *Tokens) List(ctx context.Context, caller toll.Address, q PermissionQuery) (store.List[*toll.Permission], error) {
	filter := ledger.PermissionFilter{Subscriber: caller, Plan: q.PlanID}
	if q.Status != "" {
		i := slices.IndexFunc(states, func(s toll.PermissionStatus) bool { return strings.EqualFold(string(s), q.Status) })
		if i < 0 {
			return store.List[*toll.Permission]{Items: []*toll.Permission{}},
				toll.Faults([]toll.Fault{{Path: "status", Message: "must be Active, Revoked, Expired, or Exhausted"}})
		}
		filter.Status = states[i]
	}
	list, err := t.Ledger.Permissions(ctx, filter, q.Page)
	return store.Map(list, func(p ledger.Permission) *toll.Permission { return p.Record(t.Clock(), nil) }), checkout.Fault(err)
}

// Get returns a permission of the caller with its last settlements, or [toll.CodePermissionNotFound].
func (t *Tokens) Get(ctx context.Context, caller toll.Address, hash toll.Hash) (*toll.Permission, error) {
	p, err := t.owned(ctx, caller, hash)
	if err == nil && p.OpenHolds > 0 {
		// A hold may have lapsed without a record of it, and the permission may then be exhausted.
		if _, err := t.Snapshots.readAccount(ctx, p.Account()); err != nil {
			return nil, toll.AsError(err)
		}
		p, err = t.owned(ctx, caller, hash)
	}
	if err != nil {
		return nil, err
	}
	uses, err := t.Ledger.PermissionUses(ctx, p.Account(), hash, recentUses)
	return p.Record(t.Clock(), uses), checkout.Fault(err)
}

// owned returns a permission of the caller, or [toll.CodePermissionNotFound].
func (t *Tokens) owned(ctx context.Context, caller toll.Address, hash toll.Hash) (*ledger.Permission, error) {
	p, err := t.Ledger.PermissionByHash(ctx, hash)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Subscriber != caller {
		return nil, toll.NewError(toll.CodePermissionNotFound)
	}
	return &p, checkout.Fault(err)
}

// Revoke ends a permission of the caller: in this process at once, in others within a second. Its open holds still settle. Errors:
// [toll.CodePermissionNotFound], [toll.CodePermissionAlreadyRevoked].
func (t *Tokens) Revoke(ctx context.Context, caller toll.Address, hash toll.Hash) error {
	p, err := t.owned(ctx, caller, hash)
	if err != nil {
		return err
	}
	if err := t.Checkout.Permissions.Revoke(ctx, p, t.Clock().UTC().Truncate(time.Microsecond)); err != nil {
		return t.notRevoked(err)
	}
	t.Snapshots.Forget(Key{p.Account(), hash})
	return nil
}

// notRevoked says why a permission was not revoked.
func (t *Tokens) notRevoked(err error) error {
	switch {
	case ledger.IsRefused(err, ledger.PermissionRevoked):
		return toll.NewError(toll.CodePermissionAlreadyRevoked)
	case ledger.IsRefused(err, ledger.PermissionUnknown):
		return toll.NewError(toll.CodePermissionNotFound)
	}
	return refusal.By(t.Catalogue.Brand.Names, err)
}
