package mirror

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A publisher whose lease another process has taken over writes nothing.
func TestFence(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx, now := t.Context(), time.Now()
		clock := func() time.Time { return now }
		one, two := jobs.NewLease(st, clock, "mirror"), jobs.NewLease(st, clock, "mirror")
		must.Do(t, st.Tx(ctx, func(tx *store.Tx) error {
			return store.InsertMirrorPeriod(ctx, tx, &store.MirrorPeriod{Period: 1, Credits: "0", State: IsClosed}, nil, nil)
		}))
		sent := func(l *jobs.Lease, nonce int64) error {
			p := &Publisher{cfg: Config{Store: st, Lease: l}}
			return p.update(ctx, &store.MirrorPeriod{Period: 1, State: IsSent, Nonce: nonce})
		}
		must.Do(t, errors.Join(one.Take(ctx), sent(one, 1)))
		now = now.Add(time.Minute)
		must.Do(t, two.Take(ctx))
		if err := sent(one, 2); !errors.Is(err, store.ErrLeased) {
			t.Errorf("the former holder writes: %v", err)
		}
		open, err := store.OpenMirrorPeriods(ctx, st, 2)
		if err != nil || len(open) != 1 || open[0].Nonce != 1 {
			t.Errorf("periods: %+v, %v", open, err)
		}
	})
}
