package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
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
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := store.Setting(t.Context(), tx, "nothing")
			if !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return nil
		}))
		failing("after a transaction that wrote nothing", true)
		must.Do(t, st.Probe(t.Context()))
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

// PostgreSQL says how many rows each table has.
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

// What each code of PostgreSQL means: whether the database is unavailable, whether the transaction may run again, and whether a COMMIT
// that ended with it may have been carried out.
func TestPostgresCodes(t *testing.T) {
	for _, c := range []struct {
		code                           string
		unavailable, retryable, doubts bool
	}{
		{"08000", true, true, true}, {"08001", true, true, true}, {"08003", true, true, true}, {"08004", true, true, true},
		{"08006", true, true, true}, {"08007", true, true, true}, {"08P01", true, true, true}, // connection exceptions
		{"57P01", true, true, true}, {"57P02", true, true, true}, {"57P03", true, true, true}, // the server stops or starts
		{"53100", true, true, true}, {"53200", true, true, true}, {"53300", true, true, true}, // no room, memory or connection
		{"58030", true, true, true}, {"25006", true, true, true}, // the disk fails, only reads are allowed
		{"40001", true, true, false}, {"40P01", true, true, false}, {"55P03", true, true, false}, {"25P03", true, true, false},
		{"23505", false, false, false}, {"23514", false, false, false}, {"42601", false, false, false}, {"57014", false, false, false},
		{"53400", false, false, false}, {"0800", false, false, false}, {"", false, false, false},
	} {
		err := fmt.Errorf("batch: %w", &pgconn.PgError{Code: c.code})
		commit := store.MapCommitError(err)
		if got := errors.Is(store.MapError(err), toll.NewError(toll.CodeDatabaseUnavailable)); got != c.unavailable {
			t.Errorf("%q: unavailable %v", c.code, got)
		}
		if got := store.IsRetryable(err); got != c.retryable {
			t.Errorf("%q: retryable %v", c.code, got)
		}
		if got := errors.Is(commit, store.ErrUnknownOutcome); got != c.doubts || got && store.IsRetryable(commit) {
			t.Errorf("%q: the outcome of a commit is unknown: %v", c.code, got)
		}
	}
}

// A real server that has no connection left, one that only reads, and one that ended the connection are taken for what they are: the
// transaction has not been carried out and may run again.
func TestPostgresRefusesForNow(t *testing.T) {
	st, cfg := storetest.OpenVariant(t, storetest.Postgres)
	ctx, role := t.Context(), "toll_full_"+strings.ReplaceAll(toll.NewUUID(), "-", "")
	exec := func(statement string) {
		t.Helper()
		must.Get(st.Pool().Exec(ctx, statement))(t)
	}
	exec("CREATE ROLE " + role + " LOGIN PASSWORD 'full' CONNECTION LIMIT 0")
	t.Cleanup(func() {
		if _, err := st.Pool().Exec(context.Background(), "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	means := func(what, code string, err error) {
		t.Helper()
		if store.ErrorCode(err) != code || !store.IsRetryable(err) || !errors.Is(store.MapError(err), toll.NewError(toll.CodeDatabaseUnavailable)) {
			t.Errorf("%s: code %q, retryable %v: %v", what, store.ErrorCode(err), store.IsRetryable(err), err)
		}
	}
	full := storetest.ConnConfig(t, cfg.Database)
	full.User, full.Password = role, "full"
	_, err := pgx.ConnectConfig(ctx, full)
	means("no connection left", "53300", err)

	conn := must.Get(pgx.ConnectConfig(ctx, storetest.ConnConfig(t, cfg.Database)))(t)
	defer conn.Close(context.Background())
	must.Get(conn.Exec(ctx, "SET default_transaction_read_only = on"))(t)
	_, err = conn.Exec(ctx, "DELETE FROM settings WHERE name = 'nothing'")
	means("only reads", "25006", err)
	exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", conn.PgConn().PID()))
	_, err = conn.Exec(ctx, "SELECT 1")
	means("an ended connection", "57P01", err)
}
