package auth

import (
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// MaxOverlap is how long a rotated key may live on, at most.
const MaxOverlap = 30 * 24 * time.Hour

// MayManage returns nil when a caller may change or end an API key: itself, one whose rights the caller has, and any one for a person
// who manages members. Errors: [toll.CodeRightMissing].
func (c Caller) MayManage(k toll.APIKey) error {
	missing := k.Rights.Missing(c.Rights)
	if missing == "" || c.KeyID == k.ID || c.KeyID.IsZero() && c.Rights.Has(toll.RightMembers) {
		return nil
	}
	return MissingRight(missing).WithHint("To change a key, the caller needs every right of that key. " +
		"Ask an owner or admin of the workspace to sign in and change the key.")
}

// RotateAPIKey makes a key in the place of another one, with its name, rights, version and end, and the same maker and parent. The old
// one ends after the overlap, 0 to [MaxOverlap], or at its own end. What it made moves to the new one. The caller is a person, or a key
// that is not the old one and did not come of it: whoever stole a key cannot make it outlive its end. once may be nil.
//
// Errors: [toll.CodeKeyNotFound], [toll.CodeKeyAlreadyRevoked], also for one that is over, [toll.CodeRightMissing] when the caller lacks
// a right of the key, [toll.CodeForbidden] for the key of a program, for the caller's own line, and for a key of another member, who
// would be held to account for what the caller does; owners and admins who signed in rotate it.
func (a *Auth) RotateAPIKey(ctx context.Context, c Caller, id toll.Hash, overlap time.Duration, once *store.Once) (toll.KeyRotated, error) {
	now := a.clock()
	old, err := ownedKey(ctx, a.store, c.Address, id)
	if err != nil {
		return toll.KeyRotated{}, err
	}
	row := store.APIKey{
		ID: toll.NewHash(), Address: old.Address, Name: old.Name, Prefix: old.Prefix, Version: old.Version, CreatedAt: now,
		ExpiresAt: old.ExpiresAt, MadeBy: old.MadeBy, Parent: old.Parent, Rights: old.Rights, UserID: old.UserID,
	}
	text, err := a.signKey(&row)
	if err != nil {
		return toll.KeyRotated{}, err
	}
	var out toll.KeyRotated
	err = a.endAlone(ctx, id, func(tx *store.Tx) error {
		// The old key is locked before what it made is read, so that nothing is made by it meanwhile that stays behind.
		if old, err = ownedKey(ctx, tx, c.Address, id); err != nil {
			return err
		}
		if keyStatus(&old, now) != toll.StatusActive {
			return toll.NewError(toll.CodeKeyAlreadyRevoked).WithDetails("id %s", id)
		}
		if err := a.mayRotate(ctx, tx, c, old); err != nil {
			return err
		}
		ends := now.Add(overlap).Truncate(time.Second)
		if !old.ExpiresAt.IsZero() && old.ExpiresAt.Before(ends) {
			ends = old.ExpiresAt
		}
		if err := store.EndAPIKeyAt(ctx, tx, id, ends, now); err != nil {
			return err
		}
		row.SuspendedAt = old.SuspendedAt // a new secret does not lift a suspension
		if err := store.InsertAPIKey(ctx, tx, row); err != nil {
			return err
		}
		moved, err := a.moveTo(ctx, tx, id, row.ID)
		if err != nil {
			return err
		}
		out = toll.KeyRotated{APIKey: a.record(&row), PreviousID: id, PreviousEndsAt: toll.At(ends), Moved: moved}
		out.Key = text
		if err := store.PutAnswer(ctx, tx, once, &out); err != nil {
			return err
		}
		if err := a.notify(ctx, tx, toll.EventAPIKeyCreated, row); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.Act{
			Workspace: c.Address.Lower(), Act: "api_key.rotated", Object: id.String(), At: now,
			Detail: store.Changed{After: map[string]any{"id": row.ID, "endsAt": out.PreviousEndsAt}},
		})
	})
	if err != nil {
		return toll.KeyRotated{}, err
	}
	// A crash before this leaves access tokens with the old key, where they end no later than it would have.
	if t := a.tokensBy.Load(); t != nil {
		_, err = (*t).MoveToKey(context.WithoutCancel(ctx), id, row.ID, time.Time{})
	}
	return out, err
}

// mayRotate returns nil when a caller may rotate a key.
func (a *Auth) mayRotate(ctx context.Context, tx *store.Tx, c Caller, old store.APIKey) error {
	if err := a.Lock(ctx, tx, c, toll.RightKeys); err != nil {
		return err
	}
	if r := old.Rights.Missing(c.Rights); r != "" {
		return MissingRight(r)
	}
	if old.UserID != c.UserID && !(c.KeyID.IsZero() && c.Rights.Has(toll.RightMembers)) {
		return toll.Errorf(toll.CodeForbidden, "The key to rotate belongs to another member, or to no member.").
			WithHint("Ask that member, or an owner or admin of the workspace, to sign in and rotate the key.")
	}
	if old.MadeBy == toll.MadeByGrant {
		return toll.Errorf(toll.CodeForbidden, "Only the app itself can renew this key.").WithHint("Revoke the access of the app on the page Connected apps.")
	}
	line, err := a.line(ctx, tx, c.KeyID)
	if err == nil && slices.Contains(line, old.ID) {
		err = toll.Errorf(toll.CodeForbidden, "A key cannot rotate itself or a key that it was created from.").
			WithHint("Sign in as a person, or create another key with toll keys create --local.")
	}
	if err == nil && !c.Ends.IsZero() && (old.ExpiresAt.IsZero() || old.ExpiresAt.After(c.Ends)) {
		err = toll.Errorf(toll.CodeForbidden, "The key to rotate expires later than the API key of this call.")
	}
	return err
}

// moveTo gives the keys and consents that one key made another key as their parent.
func (a *Auth) moveTo(ctx context.Context, tx *store.Tx, from, to toll.Hash) (moved toll.Moved, err error) {
	keys, err := store.KeysOfParent(ctx, tx, from, a.clock())
	if err != nil {
		return moved, err
	}
	for _, k := range keys {
		if err := store.SetParentOfKey(ctx, tx, k.ID, to); err != nil {
			return moved, err
		}
	}
	grants, err := store.OAuthGrantsOfParent(ctx, tx, from, a.clock())
	if err != nil {
		return moved, err
	}
	for _, g := range grants {
		if err := store.SetParentOfOAuthGrant(ctx, tx, g.ID, to); err != nil {
			return moved, err
		}
	}
	return toll.Moved{APIKeys: int64(len(keys)), Grants: int64(len(grants))}, nil
}
