package tokens

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
)

// endSlice is how many access tokens of an API key are read, and ended, at a time.
const endSlice = 64

// RevokeOfKey revokes the access tokens that an API key created, and returns how many. Their open holds still settle.
func (t *Tokens) RevokeOfKey(ctx context.Context, key toll.Hash) (int64, error) {
	return t.eachOfKey(ctx, key, func(p *ledger.Permission) (bool, error) { return t.RevokeToken(ctx, p.Subscriber, p.Hash) })
}

// RevokeToken is [Tokens.Revoke] that reports whether the permission was still valid.
func (t *Tokens) RevokeToken(ctx context.Context, owner toll.Address, hash toll.Hash) (bool, error) {
	err := t.Revoke(ctx, owner, hash)
	if e, ok := errors.AsType[*toll.Error](err); ok && (e.Code == toll.CodePermissionAlreadyRevoked || e.Code == toll.CodePermissionNotFound) {
		return false, nil
	}
	return err == nil, err
}

// MoveToKey moves access tokens from one API key to another, those that expire no later than until (zero: all), and returns how many.
func (t *Tokens) MoveToKey(ctx context.Context, from, to toll.Hash, until time.Time) (int64, error) {
	return t.eachOfKey(ctx, from, func(p *ledger.Permission) (bool, error) {
		if !until.IsZero() && p.ExpiresAt.After(until) {
			return false, nil
		}
		err := t.Ledger.MovePermission(ctx, *p, to)
		t.Snapshots.Forget(Key{p.Account(), p.Hash})
		return err == nil, err
	})
}

// eachOfKey calls act for the valid access tokens of an API key, those of a slice at once, and returns for how many it succeeded.
func (t *Tokens) eachOfKey(ctx context.Context, key toll.Hash, act func(*ledger.Permission) (bool, error)) (int64, error) {
	var done atomic.Int64
	for after := (toll.Hash{}); ; {
		list, err := t.Ledger.PermissionsOfKey(ctx, key, after, endSlice)
		if err != nil {
			return done.Load(), err
		}
		var slice sync.WaitGroup
		errs := make([]error, len(list))
		for i := range list {
			slice.Go(func() {
				var was bool
				if was, errs[i] = act(&list[i]); was {
					done.Add(1)
				}
			})
		}
		slice.Wait()
		if err := errors.Join(errs...); err != nil || len(list) < endSlice {
			return done.Load(), err
		}
		after = list[len(list)-1].Hash
	}
}
