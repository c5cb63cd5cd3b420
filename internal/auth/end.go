package auth

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Tokens ends access tokens, or gives them another parent. The facilitator does.
type Tokens interface {
	// RevokeOfKey ends the access tokens that an API key made, and returns how many it ended.
	RevokeOfKey(ctx context.Context, key toll.Hash) (int64, error)
	// RevokeToken ends an access token, and reports whether it was not over before.
	RevokeToken(ctx context.Context, owner toll.Address, hash toll.Hash) (bool, error)
	// MoveToKey makes one key the maker of the access tokens that another one made and that end no later than until (zero: any),
	// and returns of how many.
	MoveToKey(ctx context.Context, from, to toll.Hash, until time.Time) (int64, error)
}

// EndTokensBy says who ends access tokens. Without it there are none.
func (a *Auth) EndTokensBy(t Tokens) { a.tokensBy.Store(&t) }

// family is what ends with an API key or a consent.
type family struct {
	keys   []store.APIKey
	grants []store.OAuthGrant
}

// EndKey ends an API key and everything that it made: keys, consents, access tokens, and what came of those. Open holds of an
// access token still settle. Keys are refused at once in this process and within a second in others. What a crash leaves,
// [Auth.FinishKey] ends. Errors: [toll.CodeKeyNotFound], [toll.CodeKeyAlreadyRevoked].
func (a *Auth) EndKey(ctx context.Context, owner toll.Address, id toll.Hash) (toll.KeyRevoked, error) {
	var all family
	err := a.endAlone(ctx, id, func(tx *store.Tx) error {
		all = family{}
		key, err := a.endable(ctx, tx, owner, id)
		if err != nil {
			return err
		}
		if err := a.endFamily(ctx, tx, key, &all); err != nil {
			return err
		}
		return a.notifyEnded(ctx, tx, all)
	})
	a.forget(ctx, all)
	if err != nil {
		return toll.KeyRevoked{}, err
	}
	ended, err := a.finish(context.WithoutCancel(ctx), all) // a caller who leaves keeps no access token alive
	ended.APIKeys = int64(len(all.keys)) - 1
	ended.Grants = int64(len(all.grants))
	return toll.KeyRevoked{Success: true, ID: id, Status: toll.StatusRevoked, Ended: ended}, err
}

type Ending struct {
	family
	webhooks []*store.Webhook
}

// Webhooks names the webhooks whose address the member chose.
func (e *Ending) Webhooks() []toll.WebhookLeft {
	return store.Mapped(e.webhooks, func(w *store.Webhook) toll.WebhookLeft { return toll.WebhookLeft{ID: w.ID, URL: w.URL} })
}

// EndOf ends, in the transaction that ends a membership, the API keys and consents that stand under it, and pauses the webhooks whose
// address the member chose. The caller calls [Auth.Finish] after the commit; what a crash leaves, jobs end.
func (a *Auth) EndOf(ctx context.Context, tx *store.Tx, workspace toll.Address, user toll.UUID) (*Ending, error) {
	now := a.clock()
	grants, err := store.OAuthGrantsOfUser(ctx, tx, workspace, user, now)
	if err != nil {
		return nil, err
	}
	keys, err := store.KeysOfUser(ctx, tx, workspace, user, now)
	if err != nil {
		return nil, err
	}
	all, err := a.endThese(ctx, tx, keys, grants)
	if err == nil {
		all.webhooks, err = store.LeaveWebhooks(ctx, tx, workspace, user, toll.UUID{}, now)
	}
	if err != nil {
		return nil, err
	}
	return all, a.notifyEnded(ctx, tx, all.family)
}

// EndAll is [Auth.EndOf] for a workspace that ends: all its API keys and consents, whoever made them.
func (a *Auth) EndAll(ctx context.Context, tx *store.Tx, workspace toll.Address) (*Ending, error) {
	now := a.clock()
	grants, err := store.OAuthGrantsOf(ctx, tx, workspace, now, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	keys, err := store.KeysOf(ctx, tx, workspace, now)
	if err != nil {
		return nil, err
	}
	all, err := a.endThese(ctx, tx, keys, grants)
	if err != nil {
		return nil, err
	}
	return all, a.notifyEnded(ctx, tx, all.family)
}

// endThese revokes keys and consents. [Auth.notifyEnded] comes last in the transaction.
func (a *Auth) endThese(ctx context.Context, tx *store.Tx, keys []store.APIKey, grants []store.OAuthGrant) (*Ending, error) {
	all := &Ending{}
	for _, g := range grants {
		if err := store.RevokeOAuthGrant(ctx, tx, g.ID, a.clock()); err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		if err := a.revoke(ctx, tx, &k); err != nil && !errors.Is(err, toll.NewError(toll.CodeKeyAlreadyRevoked)) {
			return nil, err
		}
		all.keys = append(all.keys, k)
	}
	all.grants = grants
	return all, nil
}

// notifyEnded writes the events of ended keys and notes ended consents. It comes last in the transaction.
func (a *Auth) notifyEnded(ctx context.Context, tx *store.Tx, all family) error {
	if len(all.keys) > 0 {
		if err := a.notify(ctx, tx, toll.EventAPIKeyRevoked, all.keys...); err != nil {
			return err
		}
	}
	for _, g := range all.grants {
		if err := store.Audit(ctx, tx, store.GrantAct("grant.revoked", g, a.clock())); err != nil {
			return err
		}
	}
	return nil
}

// Finish ends the access tokens of what [Auth.EndOf] ended, and counts everything.
func (a *Auth) Finish(ctx context.Context, all *Ending) (toll.Ended, error) {
	ctx = context.WithoutCancel(ctx)
	a.forget(ctx, all.family)
	ended, err := a.finish(ctx, all.family)
	ended.APIKeys, ended.Grants = int64(len(all.keys)), int64(len(all.grants))
	return ended, err
}

// GiveOf puts, in the transaction that ends the membership of a person who had these rights, the API keys and consents that stand
// under it, and the webhooks whose address the person chose, under that of the caller. What had a right beyond those loses it. The caller calls [Auth.Given] after the commit. Errors:
// [toll.CodeRightMissing] when the caller lacks a right of what stays.
func (a *Auth) GiveOf(ctx context.Context, tx *store.Tx, c Caller, user toll.UUID, had toll.Rights) (*Ending, error) {
	all := &Ending{}
	now := a.clock()
	var err error
	if all.grants, err = store.OAuthGrantsOfUser(ctx, tx, c.Address, user, now); err != nil {
		return nil, err
	}
	for _, g := range all.grants {
		rights := g.Rights.Within(had)
		if r := rights.Missing(c.Rights); r != "" {
			return nil, MissingRight(r)
		}
		if err := store.SetUserOfOAuthGrant(ctx, tx, g.ID, c.UserID, rights); err != nil {
			return nil, err
		}
	}
	if all.keys, err = store.KeysOfUser(ctx, tx, c.Address, user, now); err != nil {
		return nil, err
	}
	for _, k := range all.keys {
		rights := k.Rights.Within(had)
		if r := rights.Missing(c.Rights); r != "" {
			return nil, MissingRight(r)
		}
		if err := store.SetUserOfKey(ctx, tx, k.ID, c.UserID, rights); err != nil {
			return nil, err
		}
	}
	all.webhooks, err = store.LeaveWebhooks(ctx, tx, c.Address, user, c.UserID, now)
	return all, err
}

// Given counts what [Auth.GiveOf] gave: keys and consents. Their access tokens stay with them, and are not counted.
func (a *Auth) Given(ctx context.Context, all *Ending) toll.Ended {
	a.forget(ctx, all.family)
	return toll.Ended{APIKeys: int64(len(all.keys)), Grants: int64(len(all.grants))}
}

// endAlone runs the transaction that ends a key while no read of the key can bring an older row into the cache.
func (a *Auth) endAlone(ctx context.Context, id toll.Hash, f func(tx *store.Tx) error) error {
	return a.alone(ctx, id, func() error {
		defer a.records.Drop(id) // also after an error: the commit may have happened
		return a.store.Tx(ctx, f)
	})
}

func (a *Auth) endable(ctx context.Context, tx *store.Tx, owner toll.Address, id toll.Hash) (store.APIKey, error) {
	key, err := ownedKey(ctx, tx, owner, id)
	if err == nil && !key.RevokedAt.IsZero() {
		err = toll.NewError(toll.CodeKeyAlreadyRevoked).WithDetails("id %s", id)
	}
	return key, err
}

// endFamily revokes a key and all that descends from it. A parent is revoked before its children are read, so that none is made meanwhile.
func (a *Auth) endFamily(ctx context.Context, tx *store.Tx, key store.APIKey, all *family) error {
	now := a.clock()
	for next := []store.APIKey{key}; len(next) > 0; {
		key, next = next[0], next[1:]
		err := a.revoke(ctx, tx, &key)
		if len(all.keys) > 0 && errors.Is(err, toll.NewError(toll.CodeKeyAlreadyRevoked)) {
			continue // another call ends it
		}
		if err != nil {
			return err
		}
		all.keys = append(all.keys, key)
		children, err := store.KeysOfParent(ctx, tx, key.ID, now)
		if err != nil {
			return err
		}
		next = append(next, children...)
		grants, err := store.OAuthGrantsOfParent(ctx, tx, key.ID, now)
		if err != nil {
			return err
		}
		for _, g := range grants {
			if err := store.RevokeOAuthGrant(ctx, tx, g.ID, now); err != nil {
				return err
			}
			if children, err = store.KeysOfParent(ctx, tx, g.ID, now); err != nil {
				return err
			}
			next = append(next, children...)
		}
		all.grants = append(all.grants, grants...)
	}
	return nil
}

// revoke notes the end of one key. Errors: [toll.CodeKeyAlreadyRevoked].
func (a *Auth) revoke(ctx context.Context, tx *store.Tx, key *store.APIKey) error {
	key.RevokedAt = a.clock()
	first, err := store.RevokeAPIKey(ctx, tx, key.ID, key.RevokedAt)
	if err == nil && !first {
		err = toll.NewError(toll.CodeKeyAlreadyRevoked).WithDetails("id %s", key.ID)
	}
	return err
}

// forget drops what this process remembers of ended keys. It waits for readers that may have read an older row.
func (a *Auth) forget(ctx context.Context, all family) {
	ctx = context.WithoutCancel(ctx) // the commit may have happened
	for _, k := range all.keys {
		_ = a.alone(ctx, k.ID, func() error { a.records.Drop(k.ID); return nil }) // nothing of it fails
	}
}

// finish ends the access tokens of ended keys and consents, and notes that nothing is left to end.
func (a *Auth) finish(ctx context.Context, all family) (ended toll.Ended, err error) {
	t := a.tokensBy.Load()
	for _, k := range all.keys {
		if t != nil {
			n, err := (*t).RevokeOfKey(ctx, k.ID)
			if ended.AccessTokens += n; err != nil {
				return ended, err
			}
		}
		if err := a.store.Tx(ctx, func(tx *store.Tx) error { return store.EndAPIKey(ctx, tx, k.ID) }); err != nil {
			return ended, err
		}
	}
	for _, g := range all.grants {
		// Of the access tokens of a consent only the newest is left: every renewal ends the one before. A key is in the family.
		access, err := store.OAuthAccess(ctx, a.store, g.ID, 1)
		if err != nil {
			return ended, err
		}
		for _, id := range access {
			if t == nil || g.PlanID == "" {
				continue
			}
			first, err := (*t).RevokeToken(ctx, g.Owner, id)
			if err != nil {
				return ended, err
			}
			if first {
				ended.AccessTokens++
			}
		}
		if err := a.store.Tx(ctx, func(tx *store.Tx) error { return store.EndOAuthGrant(ctx, tx, g.ID) }); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// FinishKey ends what a revoked key made whose end was interrupted ([store.JobEndKey]).
func (a *Auth) FinishKey(ctx context.Context, id []byte) error {
	key, err := store.APIKeyByID(ctx, a.store, toll.Hash(id))
	if err == nil {
		_, err = a.finish(ctx, family{keys: []store.APIKey{key}})
	}
	return err
}

// EndKeyOnly ends an API key alone: the caller's key becomes the parent of what it made, if it has the rights of that and ends no
// earlier. Access tokens that would outlive the caller's key end. Where the caller's own key came of the ended one, the parent of
// that takes its place instead. A crash in between may end access tokens that were to be kept. Errors: those of [Auth.EndKey],
// [toll.CodeRightMissing], [toll.CodeForbidden], [toll.CodeBadRequest] when the caller's key is the one that ends.
func (a *Auth) EndKeyOnly(ctx context.Context, c Caller, id toll.Hash) (toll.KeyRevoked, error) {
	if c.KeyID.IsZero() {
		return a.keepByPerson(ctx, c, id)
	}
	if c.KeyID == id {
		return toll.KeyRevoked{}, toll.Errorf(toll.CodeBadRequest, "A key cannot revoke itself and keep the keys and consents that it created.").
			WithHint("Revoke it with another API key.")
	}
	var key store.APIKey
	var kept toll.Ended
	err := a.endAlone(ctx, id, func(tx *store.Tx) (err error) {
		if key, err = a.endable(ctx, tx, c.Address, id); err != nil {
			return err
		}
		if key.Rights.Has(toll.RightSpend) && !c.Rights.Has(toll.RightSpend) {
			return MissingRight(toll.RightSpend)
		}
		if err := a.LockKey(ctx, tx, c.KeyID); err != nil {
			return err
		}
		if err := a.revoke(ctx, tx, &key); err != nil {
			return err
		}
		if kept, err = a.adopt(ctx, tx, c, key); err != nil {
			return err
		}
		return a.notify(ctx, tx, toll.EventAPIKeyRevoked, key)
	})
	if err != nil {
		return toll.KeyRevoked{}, err
	}
	ctx = context.WithoutCancel(ctx)
	if t := a.tokensBy.Load(); t != nil {
		if kept.AccessTokens, err = (*t).MoveToKey(ctx, id, c.KeyID, c.Ends); err != nil {
			return toll.KeyRevoked{}, err
		}
	}
	ended, err := a.finish(ctx, family{keys: []store.APIKey{key}})
	return toll.KeyRevoked{Success: true, ID: id, Status: toll.StatusRevoked, Ended: ended, Kept: &kept}, err
}

// keepByPerson is [Auth.EndKeyOnly] for a person: the keys and consents that the key made stand under the membership of the person
// from then on, without a parent. Its access tokens end, as a person has no key to carry them.
func (a *Auth) keepByPerson(ctx context.Context, c Caller, id toll.Hash) (toll.KeyRevoked, error) {
	var key store.APIKey
	given := &Ending{}
	err := a.endAlone(ctx, id, func(tx *store.Tx) (err error) {
		if key, err = a.endable(ctx, tx, c.Address, id); err != nil {
			return err
		}
		if err := a.Lock(ctx, tx, c, toll.RightKeys); err != nil {
			return err
		}
		if err := a.revoke(ctx, tx, &key); err != nil {
			return err
		}
		now := a.clock()
		if given.keys, err = store.KeysOfParent(ctx, tx, id, now); err != nil {
			return err
		}
		if given.grants, err = store.OAuthGrantsOfParent(ctx, tx, id, now); err != nil {
			return err
		}
		for _, k := range given.keys {
			if r := k.Rights.Missing(c.Rights); r != "" {
				return MissingRight(r)
			}
			if err := errors.Join(store.SetParentOfKey(ctx, tx, k.ID, toll.Hash{}), store.SetUserOfKey(ctx, tx, k.ID, c.UserID, k.Rights)); err != nil {
				return err
			}
		}
		for _, g := range given.grants {
			if r := g.Rights.Missing(c.Rights); r != "" {
				return MissingRight(r)
			}
			if err := errors.Join(store.SetParentOfOAuthGrant(ctx, tx, g.ID, toll.Hash{}), store.SetUserOfOAuthGrant(ctx, tx, g.ID, c.UserID, g.Rights)); err != nil {
				return err
			}
		}
		return a.notify(ctx, tx, toll.EventAPIKeyRevoked, key)
	})
	if err != nil {
		return toll.KeyRevoked{}, err
	}
	kept := a.Given(ctx, given)
	ended, err := a.finish(context.WithoutCancel(ctx), family{keys: []store.APIKey{key}})
	return toll.KeyRevoked{Success: true, ID: id, Status: toll.StatusRevoked, Ended: ended, Kept: &kept}, err
}

// adopt gives what a key made another parent.
func (a *Auth) adopt(ctx context.Context, tx *store.Tx, c Caller, key store.APIKey) (kept toll.Ended, err error) {
	line, err := a.line(ctx, tx, c.KeyID)
	if err != nil {
		return kept, err
	}
	above, err := a.above(ctx, tx, key)
	if err != nil {
		return kept, err
	}
	parentOf := func(id toll.Hash, rights toll.Rights, ends time.Time) (toll.Hash, error) {
		if slices.Contains(line, id) {
			if above.IsZero() {
				return above, nil
			}
			return above, a.LockKey(ctx, tx, above) // its end may already have read what it made
		}
		return c.KeyID, c.covers(rights, ends)
	}
	keys, err := store.KeysOfParent(ctx, tx, key.ID, a.clock())
	if err != nil {
		return kept, err
	}
	for _, k := range keys {
		parent, err := parentOf(k.ID, k.Rights, k.ExpiresAt)
		if err == nil {
			err = store.SetParentOfKey(ctx, tx, k.ID, parent)
		}
		if err != nil {
			return kept, err
		}
	}
	grants, err := store.OAuthGrantsOfParent(ctx, tx, key.ID, a.clock())
	if err != nil {
		return kept, err
	}
	for _, g := range grants {
		rights := g.Rights
		if g.PlanID != "" {
			rights = toll.Rights{toll.RightSpend}
		}
		parent, err := parentOf(g.ID, rights, g.EndsAt)
		if err == nil {
			err = store.SetParentOfOAuthGrant(ctx, tx, g.ID, parent)
		}
		if err != nil {
			return kept, err
		}
	}
	return toll.Ended{APIKeys: int64(len(keys)), Grants: int64(len(grants))}, nil
}

// covers returns nil when the caller's key can be the parent of what has these rights and this end.
func (c Caller) covers(rights toll.Rights, ends time.Time) error {
	if r := rights.Missing(c.Rights); r != "" {
		return MissingRight(r)
	}
	if !c.Ends.IsZero() && (ends.IsZero() || ends.After(c.Ends)) {
		return toll.Errorf(toll.CodeForbidden, "You cannot keep a key or a consent that expires later than the API key of this call.").
			WithHint("Call with an API key that expires later or never.")
	}
	return nil
}

// above returns the key that a key came of, through a consent as well; zero for none.
func (a *Auth) above(ctx context.Context, tx *store.Tx, key store.APIKey) (toll.Hash, error) {
	if key.MadeBy == toll.MadeByKey || key.Parent.IsZero() {
		return key.Parent, nil
	}
	g, err := store.OAuthGrantByID(ctx, tx, key.Parent)
	return g.Parent, store.NotFoundAs(err, nil)
}

// line returns what a key came of: its own id, its parent, and so on.
func (a *Auth) line(ctx context.Context, tx *store.Tx, id toll.Hash) (line []toll.Hash, err error) {
	for !id.IsZero() && !slices.Contains(line, id) {
		key, err := store.APIKeyByID(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		line = append(line, id, key.Parent)
		if id, err = a.above(ctx, tx, key); err != nil {
			return nil, err
		}
	}
	return line, nil
}
