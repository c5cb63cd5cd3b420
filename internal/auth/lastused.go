package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// touchEvery is how often the last use of a key is written.
	touchEvery = time.Minute
	// touchTime bounds a writing of last uses.
	touchTime = 10 * time.Second
)

type touch struct {
	id toll.Hash
	at time.Time
}

// noteUse hands a use over to the background. A queue that is full loses it: it is an aid for people, not a record.
func (a *Auth) noteUse(row *store.APIKey, now time.Time) {
	if now.Sub(row.LastUsedAt) < touchEvery {
		return
	}
	if _, noted := a.touched.Get(row.ID, now); noted {
		return
	}
	a.touched.Put(row.ID, struct{}{}, now.Add(touchEvery), now)
	select {
	case a.touches <- touch{row.ID, now}:
		a.noted.Fire()
	default:
	}
}

// Loop returns what writes the last uses of API keys. Those that wait when it stops are written.
func (a *Auth) Loop() jobs.Loop {
	return jobs.Loop{
		Name: "auth.uses", Wake: a.noted, Run: a.writeUses,
		End: func(ctx context.Context) error {
			for next := jobs.AtOnce; next > 0; {
				var err error
				if next, err = a.writeUses(ctx); err != nil {
					a.log.WarnContext(ctx, "cannot save the last uses of API keys at shutdown", "error", err.Error()) // the shutdown continues
				}
			}
			return nil
		},
	}
}

// writeUses writes the uses that wait, at most 256 in one transaction.
func (a *Auth) writeUses(ctx context.Context) (next time.Duration, err error) {
	var batch []touch
	for wait := true; wait && len(batch) < 256; {
		select {
		case t := <-a.touches:
			batch = append(batch, t)
		default:
			wait = false
		}
	}
	if len(batch) == 0 {
		return 0, nil
	}
	// Two processes that write the same keys do it in one order.
	slices.SortFunc(batch, func(x, y touch) int { return bytes.Compare(x.id[:], y.id[:]) })
	// What was taken from the queue is written, also when the service stops meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), touchTime)
	defer cancel()
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		for _, t := range batch {
			row, err := store.APIKeyByID(ctx, tx, t.id)
			if err == nil && t.at.Sub(row.LastUsedAt) >= touchEvery { // else another process was first
				err = store.TouchAPIKey(ctx, tx, t.id, t.at)
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		for _, t := range batch {
			a.touched.Drop(t.id) // the next use is noted, also within the minute
		}
		return 0, fmt.Errorf("cannot save the last use of %d API keys: %w", len(batch), err)
	}
	return jobs.AtOnce, nil
}
