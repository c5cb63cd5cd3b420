package store_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// What is watched of the mirror of burns and of audits: nothing at first, then the oldest period that is not final, and the
// outcome of the last audit.
func TestWatch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		watch := func() store.Watched {
			t.Helper()
			w, err := st.Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		if w := watch(); w.Mirror != 0 || !w.MirrorEnd.IsZero() || !w.Audit.At.IsZero() {
			t.Errorf("%+v", w)
		}
		at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
		end := at.Add(time.Hour)
		number := at.UnixMicro() / time.Hour.Microseconds()
		write(t, st, func(tx *store.Tx) error {
			ctx := t.Context()
			if _, err := store.PutSettingIfAbsent(ctx, tx, store.SettingMirrorPeriod, []byte("1h0m0s")); err != nil {
				return err
			}
			for n, state := range []string{"final", "closed", "closed"} {
				p := &store.MirrorPeriod{Period: number + int64(n) - 1, Credits: "0", State: state}
				if err := store.InsertMirrorPeriod(ctx, tx, p, nil, nil); err != nil {
					return err
				}
			}
			return store.NoteAudit(ctx, tx, store.LastAudit{At: end, Findings: 2})
		})
		if w := watch(); w.Mirror != 2 || !w.MirrorEnd.Equal(end) || !w.Audit.At.Equal(end) || w.Audit.Findings != 2 {
			t.Errorf("%+v", w)
		}
	})
}
