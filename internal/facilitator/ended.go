package facilitator

import (
	"context"
	"errors"
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
	return f.auth.LockKey(ctx, tx, *p.APIKeyID)
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
		err := f.ledger.MovePermission(ctx, *p, to)
		f.changed(p.Account(), p.Hash)
		return err == nil, err
	})
}

// eachOfKey does something with the access tokens of an API key that are not over, those of a slice at once, and returns for how
// many it was done.
func (f *Facilitator) eachOfKey(ctx context.Context, key toll.Hash, act func(*ledger.Permission) (bool, error)) (n int64, err error) {
	type outcome struct {
		done bool
		err  error
	}
	for after := (toll.Hash{}); ; {
		list, err := f.ledger.PermissionsOfKey(ctx, key, after, endSlice)
		if err != nil {
			return n, err
		}
		outcomes := make(chan outcome, len(list))
		for i := range list {
			go func() {
				done, err := act(&list[i])
				outcomes <- outcome{done, err}
			}()
		}
		for range list {
			o := <-outcomes
			if o.done {
				n++
			}
			err = errors.Join(err, o.err)
		}
		if err != nil || len(list) < endSlice {
			return n, err
		}
		after = list[len(list)-1].Hash
	}
}
