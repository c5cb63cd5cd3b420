package auth

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// touchEvery is how often the last use of a key is written.
const touchEvery = time.Minute

type touch struct {
	id toll.Hash
	at time.Time
}

// noteUse hands a use over to the background. A queue that is full loses it: it is an aid for people, not a record.
func (a *Auth) noteUse(row *store.APIKey, now time.Time) {
	if now.Sub(row.LastUsedAt) < touchEvery {
		return
	}
	if _, noted := a.touched.get(row.ID, now); noted {
		return
	}
	a.touched.put(row.ID, struct{}{}, now.Add(touchEvery), now)
	select {
	case a.touches <- touch{row.ID, now}:
	default:
	}
}

func (a *Auth) noteUses() {
	defer close(a.stopped)
	for {
		select {
		case t := <-a.touches:
			a.writeUses(t)
		case <-a.stop:
			for {
				select {
				case t := <-a.touches:
					a.writeUses(t)
				default:
					return
				}
			}
		}
	}
}

// writeUses writes this use and those that wait, in one transaction.
func (a *Auth) writeUses(first touch) {
	batch := []touch{first}
	for len(batch) < 256 {
		select {
		case t := <-a.touches:
			batch = append(batch, t)
			continue
		default:
		}
		break
	}
	// Two processes that write the same keys do it in one order.
	slices.SortFunc(batch, func(x, y touch) int { return bytes.Compare(x.id[:], y.id[:]) })
	ctx, cancel := context.WithTimeout(context.Background(), a.touchTime)
	defer cancel()
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
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
		a.log.Warn("the last use of API keys was not written", "keys", len(batch), "error", err)
		for _, t := range batch {
			a.touched.drop(t.id) // the next use is noted, also within the minute
		}
	}
}
