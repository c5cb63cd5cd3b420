package card

import (
	"cmp"
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxTries is how many enrolments, and cards declined in them, an owner and a source may make
	// in triesTime (T84), unless the configuration has another number.
	maxTries = 5
	// failuresPerTry times as many charges by delegations of an owner may fail in triesTime. The owner
	// can unfreeze delegations and make others, so their own bound of declines in a row is not enough.
	failuresPerTry = 4
	triesTime      = 10 * time.Minute
	// triesRetry is what Retry-After of a refused enrolment says, in seconds: all tries have ended
	// by then.
	triesRetry = int(triesTime / time.Second)
)

// tries is [Config.Tries].
func (r *Rail) tries() int64 { return cmp.Or(r.cfg.Tries, maxTries) }

// admit stores an enrolment, and refuses it when its owner or its source has made too many.
//
// It counts after the row is committed, so of those that run at the same time in several processes
// at most [Config.Tries] see a count that admits them. Refused enrolments are removed again, and do not
// count. Stripe is asked only about cards that were declined in enrolments that are still open.
// Errors: [toll.CodeRateLimited], [*answer], those of the database.
func (r *Rail) admit(ctx context.Context, s *store.CardSetup) error {
	err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.InsertCardSetup(ctx, tx, s) })
	if err != nil {
		return err
	}
	since := s.CreatedAt.Add(-triesTime)
	if err = r.checkTries(ctx, s, since); err == nil {
		if err = r.readOpenSetups(ctx, s, since); err == nil {
			err = r.checkTries(ctx, s, since)
		}
	}
	if err == nil {
		return nil
	}
	// The caller may be gone, and the row must not count.
	ctx = context.WithoutCancel(ctx)
	if dropped := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.DropCardSetup(ctx, tx, s.ID) }); dropped != nil {
		return dropped
	}
	return err
}

func (r *Rail) checkTries(ctx context.Context, s *store.CardSetup, since time.Time) error {
	own, same, err := store.CardTries(ctx, r.cfg.Store, s.Owner, s.Source, since)
	if err != nil || max(own, same) <= r.tries() {
		return err
	}
	e := toll.Errorf(toll.CodeRateLimited, "Too many cards were tried. At most %d can be tried in 10 minutes, so wait 10 minutes at most.", r.tries())
	e.RetryAfterSecs = triesRetry
	return e
}

// readOpenSetups reads how many cards were declined in the other enrolments that count.
func (r *Rail) readOpenSetups(ctx context.Context, s *store.CardSetup, since time.Time) error {
	open, err := store.CardSetupsOpen(ctx, r.cfg.Store, setupOpen, s.Owner, s.Source, since, 2*r.tries())
	if err != nil {
		return err
	}
	for _, o := range open {
		if err := r.readSetup(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// admitCharge refuses a charge by a delegation when too many of its owner have failed. Orders that run
// at the same time are counted once they have failed. Errors: [toll.CodeCardDeclined], those of the
// database.
func (r *Rail) admitCharge(ctx context.Context, payer toll.Address) error {
	most := failuresPerTry * r.tries()
	failed, err := store.CardChargesFailed(ctx, r.cfg.Store, payer, r.now().Add(-triesTime), most)
	if err != nil || failed < most {
		return err
	}
	return toll.NewError(toll.CodeCardDeclined).WithDetails(
		"%d charges of your cards failed in 10 minutes, so no more is tried. Wait 10 minutes at most.", most)
}
