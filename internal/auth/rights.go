package auth

import (
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Maker is who makes an API key. What the maker has bounds the key.
type Maker struct {
	Address toll.Address
	By      toll.KeyMaker
	Parent  toll.Hash // the API key or the consent; zero: none
	Rights  toll.Rights
	Ends    time.Time // of the maker; zero: never
	UserID  toll.UUID // the person under whose membership the key is to stand; zero: none
}

// Local is the operator, who makes keys on the database itself.
func Local(owner toll.Address) Maker {
	return Maker{Address: owner, By: toll.MadeLocally, Rights: toll.AllRights()}
}

func (c Caller) Maker() Maker {
	if c.KeyID.IsZero() {
		return Maker{Address: c.Address, By: toll.MadeByUser, Rights: c.Rights, UserID: c.UserID}
	}
	return Maker{Address: c.Address, By: toll.MadeByKey, Parent: c.KeyID, Rights: c.Rights, Ends: c.Ends, UserID: c.UserID}
}

// Gives returns the rights that an API key can give to what it lets in: never export and members.
func (c Caller) Gives() toll.Rights { return c.Maker().gives() }

func (m Maker) gives() toll.Rights {
	if m.By == toll.MadeLocally {
		return m.Rights
	}
	return slices.DeleteFunc(slices.Clone(m.Rights), func(r toll.Right) bool {
		return r == toll.RightExport || r == toll.RightMembers
	})
}

// bound returns the rights and the end of a key that asks for these: nil and zero are the most.
func (m Maker) bound(rights toll.Rights, ends time.Time) (toll.Rights, time.Time, error) {
	gives := m.gives()
	if rights == nil {
		rights = gives
	}
	if len(rights) == 0 {
		return nil, ends, toll.Faults([]toll.Fault{{Path: "rights", Message: "must name at least one right"}})
	}
	if r := rights.Missing(gives); r != "" {
		e := MissingRight(r)
		if m.Rights.Has(r) {
			e = toll.Errorf(toll.CodeRightMissing, "An API key cannot give the right %s to another key.", r).
				WithParam("right", string(r)).WithHint("Create the key with toll keys create --local.")
		}
		return nil, ends, e
	}
	if ends.IsZero() {
		ends = m.Ends
	}
	if !m.Ends.IsZero() && ends.After(m.Ends) {
		return nil, ends, toll.Errorf(toll.CodeForbidden, "A key cannot expire later than the key that creates it.").
			WithHint("Omit the expiry, or send a time no later than " + m.Ends.UTC().Format(time.RFC3339) + ".")
	}
	return rights, ends, nil
}

func MissingRight(right toll.Right) *toll.Error {
	return toll.Errorf(toll.CodeRightMissing, "This API key lacks the right %s.", right).
		WithParam("right", string(right))
}

// Lock keeps a caller from losing what it calls with until the transaction ends: its API key, or the membership of its person. What
// makes something on behalf of a caller calls it. Errors: [toll.CodeNotAuthenticated] for who has lost it,
// [toll.CodeRightMissing] when the role of the person has lost one of these rights.
func (a *Auth) Lock(ctx context.Context, tx *store.Tx, c Caller, rights ...toll.Right) error {
	if !c.KeyID.IsZero() {
		if err := a.LockKey(ctx, tx, c.KeyID); err != nil {
			return err
		}
	}
	if c.UserID.IsZero() {
		return nil
	}
	m, err := store.ShareMembership(ctx, tx, c.Address, c.UserID)
	if err != nil {
		return store.NotFoundAs(err, errKey)
	}
	if r := toll.Rights(rights).Missing(m.Role.Rights()); r != "" {
		return MissingRight(r)
	}
	return nil
}

// LockKey keeps an API key from being ended until the transaction ends. What makes something on behalf of a key calls it, so that
// nothing is made by a key that ends meanwhile. Errors: [toll.CodeNotAuthenticated] for a key that is over.
func (a *Auth) LockKey(ctx context.Context, tx *store.Tx, id toll.Hash) error {
	err := store.LockAPIKey(ctx, tx, id, a.clock())
	return store.NotFoundAs(err, errKey)
}
