package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	sweepEvery = 5 * time.Second
	sweepSlice = 500

	retainEvery   = 10 * time.Second
	retainShare   = time.Second
	retainStreams = 100
	retainSlice   = 1000 // events that one transaction removes
	// expiryLag keeps the watermark behind delegations that another process is just creating.
	expiryLag = 2 * time.Second
	// settingExpired holds the time up to which delegations that ended have their event.
	settingExpired = "events_delegations_expired"
)

// forget removes a slice of the deliveries that are long done.
func (e *Events) forget(ctx context.Context) (more bool, err error) {
	var n int64
	err = e.st.Tx(ctx, func(tx *store.Tx) (err error) {
		n, err = store.ForgetDeliveries(ctx, tx, e.clock().Add(-deliveryLife), sweepSlice)
		return err
	})
	return n == sweepSlice, err
}

// retain removes events that are past the horizon. It goes round and round all streams, at most 100 in a turn and for at most a
// second; a stream of which much is to go takes several turns.
func (e *Events) retain(ctx context.Context) error {
	if e.cfg.Horizon == 0 {
		return nil
	}
	before := e.clock().Add(-e.cfg.Horizon)
	principals, err := store.StreamsAfter(ctx, e.st, e.retained, retainStreams)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, p := range principals {
		principal, err := toll.ParseAddress(p)
		if err != nil {
			return err
		}
		for n := int64(retainSlice); n == retainSlice; {
			if time.Since(began) > retainShare {
				return nil
			}
			if n, err = store.ForgetEvents(ctx, e.st, principal, before, retainSlice); err != nil {
				return err
			}
			e.at("retained")
			if e.cfg.Removed != nil {
				e.cfg.Removed(int(n))
			}
		}
		e.retained = p
	}
	if len(principals) < retainStreams {
		e.retained = ""
	}
	return nil
}

// expire makes the events of delegations that ended since it last looked, in one transaction with the mark up to which it
// looked, which only one process moves at a time.
func (e *Events) expire(ctx context.Context) error {
	if e.cfg.Delegation == nil {
		return nil
	}
	return e.st.Tx(ctx, func(tx *store.Tx) error {
		until := e.now().Add(-expiryLag)
		text, err := store.LockSetting(ctx, tx, settingExpired)
		if errors.Is(err, store.ErrNotFound) {
			return store.PutSetting(ctx, tx, settingExpired, []byte(strconv.FormatInt(until.UnixMicro(), 10)))
		}
		if err != nil {
			return err
		}
		from, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || until.UnixMicro() <= from {
			return err
		}
		ended, err := store.ExpiredDelegations(ctx, tx, time.UnixMicro(from).UTC(), until, sweepSlice)
		if err != nil {
			return err
		}
		if len(ended) == sweepSlice {
			until = ended[len(ended)-1].ExpiresAt.Add(-time.Microsecond) // others may end at the same moment
			if ended[0].ExpiresAt.After(until) {
				until = ended[0].ExpiresAt
				if ended, err = store.ExpiredDelegations(ctx, tx, time.UnixMicro(from).UTC(), until, 1<<30); err != nil {
					return err
				}
			}
			for ended[len(ended)-1].ExpiresAt.After(until) {
				ended = ended[:len(ended)-1]
			}
		}
		var events []store.NewEvent
		for _, d := range ended {
			events = append(events, store.NewEvent{
				Principal: d.Owner, Type: toll.EventDelegationExpired, Kind: "delegation", ID: d.ID, Data: e.cfg.Delegation(d), At: d.ExpiresAt,
			})
		}
		if err := store.PutSetting(ctx, tx, settingExpired, []byte(strconv.FormatInt(until.UnixMicro(), 10))); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, events...)
	})
}
