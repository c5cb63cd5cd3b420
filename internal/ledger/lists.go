package ledger

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// AccountsOfPlan lists the accounts of a plan that ever had credits, by the address of their subscriber. On a sharded
// store it asks every shard.
func (l *Ledger) AccountsOfPlan(ctx context.Context, plan toll.PlanID, page store.Page) (store.List[Account], error) {
	return l.accounts(ctx, store.Listing{
		Where: "plan_id = $1 AND seq > 0", Args: []any{string(plan)}, Sorts: map[store.Sort]string{store.SortSubscriber: "subscriber"},
	}, page)
}

// AccountsHeld lists the accounts of a subscriber that ever had credits, by the id of their plan. An unpaid order does not count.
// It does not name an account, so a sharded store reads every shard.
func (l *Ledger) AccountsHeld(ctx context.Context, subscriber toll.Address, page store.Page) (store.List[Account], error) {
	return l.accounts(ctx, store.Listing{
		Where: "subscriber = $1 AND seq > 0", Args: []any{subscriber.Lower()}, Sorts: map[store.Sort]string{store.SortPlan: "plan_id"},
	}, page)
}

// accounts reads a part of a list, and ends what time has ended of the accounts in it, so that none shows credits that cannot be used.
func (l *Ledger) accounts(ctx context.Context, from store.Listing, page store.Page) (store.List[Account], error) {
	from.Table, from.Columns, from.ID = "accounts", accountColumns, "account_id"
	list, err := store.Select(ctx, l.st, from, page, into(scanAccount))
	if err != nil {
		return list, err
	}
	now, started := l.clock(), 0
	errs := make(chan error, len(list.Items))
	for i := range list.Items {
		a := &list.Items[i]
		if a.Seq == 0 || !a.Stale(now) {
			continue
		}
		started++
		go func() {
			err := l.Touch(ctx, a.ID)
			if err == nil {
				*a, err = l.Account(ctx, a.ID)
			}
			errs <- err
		}()
	}
	for range started {
		err = errors.Join(err, <-errs)
	}
	return list, err
}
