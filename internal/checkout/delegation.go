package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	minDelegationSecs = 60
	maxRecipients     = 64
	maxMethodID       = 255 // characters
	useDelegation     = "delegation"
)

// Owner is who asks about delegations and payment methods.
type Owner struct {
	Address toll.Address
	KeyID   toll.Hash // the API key of the call
	UserID  toll.UUID // the person; zero: none
}

// Delegations keeps limits on money: it makes, signs, counts, freezes and revokes them.
type Delegations struct {
	*core
	signReference                       func(use string, owner toll.Address, id string, ends time.Time) (string, error)
	openReference                       func(use, text string) (owner toll.Address, id string, err error)
	maxSpendingCents, maxDelegationSecs int64
}

// Create makes a limit on money. One of an account that the caller holds is pending, and pays nothing, until
// [Delegations.Sign] has its signature. once may be nil. Errors: [toll.CodeDelegationIncomplete], [toll.CodeBadProvider],
// [toll.CodeBadNumber], [toll.CodeUnsupportedScheme] for a currency that the provider does not pay or the plan does not take,
// [toll.CodePaymentMethodNotFound], [toll.CodeProviderMismatch], [toll.CodePaymentMethodUnusable], [toll.CodePaymentMethodRevoked],
// [toll.CodePaymentMethodNotAllowed], [toll.CodePlanNotFound], [toll.CodeKeyNotFound], [toll.CodeSpendLimit]; for an account that the
// caller holds also [toll.CodeChainForeignCode] and those of the chain with status 503.
func (c *Delegations) Create(
	ctx context.Context, caller Owner, in toll.DelegationInput, once *store.Once,
) (*toll.DelegationCreated, error) {
	d, err := c.draftDelegation(ctx, caller, in, false)
	if err != nil {
		return nil, err
	}
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		events, err := d.Insert(ctx, tx)
		if err != nil {
			return err
		}
		if err := store.PutAnswer(ctx, tx, once, d.Created); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, events...)
	})
	if err != nil {
		return nil, Fault(err)
	}
	return d.Created, nil
}

// DelegationDraft is a delegation that is not stored yet.
type DelegationDraft struct {
	Created *toll.DelegationCreated
	c       *Delegations
	row     *store.Delegation
}

// Draft checks a delegation for a new access token, which need not be able to pay for the plan. Errors: those of [Delegations.Create].
func (c *Delegations) Draft(ctx context.Context, caller Owner, in toll.DelegationInput) (*DelegationDraft, error) {
	return c.draftDelegation(ctx, caller, in, true)
}

// Insert stores the delegation and returns its events, the last write of the transaction. A pending one has none. Errors: [toll.CodeSpendLimit].
func (d *DelegationDraft) Insert(ctx context.Context, tx *store.Tx) ([]store.NewEvent, error) {
	if err := spends(ctx, tx, d.row.Owner, d.row.MadeBy, d.row.Limit, d.row.CreatedAt); err != nil {
		return nil, err
	}
	if err := store.InsertDelegation(ctx, tx, d.row); err != nil || d.row.Pending() {
		return nil, err
	}
	return []store.NewEvent{d.c.delegationEvent(d.row, toll.EventDelegationCreated, d.row.CreatedAt)}, nil
}

func (c *Delegations) draftDelegation(
	ctx context.Context, caller Owner, in toll.DelegationInput, forToken bool,
) (*DelegationDraft, error) {
	d, err := c.newDelegation(ctx, caller, in, forToken)
	if err != nil {
		return nil, err
	}
	out := &toll.DelegationCreated{
		DelegationID: d.ID, DelegationIDAlias: d.ID, Status: toll.StatusActive, ExpiresAt: toll.At(d.ExpiresAt),
	}
	if d.Provider == toll.ProviderCard && c.signReference != nil {
		text, err := c.signReference(useDelegation, d.Owner, d.ID, d.ExpiresAt)
		if err != nil {
			return nil, toll.AsError(err)
		}
		out.DelegationToken = &text
	}
	if d.Pending() {
		if err := c.request(ctx, d, out); err != nil {
			return nil, err
		}
	}
	return &DelegationDraft{Created: out, c: c, row: d}, nil
}

// newDelegation checks an input: missing members, then values, then records. With forToken it need not be able to pay for its plan.
func (c *Delegations) newDelegation(
	ctx context.Context, caller Owner, in toll.DelegationInput, forToken bool,
) (*store.Delegation, error) {
	in, faults := in.Merge()
	if err := toll.Faults(faults); err != nil {
		return nil, err
	}
	if err := incomplete(&in); err != nil {
		return nil, err
	}
	now := c.now()
	provider := toll.Provider(strings.ToLower(*in.Provider))
	currency := "usdc"
	if provider == toll.ProviderCard {
		currency = "usd"
	}
	if in.Currency != nil && *in.Currency != "" {
		currency = strings.ToLower(*in.Currency)
	}
	d := &store.Delegation{
		ID: toll.NewUUID(), Owner: caller.Address, Provider: provider, Currency: currency,
		Limit: int64(*in.SpendingLimitCents), APIKeyID: in.APIKeyID, AllowedReceivers: in.AllowedRecipients, MadeBy: caller.UserID, CreatedAt: now,
	}
	if err := c.checkNumbers(&in); err != nil {
		return nil, err
	}
	d.ExpiresAt = now.Add(time.Duration(*in.DurationSecs) * time.Second)
	if in.MaxTransactions != nil {
		d.MaxTransactions = int64(*in.MaxTransactions)
	}
	if err := checkProvider(d, &in); err != nil {
		return nil, err
	}
	if in.ProviderPaymentMethodID != nil {
		d.PaymentMethod = *in.ProviderPaymentMethodID
	}
	if in.MerchantAccountID != nil {
		d.MerchantAccount = *in.MerchantAccountID
	}
	if in.PlanID != nil {
		d.Plan = *in.PlanID
		plan, err := store.PlanByID(ctx, c.store, d.Plan)
		switch {
		case err != nil:
			return nil, Fault(unknown(err, toll.CodePlanNotFound, "planId", d.Plan))
		}
		if err := c.pays(d, plan); err != nil && !forToken && !plan.Price.IsFree() {
			return nil, err
		}
	}
	if d.APIKeyID != nil {
		if err := c.ownKey(ctx, caller.Address, *d.APIKeyID); err != nil {
			return nil, err
		}
	}
	if err := c.chooseMethod(ctx, caller, d); err != nil {
		return nil, err
	}
	account := in.OwnerAccount
	if account == nil && d.Provider == toll.ProviderCrypto {
		external, err := c.isExternal(ctx, d.Owner)
		if err != nil {
			return nil, err
		}
		if external { // the service has no key of it, so its owner signs
			account = &d.Owner
		}
	}
	if account != nil {
		if err := c.heldBy(ctx, d, *account); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// isExternal reports whether an address is a workspace whose key the service never had.
func (c *Delegations) isExternal(ctx context.Context, a toll.Address) (bool, error) {
	p, err := store.PrincipalByAddress(ctx, c.store, a)
	return err == nil && len(p.SealedKey) == 0, store.NotFoundAs(err, nil)
}

func incomplete(in *toll.DelegationInput) error {
	var faults []toll.Fault
	need := func(path string, there bool) {
		if !there {
			faults = append(faults, toll.Fault{Path: path, Message: "is required"})
		}
	}
	need("provider", in.Provider != nil && *in.Provider != "")
	need("spendingLimitCents", in.SpendingLimitCents != nil)
	need("durationSecs", in.DurationSecs != nil)
	isCard := in.Provider != nil && strings.EqualFold(*in.Provider, string(toll.ProviderCard))
	need("providerPaymentMethodId", !isCard || in.ProviderPaymentMethodID != nil && *in.ProviderPaymentMethodID != "")
	return refusedAs(faults, toll.CodeDelegationIncomplete)
}

func (c *Delegations) checkNumbers(in *toll.DelegationInput) error {
	var faults []toll.Fault
	between := func(path string, n, least, most int64) {
		if n < least || n > most {
			faults = append(faults, toll.Fault{Path: path, Message: fmt.Sprintf("must be between %d and %d", least, most)})
		}
	}
	between("spendingLimitCents", int64(*in.SpendingLimitCents), 1, c.maxSpendingCents)
	between("durationSecs", int64(*in.DurationSecs), minDelegationSecs, c.maxDelegationSecs)
	if in.MaxTransactions != nil {
		between("maxTransactions", int64(*in.MaxTransactions), 1, 1<<53)
	}
	return refusedAs(faults, toll.CodeBadNumber)
}

func checkProvider(d *store.Delegation, in *toll.DelegationInput) error {
	currencies := map[toll.Provider][]string{toll.ProviderCrypto: {"usdc", "eurc"}, toll.ProviderCard: {"usd", "eur"}}[d.Provider]
	if currencies == nil {
		return toll.NewError(toll.CodeBadProvider).WithHint("Send erc4337 or stripe.")
	}
	if !slices.Contains(currencies, d.Currency) {
		return toll.Errorf(toll.CodeUnsupportedScheme, "The currency of a delegation with this provider must be %s.", strings.Join(currencies, " or "))
	}
	var faults []toll.Fault
	bad := func(path, message string) { faults = append(faults, toll.Fault{Path: path, Message: message}) }
	if d.Provider == toll.ProviderCard {
		if len(in.AllowedRecipients) > 0 {
			bad("allowedRecipients", "is only for the provider erc4337")
		}
		if in.OwnerAccount != nil {
			bad("ownerAccount", "is only for the provider erc4337")
		}
	} else if in.MerchantAccountID != nil {
		bad("merchantAccountId", "is only for the provider stripe")
	}
	if len(in.AllowedRecipients) > maxRecipients {
		bad("allowedRecipients", fmt.Sprintf("must have at most %d addresses", maxRecipients))
	}
	for path, text := range map[string]*string{"providerPaymentMethodId": in.ProviderPaymentMethodID, "merchantAccountId": in.MerchantAccountID} {
		if text != nil && len([]rune(*text)) > maxMethodID {
			bad(path, fmt.Sprintf("must have at most %d characters", maxMethodID))
		}
	}
	return refusedAs(faults, toll.CodeBadRequest)
}

// refusedAs is the error of members that are wrong, with a code; nil when there are none.
func refusedAs(faults []toll.Fault, code toll.Code) error {
	e := toll.Faults(faults)
	if e == nil {
		return nil
	}
	e.Code = code
	return e
}

func (c *Delegations) ownKey(ctx context.Context, owner toll.Address, id toll.Hash) error {
	k, err := store.APIKeyByID(ctx, c.store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && k.Address != owner {
		return toll.NewError(toll.CodeKeyNotFound).WithDetails("apiKeyId %s", id)
	}
	return Fault(err)
}

// chooseMethod finds what the delegation pays with: a card of the caller, or the wallet.
func (c *Delegations) chooseMethod(ctx context.Context, caller Owner, d *store.Delegation) error {
	asked, err := toll.ParseAddress(d.PaymentMethod)
	isWallet := err == nil && asked == caller.Address
	if d.Provider == toll.ProviderCrypto && (isWallet || d.PaymentMethod == "") {
		d.PaymentMethod = caller.Address.Lower()
	} else {
		m, err := store.PaymentMethodByID(ctx, c.store, caller.Address, d.PaymentMethod)
		switch {
		case errors.Is(err, store.ErrNotFound) && !isWallet:
			return toll.NewError(toll.CodePaymentMethodNotFound)
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return Fault(err)
		case isWallet, m.Provider != d.Provider:
			return toll.NewError(toll.CodeProviderMismatch)
		}
	}
	return methodUsable(ctx, c.store, d, &caller.KeyID)
}

// record is a delegation as its owner sees it.
func (c *Delegations) record(d *store.Delegation) *toll.Delegation {
	r := &toll.Delegation{
		DelegationID: d.ID, Provider: d.Provider, ProviderPaymentMethodID: d.PaymentMethod, Status: d.Status(c.now()),
		SpendingLimitCents: toll.Cents(d.Limit), AmountSpentCents: toll.Cents(d.Spent), RemainingBudgetCents: toll.Cents(d.Remaining()),
		Currency: d.Currency, TransactionCount: d.Transactions, ExpiresAt: toll.At(d.ExpiresAt), CreatedAt: toll.At(d.CreatedAt),
		APIKeyID: d.APIKeyID, LastUsedAt: toll.AtPtr(d.LastUsedAt), AllowedRecipients: d.AllowedReceivers,
		PlanID: store.NonZero(d.Plan), MerchantAccountID: store.NonZero(d.MerchantAccount), MaxTransactions: store.NonZero(d.MaxTransactions),
	}
	if d.Provider == toll.ProviderCrypto {
		r.ProviderPaymentMethodID = d.Owner.String()
		if !d.OwnerAccount.IsZero() {
			r.ProviderPaymentMethodID = d.OwnerAccount.String()
		}
	}
	return r
}

// ownDelegation returns a delegation of its owner, or [toll.CodeUnknownDelegation].
func (c *Delegations) ownDelegation(ctx context.Context, owner toll.Address, id string) (*store.Delegation, error) {
	id, err := toll.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	d, err := store.DelegationByID(ctx, c.store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Owner != owner {
		return nil, toll.NewError(toll.CodeUnknownDelegation).WithDetails("delegationId %s", id)
	}
	return d, Fault(err)
}

// Read returns a delegation to its owner, or [toll.CodeUnknownDelegation].
func (c *Delegations) Read(ctx context.Context, owner toll.Address, id string) (*toll.Delegation, error) {
	return c.recordOf(c.ownDelegation(ctx, owner, id))
}

// List lists the delegations of the caller; usable leaves those that the API key of the call can pay with now.
func (c *Delegations) List(ctx context.Context, caller Owner, usable bool, p store.Page) (store.List[*toll.Delegation], error) {
	var only *store.Usable
	if usable {
		only = &store.Usable{At: c.now(), Key: caller.KeyID}
		m, err := limited(ctx, c.store, caller.Address, caller.UserID)
		if err != nil {
			return store.List[*toll.Delegation]{}, Fault(err)
		}
		if m != nil {
			only.MadeBy = m.UserID
		}
		methods, err := store.PaymentMethods(ctx, c.store, caller.Address)
		if err != nil {
			return store.List[*toll.Delegation]{}, Fault(err)
		}
		for _, m := range methods {
			if methodRefused(m, &caller.KeyID) != nil {
				only.Without = append(only.Without, m.ID)
			}
		}
	}
	list, err := store.DelegationsOfOwner(ctx, c.store, caller.Address, only, p)
	return store.Map(list, c.record), Fault(err)
}

// Transactions lists the payments under a delegation of the owner.
func (c *Delegations) Transactions(ctx context.Context, owner toll.Address, id string, p store.Page) (store.List[*toll.DelegationTransaction], error) {
	d, err := c.ownDelegation(ctx, owner, id)
	if err != nil {
		return store.List[*toll.DelegationTransaction]{}, err
	}
	list, err := store.DelegationTransactions(ctx, c.store, d.ID, p)
	return list, Fault(err)
}

// ID returns the id in a text: the id itself, or a signed reference. Errors: [toll.CodeBadUUID], [toll.CodeDelegationNotFound] for a
// reference of another service or owner, and [toll.CodeDatabaseUnavailable] when that is unknown.
func (c *Delegations) ID(owner toll.Address, text string) (string, error) {
	if strings.Count(text, ".") != 2 || c.openReference == nil {
		return toll.ParseUUID(text)
	}
	of, id, err := c.openReference(useDelegation, text)
	if unknown, ok := errors.AsType[*toll.Error](err); ok && unknown.Code == toll.CodeDatabaseUnavailable {
		return "", unknown
	}
	if err != nil || of != owner {
		return "", toll.NewError(toll.CodeDelegationNotFound).WithCause(err)
	}
	return id, nil
}

// Usable returns nil when the delegation, by id or signed reference, could pay for an order now. Errors: those of [Delegations.ForToken],
// [toll.CodeDelegationExhausted], [toll.CodeDelegationInsufficient], [toll.CodeDelegationPlanMismatch] for a receiver that it does not
// pay, and [toll.CodeUnsupportedScheme] for another provider or currency.
func (c *Delegations) Usable(ctx context.Context, owner toll.Address, key *toll.Hash, id string, plan *toll.Plan) error {
	d, err := c.delegationOf(ctx, c.store, owner, id)
	if err != nil {
		return err
	}
	if err := c.usable(ctx, c.store, d, owner, key, plan, c.now()); err != nil {
		return err
	}
	return affordsAll(d, orderAmount(plan), 1)
}

// ForToken checks that an access token of the plan may name the delegation, by id or signed reference. shortfall says why it could not pay
// for an order now; nil if it could, and for a free plan. A token with a shortfall still spends credits. Errors: [toll.CodeBadUUID],
// [toll.CodeDelegationNotFound] (also for a pending one), [toll.CodeDelegationRevoked], [toll.CodeDelegationExpired],
// [toll.CodeDelegationFrozen], [toll.CodeDelegationPlanMismatch] for one of another plan, [toll.CodePaymentMethodUnusable],
// [toll.CodePaymentMethodRevoked], and [toll.CodePaymentMethodNotAllowed] for another API key.
func (c *Delegations) ForToken(
	ctx context.Context, q store.Querier, owner toll.Address, key *toll.Hash, id string, plan *toll.Plan,
) (shortfall *toll.Error, err error) {
	d, err := c.delegationOf(ctx, q, owner, id)
	if err != nil {
		return nil, err
	}
	if err := c.authorized(ctx, q, d, owner, key, plan, c.now()); err != nil || plan.Price.IsFree() {
		return nil, err
	}
	short := cmp.Or(c.pays(d, plan), reaches(d, plan), affordsAll(d, orderAmount(plan), 1))
	return toll.AsError(short), nil
}

func orderAmount(plan *toll.Plan) toll.Units {
	if !plan.Kind().Prepaid() {
		return toll.UnitsOf(1)
	}
	return plan.Price.Total()
}

// delegationOf returns a delegation to pay with, or [toll.CodeDelegationNotFound].
func (c *Delegations) delegationOf(ctx context.Context, q store.Querier, owner toll.Address, text string) (*store.Delegation, error) {
	id, err := c.ID(owner, text)
	if err != nil {
		return nil, err
	}
	d, err := store.DelegationByID(ctx, q, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Owner != owner {
		return nil, toll.NewError(toll.CodeDelegationNotFound).WithDetails("delegationId %s", id)
	}
	return d, Fault(err)
}

// usable reports whether a delegation may pay for a plan, whatever the plan costs.
func (c *Delegations) usable(
	ctx context.Context, q store.Querier, d *store.Delegation, owner toll.Address, key *toll.Hash, plan *toll.Plan, now time.Time,
) error {
	if err := c.authorized(ctx, q, d, owner, key, plan, now); err != nil {
		return err
	}
	return cmp.Or(c.pays(d, plan), reaches(d, plan))
}

// authorized reports whether a delegation runs, and may be used by the owner with the key for the plan.
func (c *Delegations) authorized(
	ctx context.Context, q store.Querier, d *store.Delegation, owner toll.Address, key *toll.Hash, plan *toll.Plan, now time.Time,
) error {
	refuse := func(code toll.Code) *toll.Error { return toll.NewError(code).WithDetails("delegationId %s", d.ID) }
	switch {
	case d.Owner != owner:
		return refuse(toll.CodeDelegationNotFound)
	case !d.RevokedAt.IsZero():
		return refuse(toll.CodeDelegationRevoked)
	case !now.Before(d.ExpiresAt):
		return refuse(toll.CodeDelegationExpired)
	case d.Frozen():
		return refuse(toll.CodeDelegationFrozen)
	case d.Pending():
		return toll.Errorf(toll.CodeDelegationNotFound, "The delegation is not signed yet.").WithDetails("delegationId %s", d.ID).
			WithHint("Sign the typed data of the delegation with its account, then submit the signature.")
	case d.Plan != "" && d.Plan != plan.ID:
		return refuse(toll.CodeDelegationPlanMismatch)
	case d.MerchantAccount != "": // plans name no account of a seller at Stripe
		return toll.Errorf(toll.CodeDelegationPlanMismatch, "The delegation can pay only its merchantAccountId, and this plan is paid to another account.").
			WithDetails("delegationId %s", d.ID)
	case d.APIKeyID != nil && (key == nil || *key != *d.APIKeyID):
		return refuse(toll.CodePaymentMethodNotAllowed)
	}
	return methodUsable(ctx, q, d, key)
}

// reaches reports whether a delegation pays all receivers of a plan.
func reaches(d *store.Delegation, plan *toll.Plan) error {
	if len(d.AllowedReceivers) == 0 {
		return nil
	}
	for _, r := range plan.Price.Receivers {
		if !slices.Contains(d.AllowedReceivers, r) {
			return toll.Errorf(toll.CodeDelegationPlanMismatch, "A receiver of this plan is not in the allowedRecipients of the delegation.").
				WithDetails("receiver %s", r)
		}
	}
	return nil
}

// affords returns what an order takes of a delegation, in cents.
func affords(d *store.Delegation, amount toll.Units) (int64, error) {
	cents, ok := centsOf(amount)
	switch {
	case d.Remaining() == 0, d.MaxTransactions > 0 && d.Transactions >= d.MaxTransactions:
		return 0, toll.NewError(toll.CodeDelegationExhausted).WithDetails("delegationId %s", d.ID)
	case !ok, cents > d.Remaining():
		return 0, toll.NewError(toll.CodeDelegationInsufficient).WithDetails("delegationId %s", d.ID)
	}
	return cents, nil
}

// affordsAll reports whether a delegation pays for several orders.
func affordsAll(d *store.Delegation, amount toll.Units, orders int64) error {
	cents, err := affords(d, amount)
	switch {
	case err != nil:
		return err
	case cents > 0 && orders > d.Remaining()/cents:
		return toll.NewError(toll.CodeDelegationInsufficient).WithDetails("delegationId %s", d.ID)
	case d.MaxTransactions > 0 && orders > d.MaxTransactions-d.Transactions:
		return toll.NewError(toll.CodeDelegationExhausted).WithDetails("delegationId %s", d.ID)
	}
	return nil
}
