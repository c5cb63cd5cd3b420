package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// What is known of the last write changes with writes and with failures of the database, and with
// nothing else.
func TestWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		full := &pgconn.PgError{Code: "53100"}
		failing := func(what string, want bool) {
			t.Helper()
			if _, failure := st.Writes(); (failure != nil) != want {
				t.Errorf("%s: %v", what, failure)
			}
		}
		failing("at the start", false)
		for _, harmless := range []error{
			toll.NewError(toll.CodeForbidden), store.ErrNotFound, errors.New("any"),
			context.Canceled, context.DeadlineExceeded,
		} {
			st.Wrote(harmless)
			failing(harmless.Error(), false)
		}
		st.Wrote(full)
		failing("a full disk", true)
		if _, failure := st.Writes(); store.ErrorCode(failure) != "53100" {
			t.Errorf("code %q", store.ErrorCode(failure))
		}
		before, _ := st.Writes()
		err := st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := store.Setting(t.Context(), tx, "nothing")
			if !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		failing("after a transaction that wrote nothing", true)
		if err := st.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		failing("after a probe", false)
		write(t, st, func(tx *store.Tx) error { return put(t.Context(), tx, "a", "b") })
		if after, _ := st.Writes(); after != before+2 {
			t.Errorf("%d writes were counted, not 2", after-before)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = st.Probe(ctx)
		failing("a probe that was cancelled", false)
	})
}

// A database without room or with a broken disk is unavailable, and what it refused may succeed
// later.
func TestTableRows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		rows, err := st.TableRows(t.Context())
		if err != nil || st.Engine() == store.SQLite && rows != nil {
			t.Fatalf("%v %v", rows, err)
		}
		seen := map[string]bool{}
		for _, r := range rows {
			if seen[r.Table] || r.Live < 0 || r.Dead < 0 {
				t.Errorf("%+v", r)
			}
			seen[r.Table] = true
		}
		if st.Engine() == store.Postgres && (!seen["accounts"] || !seen["requests"] || len(seen) < 20) {
			t.Errorf("%v", rows)
		}
	})
}

func TestFullDiskIsUnavailable(t *testing.T) {
	for _, code := range []string{"53100", "53200", "53300", "58030"} {
		err := &pgconn.PgError{Code: code}
		unavailable := errors.Is(store.MapError(err), toll.NewError(toll.CodeDatabaseUnavailable))
		if !store.IsRetryable(err) || !unavailable {
			t.Errorf("%s is not taken for an unavailable database", code)
		}
	}
}
