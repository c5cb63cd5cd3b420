package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestBrowserSessions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		now := time.Unix(1_795_226_400, 0)
		do := func(f func(tx *store.Tx) error) {
			t.Helper()
			must.Do(t, st.Tx(ctx, f))
		}
		read := func(token string) (store.BrowserSession, error) { return store.BrowserSessionByToken(ctx, st, token) }
		first := store.BrowserSession{Token: "a", Data: []byte{1, 0, 2}, ExpiresAt: now.Add(time.Hour)}
		do(func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, first, now) })
		if s, err := read("a"); err != nil || string(s.Data) != "\x01\x00\x02" || !s.ExpiresAt.Equal(now.Add(time.Hour)) {
			t.Errorf("%+v, %v", s, err)
		}
		changed := store.BrowserSession{Token: "a", Data: []byte{3}, ExpiresAt: now.Add(2 * time.Hour)}
		do(func(tx *store.Tx) error { return store.UpdateBrowserSession(ctx, tx, changed) })
		if s, err := read("a"); err != nil || string(s.Data) != "\x03" || !s.ExpiresAt.Equal(now.Add(2*time.Hour)) {
			t.Errorf("%+v, %v", s, err)
		}
		do(func(tx *store.Tx) error { return store.DeleteBrowserSession(ctx, tx, "a") })
		// A request that was under way does not bring it back.
		do(func(tx *store.Tx) error { return store.UpdateBrowserSession(ctx, tx, changed) })
		do(func(tx *store.Tx) error { return store.DeleteBrowserSession(ctx, tx, "a") })
		if _, err := read("a"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
		do(func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, first, now) })
		later := store.BrowserSession{Token: "b", ExpiresAt: now.Add(3 * time.Hour)}
		do(func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, later, first.ExpiresAt) })
		if _, err := read("a"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("one that ended is still there: %v", err)
		}
	})
}

func TestForms(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := context.Background()
		now := time.Unix(1_795_226_400, 0)
		claim := func(form string, at time.Time) (mine bool) {
			t.Helper()
			err := st.Tx(ctx, func(tx *store.Tx) (err error) {
				mine, err = store.ClaimForm(ctx, tx, []byte(form), at, at.Add(time.Hour))
				return err
			})
			must.Check(t, err)
			return mine
		}
		put := func(form, answer string) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.PutFormAnswer(ctx, tx, []byte(form), []byte(answer)) })
		}
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if claim("one", now) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d answer one form", won.Load())
		}
		if b, err := store.FormAnswer(ctx, st, []byte("one")); err != nil || len(b) != 0 {
			t.Errorf("%q, %v", b, err)
		}
		must.Do(t, put("one", "there"))
		if b, err := store.FormAnswer(ctx, st, []byte("one")); err != nil || string(b) != "there" {
			t.Errorf("%q, %v", b, err)
		}
		if err := put("two", "there"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an answer to no form: %v", err)
		}
		if _, err := store.FormAnswer(ctx, st, []byte("two")); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		if claim("one", now.Add(time.Hour-time.Second)) || !claim("one", now.Add(time.Hour)) {
			t.Error("a form is kept for an hour")
		}
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.ReleaseForm(ctx, tx, []byte("one")) }); err != nil || !claim("one", now) {
			t.Errorf("a form that was released: %v", err)
		}
	})
}

// TestMemberSessionList_Index: the sessions of a member are found without a look at the uses of all sessions.
func TestMemberSessionList_Index(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	rows, err := st.Query(t.Context(), "EXPLAIN QUERY PLAN SELECT 1 FROM browser_sessions WHERE "+store.MemberSessions, []byte{1}, int64(0), int64(0), "0x")
	must.Do(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int64
		var step string
		must.Do(t, rows.Scan(&id, &parent, &unused, &step))
		if strings.HasPrefix(step, "SCAN") {
			t.Error(step)
		}
	}
	must.Do(t, rows.Err())
}
