package facilitator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// endSlice is how many access tokens of an API key are read, and ended, at a time.
const endSlice = 64

// lockMaker keeps the API key that makes a permission from being ended until the transaction ends.
func (f *Facilitator) lockMaker(ctx context.Context, tx *store.Tx, p *ledger.Permission) error {
	if p.APIKeyID == nil {
		return nil
	}
	return f.Auth.LockKey(ctx, tx, *p.APIKeyID)
}

// RevokeOfKey ends the access tokens that an API key made, and returns how many. Open holds of them still settle.
func (f *Facilitator) RevokeOfKey(ctx context.Context, key toll.Hash) (int64, error) {
	return f.eachOfKey(ctx, key, func(p *ledger.Permission) (bool, error) {
		return f.RevokeToken(ctx, p.Subscriber, p.Hash)
	})
}

// RevokeToken is [Facilitator.RevokePermission] that reports whether the permission was not over before.
func (f *Facilitator) RevokeToken(ctx context.Context, owner toll.Address, hash toll.Hash) (bool, error) {
	err := f.RevokePermission(ctx, owner, hash)
	if e, ok := errors.AsType[*toll.Error](err); ok && (e.Code == toll.CodePermissionAlreadyRevoked || e.Code == toll.CodePermissionNotFound) {
		return false, nil
	}
	return err == nil, err
}

// MoveToKey makes one key the maker of the access tokens that another one made and that end no later than until (zero: any), and
// returns of how many.
func (f *Facilitator) MoveToKey(ctx context.Context, from, to toll.Hash, until time.Time) (int64, error) {
	return f.eachOfKey(ctx, from, func(p *ledger.Permission) (bool, error) {
		if !until.IsZero() && p.ExpiresAt.After(until) {
			return false, nil
		}
		err := f.Ledger.MovePermission(ctx, *p, to)
		f.changed(p.Account(), p.Hash)
		return err == nil, err
	})
}

// eachOfKey does something with the access tokens of an API key that are not over, those of a slice at once, and returns for how
// many it was done.
func (f *Facilitator) eachOfKey(ctx context.Context, key toll.Hash, act func(*ledger.Permission) (bool, error)) (int64, error) {
	var done atomic.Int64
	for after := (toll.Hash{}); ; {
		list, err := f.Ledger.PermissionsOfKey(ctx, key, after, endSlice)
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
