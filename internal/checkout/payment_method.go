package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	maxAlias       = 100 // characters
	maxAllowedKeys = 64
)

// methodRefused says why a payment method cannot pay for a key, nil when it can.
func methodRefused(m *store.PaymentMethod, key *toll.Hash) *toll.Error {
	switch {
	case !m.RevokedAt.IsZero():
		return toll.NewError(toll.CodePaymentMethodRevoked)
	case !m.ExpiredAt.IsZero() && m.ExpiredAt.Before(m.Ends()):
		return toll.Errorf(toll.CodePaymentMethodUnusable, "The card was removed at the card processor. Enroll it again, or enroll another card.")
	case !m.ExpiredAt.IsZero(): // the date of the card alone says nothing: banks renew cards without a new number
		return toll.Errorf(toll.CodePaymentMethodUnusable, "The card has expired.")
	case len(m.AllowedKeys) > 0 && (key == nil || !slices.Contains(m.AllowedKeys, *key)):
		return toll.NewError(toll.CodePaymentMethodNotAllowed)
	}
	return nil
}

// PaymentMethods lists and changes wallets and cards.
type PaymentMethods struct {
	*core
	delegations *Delegations
}

func methodUsable(ctx context.Context, q store.Querier, d *store.Delegation, key *toll.Hash) error {
	m, err := store.PaymentMethodByID(ctx, q, d.Owner, d.PaymentMethod)
	if errors.Is(err, store.ErrNotFound) {
		if d.Provider == toll.ProviderCrypto {
			return nil // a wallet has a row only when its owner noted something
		}
		return toll.NewError(toll.CodePaymentMethodUnusable)
	}
	if err != nil {
		return Fault(err)
	}
	if e := methodRefused(m, key); e != nil {
		return e
	}
	return nil
}

func wallet(owner toll.Address, now time.Time) *store.PaymentMethod {
	text := owner.String()
	return &store.PaymentMethod{
		Owner: owner, ID: owner.Lower(), Provider: toll.ProviderCrypto, Brand: "ethereum", Last4: text[len(text)-4:], CreatedAt: now,
	}
}

func summary(m *store.PaymentMethod) toll.PaymentMethod {
	out := toll.PaymentMethod{
		ID: m.ID, Type: toll.PaymentCard, Brand: m.Brand, Last4: m.Last4, ExpMonth: m.ExpMonth, ExpYear: m.ExpYear, Provider: m.Provider,
		Status: toll.StatusActive, Alias: store.NonZero(m.Alias),
	}
	if len(m.AllowedKeys) > 0 {
		out.AllowedAPIKeyIDs = &m.AllowedKeys
	}
	if m.Provider == toll.ProviderCrypto {
		out.Type, out.ID = toll.PaymentWallet, m.Owner.String()
	}
	if !m.RevokedAt.IsZero() {
		out.Status = toll.StatusRevoked
	}
	return out
}

// mayChange allows the maker of a card or delegation, an owner, an admin, and an API key without a person. Errors: [toll.CodeForbidden].
func mayChange(ctx context.Context, q store.Querier, caller Owner, maker toll.UUID) error {
	if caller.UserID.IsZero() || caller.UserID == maker {
		return nil
	}
	m, err := store.MembershipOf(ctx, q, caller.Address, caller.UserID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !m.Role.Manages(toll.RoleDeveloper) {
		err = toll.Errorf(toll.CodeForbidden, "Only the creator of this card or delegation, an owner, or an admin can change it.")
	}
	return err
}

// MayChange returns nil when a caller may unfreeze or revoke a delegation. Errors: [toll.CodeForbidden], [toll.CodeBadUUID],
// [toll.CodeUnknownDelegation].
func (c *Delegations) MayChange(ctx context.Context, caller Owner, id string) error {
	d, err := c.ownDelegation(ctx, caller.Address, id)
	if err == nil {
		err = Fault(mayChange(ctx, c.store, caller, d.MadeBy))
	}
	return err
}

// List returns the cards of the caller, oldest first, then the wallet: with usable, those that the API key can pay with now.
func (c *PaymentMethods) List(ctx context.Context, caller Owner, usable bool, provider toll.Provider) ([]toll.PaymentMethod, error) {
	all, err := store.PaymentMethods(ctx, c.store, caller.Address)
	if err != nil {
		return nil, Fault(err)
	}
	own := wallet(caller.Address, c.now())
	cards := slices.DeleteFunc(all, func(m *store.PaymentMethod) bool {
		if m.Provider == toll.ProviderCrypto {
			own = m
		}
		return m.Provider == toll.ProviderCrypto
	})
	out := []toll.PaymentMethod{}
	for _, m := range append(cards, own) {
		if (provider == "" || m.Provider == provider) && (!usable || methodRefused(m, &caller.KeyID) == nil) {
			out = append(out, summary(m))
		}
	}
	return out, nil
}

// methodID returns the stored id of a payment method, and whether it is the wallet of the owner.
func methodID(owner toll.Address, id string) (string, bool) {
	if a, err := toll.ParseAddress(id); err == nil && a == owner {
		return owner.Lower(), true
	}
	return id, false
}

// Change sets the alias and the API keys that may use a payment method. Errors: [toll.CodePaymentMethodNotFound], [toll.CodeKeyNotFound],
// [toll.CodeBadRequest], [toll.CodeForbidden].
func (c *PaymentMethods) Change(ctx context.Context, caller Owner, id string, in toll.PaymentMethodChange) (*toll.PaymentMethod, error) {
	alias, keys, err := readChange(in)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if err := c.delegations.ownKey(ctx, caller.Address, k); err != nil {
			return nil, err
		}
	}
	id, isWallet := methodID(caller.Address, id)
	var out toll.PaymentMethod
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		m, err := store.PaymentMethodForUpdate(ctx, tx, caller.Address, id)
		if errors.Is(err, store.ErrNotFound) {
			if !isWallet {
				return toll.NewError(toll.CodePaymentMethodNotFound)
			}
			m, err = store.EnsurePaymentMethod(ctx, tx, wallet(caller.Address, c.now()))
		}
		if err == nil {
			err = mayChange(ctx, tx, caller, m.MadeBy)
		}
		if err != nil {
			return err
		}
		if alias != nil {
			m.Alias = *alias
		}
		if len(in.AllowedAPIKeyIDs) > 0 {
			m.AllowedKeys = keys
		}
		out = summary(m)
		return store.PutPaymentMethod(ctx, tx, m)
	})
	if err != nil {
		return nil, Fault(err)
	}
	return &out, nil
}

// readChange returns the new alias, nil when it stays, and the new keys.
func readChange(in toll.PaymentMethodChange) (alias *string, keys []toll.Hash, err error) {
	var faults []toll.Fault
	if len(in.Alias) > 0 {
		if err := json.Unmarshal(in.Alias, &alias); err != nil || alias != nil && (utf8.RuneCountInString(*alias) > maxAlias || !printable(*alias)) {
			faults = append(faults, toll.Fault{Path: "alias", Message: "must be a string of at most 100 printable characters, or null"})
		}
		if alias == nil {
			alias = new(string)
		}
	}
	if len(in.AllowedAPIKeyIDs) > 0 {
		if err := json.Unmarshal(in.AllowedAPIKeyIDs, &keys); err != nil || len(keys) > maxAllowedKeys {
			faults = append(faults, toll.Fault{Path: "allowedApiKeyIds", Message: "must be an array of at most 64 API key ids, or null"})
		}
		slices.SortFunc(keys, func(a, b toll.Hash) int { return strings.Compare(a.String(), b.String()) })
		keys = slices.Compact(keys)
	}
	if len(faults) > 0 {
		return nil, nil, toll.Faults(faults)
	}
	return alias, keys, nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// Remove revokes a card and its delegations and has the processor delete it; repeats change nothing. Errors:
// [toll.CodePaymentMethodNotFound], and [toll.CodeForbidden] for the wallet and for a person who may not change the card.
func (c *PaymentMethods) Remove(ctx context.Context, caller Owner, id string) error {
	id, isWallet := methodID(caller.Address, id)
	if isWallet {
		return toll.Errorf(toll.CodeForbidden, "The wallet cannot be removed.").
			WithHint("To stop payments, revoke the delegations that pay with the wallet.")
	}
	var revoked []*store.Delegation
	err := c.store.Tx(ctx, func(tx *store.Tx) error {
		revoked = nil
		m, err := store.PaymentMethodForUpdate(ctx, tx, caller.Address, id)
		if errors.Is(err, store.ErrNotFound) {
			return toll.NewError(toll.CodePaymentMethodNotFound)
		}
		if err == nil {
			err = mayChange(ctx, tx, caller, m.MadeBy)
		}
		if err != nil || !m.RevokedAt.IsZero() {
			return err
		}
		m.RevokedAt = c.now()
		if err := store.PutPaymentMethod(ctx, tx, m); err != nil {
			return err
		}
		revoked, err = store.RevokeDelegationsOf(ctx, tx, caller.Address, id, m.RevokedAt)
		if err != nil {
			return err
		}
		if m.Provider == toll.ProviderCard {
			detach := store.Job{Kind: store.JobCardDetach, Key: []byte(m.ID), Due: m.RevokedAt}
			if err := store.PutJob(ctx, tx, detach); err != nil {
				return err
			}
		}
		return store.InsertEvent(ctx, tx, store.Mapped(revoked, func(d *store.Delegation) store.NewEvent {
			return c.delegations.delegationEvent(d, toll.EventDelegationRevoked, m.RevokedAt)
		})...)
	})
	if err != nil {
		return Fault(err)
	}
	c.failpoint("revoked")
	var errs []error
	for _, d := range revoked {
		errs = append(errs, c.delegations.revokePermissions(context.WithoutCancel(ctx), d))
	}
	return Fault(errors.Join(errs...))
}
