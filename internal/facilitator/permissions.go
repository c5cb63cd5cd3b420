package facilitator

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
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	formatJWT  = x402.RenderingJWT
	formatX402 = x402.RenderingX402

	minTokenSecs     = 1
	maxTokenSecs     = 365 * toll.DaySecs
	defaultTokenSecs = toll.DaySecs

	maxMetadata      = 16 << 10 // bytes
	maxAllowedAgents = 64
	maxResource      = 2048 // characters
	recentUses       = 100  // settlements shown with one permission
)

// CreatePermission makes a permission of the caller and its access token, which is shown this once. once may be nil.
// Errors: [toll.CodePaymentPlanNotFound], [toll.CodePaymentAgentNotFound],
// [toll.CodeAgentMismatch] for an agent without the plan, [toll.CodeWrongNetwork], [toll.CodeUnsupportedScheme],
// [toll.CodeBadNumber] for a life out of bounds, [toll.CodeRateLimited] beyond the quota of an hour; with a delegation also
// those of [checkout.Checkout.TokenDelegation] and [checkout.Checkout.MayUse], and with one that is made on the fly those of
// [checkout.Checkout.CreateDelegation]. A delegation that cannot pay for the plan is recorded with a warning: it is
// refused when a request needs an order.
func (f *Facilitator) CreatePermission(
	ctx context.Context, caller auth.Caller, req *PermissionRequest, once *store.Once,
) (*toll.AccessToken, error) {
	p, plan, warnings, err := f.planned(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	if err := f.countPermission(p); err != nil {
		return nil, err
	}
	jws, err := f.signPermission(p, plan, req)
	if err != nil {
		return nil, err
	}
	var draft *checkout.DelegationDraft
	if d := req.Delegation; d != nil && d.New != nil {
		if draft, err = f.draftDelegation(ctx, caller, p, plan, d.New); err != nil {
			return nil, refusal.By(f.brand.Names, err)
		}
		p.DelegationID = draft.Created.DelegationID
	}
	out := f.accessToken(p, req, jws)
	err = f.Store.Tx(ctx, func(tx *store.Tx) error {
		out.Warnings = warnings
		return f.insertPermission(ctx, tx, p, plan, draft, req.Issue, once, out)
	})
	if err != nil {
		return nil, refusal.By(f.brand.Names, err)
	}
	return out, nil
}

// insertPermission stores a new permission, with the delegation that is made for it (nil: none) and all that goes with its
// answer.
func (f *Facilitator) insertPermission(
	ctx context.Context, tx *store.Tx, p *ledger.Permission, plan *toll.Plan, draft *checkout.DelegationDraft,
	issue *store.OAuthIssue, once *store.Once, out *toll.AccessToken,
) error {
	var events []store.NewEvent
	if draft != nil {
		var err error
		if events, err = draft.Insert(ctx, tx); err != nil {
			return err
		}
		shortfall, err := f.Checkout.TokenDelegation(ctx, tx, p.Subscriber, p.APIKeyID, p.DelegationID, plan)
		if err != nil {
			return err
		}
		out.Warnings = append([]toll.Warning{{
			Code:    toll.CodeDeprecatedForm,
			Message: "A delegation that is made inside delegationConfig is deprecated: create it with POST /delegation/create and send its delegationId.",
		}}, shortfallWarnings(shortfall)...)
	}
	if err := f.lockMaker(ctx, tx, p); err != nil {
		return err
	}
	if err := f.Ledger.InsertPermission(ctx, tx, *p); err != nil {
		return err
	}
	if err := store.PutOAuthIssue(ctx, tx, issue, p.Hash); err != nil {
		return err
	}
	if err := store.PutAnswer(ctx, tx, once, out); err != nil {
		return err
	}
	created := checkout.PermissionEvent(toll.EventPermissionCreated, p, p.CreatedAt)
	return store.InsertEvent(ctx, tx, append([]store.NewEvent{created}, events...)...)
}

// countPermission counts a permission that is about to be made. Large metadata counts for several.
func (f *Facilitator) countPermission(p *ledger.Permission) error {
	if e := f.newPermissions.Take(p.Subscriber, 1+int64(len(p.Metadata))/4096); e != nil {
		return e
	}
	return nil
}

// planned returns the permission that a request asks for, its plan, and the warnings of an existing delegation.
func (f *Facilitator) planned(ctx context.Context, caller auth.Caller, req *PermissionRequest) (*ledger.Permission, *toll.Plan, []toll.Warning, error) {
	plan, e := f.Catalogue.Plan(ctx, req.PlanID, toll.CodePaymentPlanNotFound)
	if e != nil {
		return nil, nil, nil, e
	}
	p := &ledger.Permission{
		Hash: toll.NewHash(), Plan: plan.ID, Subscriber: caller.Address, Agent: req.AgentID, AllowedAgents: req.AllowedAgents,
		RedemptionLimit: req.RedemptionLimit, OrderLimit: req.OrderLimit, Metadata: req.Metadata,
	}
	if !caller.KeyID.IsZero() {
		p.APIKeyID = &caller.KeyID
	}
	var err error
	if p.Scheme, p.Network, err = f.permissionScheme(plan, req); err != nil {
		return nil, nil, nil, err
	}
	if err := f.permissionAgents(ctx, plan, p); err != nil {
		return nil, nil, nil, err
	}
	// Claims count whole seconds, and the ledger ends the permission in the same moment as the access token.
	now := f.Clock().UTC()
	p.CreatedAt = now.Truncate(time.Microsecond)
	if p.ExpiresAt, err = req.end(now.Truncate(time.Second)); err != nil {
		return nil, nil, nil, err
	}
	var warnings []toll.Warning
	if !caller.Ends.IsZero() && p.ExpiresAt.After(caller.Ends) {
		p.ExpiresAt = caller.Ends.Truncate(time.Second) // it ends with the API key that made it
		if !p.ExpiresAt.After(now) {
			return nil, nil, nil, toll.NewError(toll.CodeNotAuthenticated).WithDetails("the API key ends within a second")
		}
	}
	if d := req.Delegation; d != nil && d.New == nil {
		if warnings, err = f.nameDelegation(ctx, caller, p, plan, d); err != nil {
			return nil, nil, nil, err
		}
	}
	if req.Delegation != nil && p.OrderLimit == nil {
		p.OrderLimit = ordersFor(plan, p.RedemptionLimit)
	}
	return p, plan, warnings, nil
}

// ordersFor returns how many orders bring the credits of a redemption limit, rounded up: the order limit of a permission with a
// delegation that asked for none. It returns nil, no limit, when the permission has no redemption limit, when credits of the plan
// expire, and when orders have no fixed number of credits.
func ordersFor(plan *toll.Plan, limit *toll.Credits) *int64 {
	n := plan.Credits.Amount
	if limit == nil || n < 1 || !plan.Kind().AddsUp() || !plan.Credits.DurationSecs.IsZero() {
		return nil
	}
	return new(int64((*limit-1)/n) + 1)
}

// signPermission returns the access token of a permission in its JWS form.
func (f *Facilitator) signPermission(p *ledger.Permission, plan *toll.Plan, req *PermissionRequest) (string, error) {
	claims := auth.Claims{
		Subscriber: p.Subscriber, Hash: p.Hash, IssuedAt: p.CreatedAt.Truncate(time.Second), ExpiresAt: p.ExpiresAt, PlanID: plan.ID,
		AgentID: p.Agent, RedemptionLimit: p.RedemptionLimit, OrderLimit: p.OrderLimit, Scheme: p.Scheme, Network: p.Network,
		PlanMin: &plan.Credits.MinAmount, PlanMax: &plan.Credits.MaxAmount, PerOrder: &plan.Credits.Amount,
	}
	if req.Resource != "" {
		claims.Audience = []string{req.Resource}
	}
	jws, err := f.Auth.SignToken(claims)
	if err != nil {
		return "", toll.AsError(err)
	}
	return jws, nil
}

// nameDelegation sets the delegation of a permission, with a warning when that cannot pay for the plan.
func (f *Facilitator) nameDelegation(
	ctx context.Context, caller auth.Caller, p *ledger.Permission, plan *toll.Plan, d *DelegationConfig,
) ([]toll.Warning, error) {
	if d.APIKeyID != nil && (p.APIKeyID == nil || *d.APIKeyID != *p.APIKeyID) {
		return nil, toll.Errorf(toll.CodePaymentMethodNotAllowed, "delegationConfig.apiKeyId is not the API key of this call.")
	}
	var err error
	if p.DelegationID, err = f.Checkout.DelegationID(p.Subscriber, d.ID); err != nil {
		return nil, err
	}
	if err := f.Checkout.MayUse(ctx, p.Subscriber, caller.UserID, p.DelegationID); err != nil {
		return nil, err
	}
	shortfall, err := f.Checkout.TokenDelegation(ctx, f.Store, p.Subscriber, p.APIKeyID, p.DelegationID, plan)
	return shortfallWarnings(shortfall), err
}

// shortfallWarnings says that a delegation could not pay for an order; none when it could.
func shortfallWarnings(shortfall *toll.Error) []toll.Warning {
	if shortfall == nil {
		return nil
	}
	return []toll.Warning{{
		Code: shortfall.Code,
		Message: "The delegation cannot pay for this plan, so the access token spends existing credits only. " +
			shortfall.Text(),
	}}
}

// Defaults of a delegation that is made on the fly.
const (
	inlineCents = 1000
	inlineSecs  = 3600
)

// draftDelegation checks the delegation that the request of a permission describes.
func (f *Facilitator) draftDelegation(
	ctx context.Context, caller auth.Caller, p *ledger.Permission, plan *toll.Plan, asked *toll.DelegationInput,
) (*checkout.DelegationDraft, error) {
	in := *asked
	provider := string(toll.ProviderCrypto)
	if !plan.Price.IsCrypto {
		provider = string(toll.ProviderCard)
	}
	cents, secs := toll.Cents(inlineCents), toll.Int(inlineSecs)
	in.Provider = cmp.Or(in.Provider, &provider)
	in.SpendingLimitCents, in.DurationSecs = cmp.Or(in.SpendingLimitCents, &cents), cmp.Or(in.DurationSecs, &secs)
	if in.PlanID != nil && *in.PlanID != plan.ID {
		return nil, toll.Errorf(toll.CodeDelegationPlanMismatch, "delegationConfig.planId is not the plan of the access token.")
	}
	return f.Checkout.DraftTokenDelegation(ctx, checkout.Owner{Address: caller.Address, KeyID: caller.KeyID, UserID: caller.UserID}, in)
}

func (f *Facilitator) accessToken(p *ledger.Permission, req *PermissionRequest, jws string) *toll.AccessToken {
	t := &toll.AccessToken{
		AccessToken: jws, TokenFormat: req.TokenFormat, PermissionHash: p.Hash, PlanID: p.Plan, SubscriberAddress: p.Subscriber,
		Scheme: p.Scheme, Network: p.Network, MaxCredits: p.RedemptionLimit, MaxOrders: p.OrderLimit, Status: toll.StatusActive,
		CreatedAt: toll.At(p.CreatedAt), ExpiresAt: toll.At(p.ExpiresAt),
	}
	if p.Agent != "" {
		t.AgentID = &p.Agent
	}
	if p.DelegationID != "" {
		t.DelegationID = &p.DelegationID
	}
	if t.TokenFormat == "" {
		t.TokenFormat = f.TokenFormat
		// Clients that ask in the nested form decode base64 JSON.
		if req.Nested {
			t.TokenFormat = formatX402
		}
	}
	if t.TokenFormat == formatX402 {
		t.AccessToken = x402.EncodeToken(jws,
			x402.Requirements{
				Scheme: p.Scheme, Network: p.Network, PlanID: string(p.Plan),
				Extra: x402.RequirementsExtra{Version: "1", AgentID: string(p.Agent)},
			},
			x402.Authorization{From: p.Subscriber.String(), PlanID: string(p.Plan), AgentID: string(p.Agent)}, p.Hash.String())
	}
	t.Token = t.AccessToken
	return t
}

// permissionScheme returns scheme and network in the form of records; what the request names must be what the plan has.
func (f *Facilitator) permissionScheme(plan *toll.Plan, req *PermissionRequest) (scheme, network string, err error) {
	scheme, network = f.brand.Scheme(plan)
	if req.Scheme != "" && req.Scheme != scheme {
		if other := f.brand.Names.OtherBrand(req.Scheme); other != "" {
			return "", "", toll.Errorf(toll.CodeUnsupportedScheme, "Wrong brand: %s.", other)
		}
		return "", "", toll.Errorf(toll.CodeUnsupportedScheme, "The scheme of this plan is %s.", scheme)
	}
	if req.Network != "" && !x402.SameNetwork(req.Network, network, f.brand.Environment) {
		return "", "", toll.Errorf(toll.CodeWrongNetwork, "The network of this plan is %s.", network)
	}
	if !plan.Price.IsCrypto {
		network = catalogue.CardNetwork
	}
	return scheme, network, nil
}

// permissionAgents checks that every agent has the plan. A permission for one agent is bound to it.
func (f *Facilitator) permissionAgents(ctx context.Context, plan *toll.Plan, p *ledger.Permission) error {
	slices.Sort(p.AllowedAgents)
	p.AllowedAgents = slices.Compact(p.AllowedAgents)
	if p.Agent == "" && len(p.AllowedAgents) == 1 {
		p.Agent = p.AllowedAgents[0]
	}
	if p.Agent != "" && len(p.AllowedAgents) > 0 && !slices.Contains(p.AllowedAgents, p.Agent) {
		return toll.Errorf(toll.CodeAgentMismatch, "agentId is not among allowedAgents.")
	}
	ids := p.AllowedAgents
	if p.Agent != "" && len(ids) == 0 {
		ids = []toll.AgentID{p.Agent}
	}
	for _, id := range ids {
		a, e := f.Catalogue.AgentNow(ctx, id)
		if e != nil {
			return e
		}
		if !a.HasPlan(plan.ID) {
			return toll.Errorf(toll.CodeAgentMismatch, "The agent does not have this plan.").WithDetails("agentId %s", id)
		}
	}
	return nil
}

// Permissions returns a page of the caller's permissions.
func (f *Facilitator) Permissions(ctx context.Context, caller toll.Address, q PermissionQuery) (store.List[*toll.Permission], error) {
	none := store.List[*toll.Permission]{Items: []*toll.Permission{}}
	filter := ledger.PermissionFilter{Subscriber: caller, Plan: q.PlanID}
	if q.Status != "" {
		i := slices.IndexFunc(permissionStates, func(s toll.PermissionStatus) bool { return strings.EqualFold(string(s), q.Status) })
		if i < 0 {
			return none, toll.Faults([]toll.Fault{{Path: "status", Message: "must be Active, Revoked, Expired or Exhausted"}})
		}
		filter.Status = permissionStates[i]
	}
	list, err := f.Ledger.Permissions(ctx, filter, q.Page)
	return store.Map(list, func(p ledger.Permission) *toll.Permission { return p.Record(f.Clock(), nil) }), fault(err)
}

var permissionStates = []toll.PermissionStatus{
	toll.StatusActive, toll.StatusRevoked, toll.StatusExpired, toll.StatusExhausted,
}

// PermissionQuery selects permissions. The zero value selects the first page of all.
type PermissionQuery struct {
	PlanID toll.PlanID
	Status string // a word of toll.PermissionStatus in any case
	Page   store.Page
}

// Permission returns a permission of the caller with its last settlements, or [toll.CodePermissionNotFound].
func (f *Facilitator) Permission(ctx context.Context, caller toll.Address, hash toll.Hash) (*toll.Permission, error) {
	p, err := f.permissionOf(ctx, caller, hash)
	if err == nil && p.OpenHolds > 0 {
		// A hold may be over that nobody has written yet: then the permission may be closed.
		if _, err := f.readAccount(ctx, p.Account()); err != nil {
			return nil, toll.AsError(err)
		}
		p, err = f.permissionOf(ctx, caller, hash)
	}
	if err != nil {
		return nil, err
	}
	uses, err := f.Ledger.PermissionUses(ctx, p.Account(), hash, recentUses)
	return p.Record(f.Clock(), uses), fault(err)
}

// RevokePermission ends a permission of the caller: in this process at once, in others within a second. Open holds under
// it still settle. Errors: [toll.CodePermissionNotFound], [toll.CodePermissionAlreadyRevoked].
func (f *Facilitator) RevokePermission(ctx context.Context, caller toll.Address, hash toll.Hash) error {
	p, err := f.permissionOf(ctx, caller, hash)
	if err != nil {
		return err
	}
	at := f.Clock().UTC().Truncate(time.Microsecond)
	if err := f.Checkout.RevokePermission(ctx, p, at); err != nil {
		return f.notRevoked(err)
	}
	f.changed(p.Account(), hash)
	return nil
}

// notRevoked says why a permission was not ended.
func (f *Facilitator) notRevoked(err error) error {
	switch {
	case ledger.IsRefused(err, ledger.PermissionRevoked):
		return toll.NewError(toll.CodePermissionAlreadyRevoked)
	case ledger.IsRefused(err, ledger.PermissionUnknown):
		return toll.NewError(toll.CodePermissionNotFound)
	}
	return refusal.By(f.brand.Names, err)
}

func (f *Facilitator) permissionOf(ctx context.Context, caller toll.Address, hash toll.Hash) (*ledger.Permission, error) {
	p, err := f.Ledger.PermissionByHash(ctx, hash)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Subscriber != caller {
		return nil, toll.NewError(toll.CodePermissionNotFound)
	}
	return &p, fault(err)
}

// Balance returns what a holder has of a plan; see [checkout.Checkout.Balance]. Errors: [toll.CodePlanNotFound].
func (f *Facilitator) Balance(ctx context.Context, id toll.PlanID, holder toll.Address, withLots bool) (*toll.Balance, error) {
	plan, e := f.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	if e != nil {
		return nil, e
	}
	return f.Checkout.Balance(ctx, plan, holder, withLots)
}
