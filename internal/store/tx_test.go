package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func put(ctx context.Context, tx *store.Tx, name, value string) error {
	return store.PutSetting(ctx, tx, name, []byte(value))
}

func setting(t *testing.T, q store.Querier, name string) string {
	t.Helper()
	v, err := store.Setting(t.Context(), q, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return string(v)
}

func TestTx(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		no := errors.New("no")
		err := st.Tx(ctx, func(tx *store.Tx) error {
			if err := put(ctx, tx, "a", "1"); err != nil {
				return err
			}
			if inside, outside := setting(t, tx, "a"), setting(t, st, "a"); inside != "1" || outside != "" {
				t.Errorf("inside %q, outside %q", inside, outside)
			}
			return no
		})
		if err != no { // the very error of the caller
			t.Errorf("got %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_ = st.Tx(ctx, func(tx *store.Tx) error {
				must.Check(t, put(ctx, tx, "a", "2"))
				panic("no")
			})
		}()
		if got := setting(t, st, "a"); got != "" {
			t.Errorf("rolled back, and there: %q", got)
		}
		write(t, st, func(tx *store.Tx) error { return put(ctx, tx, "a", "3") })
		if got := setting(t, st, "a"); got != "3" {
			t.Errorf("committed: %q", got)
		}
		write(t, st, func(tx *store.Tx) error {
			n, err := tx.Exec(ctx, "UPDATE settings SET value = value WHERE name = $2 OR name = $1", "a", "b")
			if n != 1 {
				t.Errorf("%d rows affected", n)
			}
			if tx.Engine() != st.Engine() {
				t.Errorf("engine %s", tx.Engine())
			}
			return err
		})
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := st.Tx(over, func(tx *store.Tx) error { return put(ctx, tx, "a", "4") }); !errors.Is(err, context.Canceled) || store.IsRetryable(err) {
			t.Errorf("after the caller left: %v", err)
		}
		late, leave := context.WithCancel(ctx)
		if err := st.Tx(late, func(tx *store.Tx) error { defer leave(); return put(late, tx, "a", "6") }); err != nil || setting(t, st, "a") != "6" {
			t.Errorf("the caller left before the commit: %v, %q is there", err, setting(t, st, "a"))
		}
		if err := st.Tx(ctx, func(tx *store.Tx) error { _, err := tx.Exec(ctx, "SELEKT"); return err }); err == nil || store.IsRetryable(err) {
			t.Errorf("nonsense: %v", err)
		}
		write(t, st, func(tx *store.Tx) error { return put(ctx, tx, "a", "5") })
	})
}

// Values of every kind survive, on both engines.
func TestValues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		rows, err := st.Query(t.Context(), `SELECT CAST($2 AS BIGINT), CAST($1 AS TEXT), '$3', CAST($3 AS BOOLEAN) AND TRUE, CAST(NULL AS TEXT), CAST($1 AS TEXT)
			UNION ALL SELECT 2, 'x', '', FALSE, 'y', 'z'`, "ä\"'$1?", int64(-1<<63), true)
		must.Do(t, err)
		defer rows.Close()
		var got []any
		for rows.Next() {
			var n int64
			var s, quoted, again string
			var b bool
			var null *string
			must.Do(t, rows.Scan(&n, &s, &quoted, &b, &null, &again))
			got = append(got, n, s, quoted, b, null == nil, again)
		}
		must.Do(t, rows.Err())
		same(t, got, []any{int64(-1 << 63), "ä\"'$1?", "$3", true, true, "ä\"'$1?", int64(2), "x", "", false, false, "z"})
	})
}

// Text that one engine cannot store, neither does the other.
func TestBadText(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		for _, text := range []string{"a\x00b", "a\xff"} {
			err := st.Tx(t.Context(), func(tx *store.Tx) error { return put(t.Context(), tx, text, "") })
			_, readErr := store.Setting(t.Context(), st, text)
			for _, err := range []error{err, readErr} {
				if !errors.Is(err, toll.NewError(toll.CodeBadRequest)) || store.IsRetryable(err) {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	})
}

func TestPositional(t *testing.T) {
	for _, c := range []struct {
		q    string
		args []any
		text string
		want []any
	}{
		{"a $1 b $2", []any{1, 2}, "a ? b ?", []any{1, 2}},
		{"$2 $1 $2", []any{1, 2}, "? ? ?", []any{2, 1, 2}},
		{"$1 '$2 it''s $1' $2", []any{1, 2}, "? '$2 it''s $1' ?", []any{1, 2}},
		{"$12 $1", []any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "? ?", []any{12, 1}},
		{"$ $x $0", nil, "$ $x $0", nil},
	} {
		text, args, err := store.ParsePositional(c.q, c.args...)
		if err != nil || text != c.text || !reflect.DeepEqual(args, c.want) {
			t.Errorf("%s: %s %v, want %s %v", c.q, text, args, c.text, c.want)
		}
	}
}

// Callers that lock two rows in opposite order all get through: SQLite lets one write at a time, PostgreSQL finds the
// deadlock and the loser runs again.
func TestDeadlock(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		write(t, st, func(tx *store.Tx) error { return errors.Join(put(ctx, tx, "a", ""), put(ctx, tx, "b", "")) })
		// All have their first row before any asks for its second, when there are transactions side by side at all.
		var first sync.WaitGroup
		side := 1
		if st.Engine() == store.Postgres {
			side = 2
		}
		first.Add(side)
		var runs atomic.Int64
		var wg sync.WaitGroup
		for i, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			wg.Go(func() {
				met := false
				err := st.Tx(ctx, func(tx *store.Tx) error {
					runs.Add(1)
					if err := put(ctx, tx, order[0], fmt.Sprint(i)); err != nil {
						return err
					}
					if !met && side == 2 {
						met = true
						first.Done()
						first.Wait()
					}
					return put(ctx, tx, order[1], fmt.Sprint(i))
				})
				must.Check(t, err)
			})
		}
		wg.Wait()
		if a, b := setting(t, st, "a"), setting(t, st, "b"); a != b {
			t.Errorf("halves of two transactions: %s and %s", a, b)
		}
		if side == 2 && runs.Load() < 3 {
			t.Errorf("%d runs of two transactions that deadlock once", runs.Load())
		}
	})
}

// A connection that breaks before the commit is replaced, and the transaction is retried.
func TestLostConnection(t *testing.T) {
	st, cfg := storetest.Open(t, store.Postgres)
	ctx := t.Context()
	runs := 0
	write(t, st, func(tx *store.Tx) error {
		runs++
		if err := put(ctx, tx, "run", fmt.Sprint(runs)); err != nil {
			return err
		}
		if runs == 1 {
			var pid int64
			if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			storetest.Exec(t, cfg.Database, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
		}
		return put(ctx, tx, "end", "")
	})
	if runs != 2 || setting(t, st, "run") != "2" {
		t.Errorf("%d runs, %q is there", runs, setting(t, st, "run"))
	}
}

// A process that stood still for so long that the server ended its transaction runs it again: it is certainly not committed.
func TestStoodStill(t *testing.T) {
	st, _ := storetest.Open(t, store.Postgres)
	ctx := t.Context()
	// ended waits until the server has cut off who does nothing in a transaction.
	ended := func(pid int64) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			var n int64
			must.Do(t, st.QueryRow(ctx, "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n))
			if n == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the server waits on")
			}
		}
	}
	const impatient = "SET LOCAL idle_in_transaction_session_timeout = 1"
	for _, last := range []bool{false, true} {
		runs := 0
		write(t, st, func(tx *store.Tx) error {
			runs++
			if err := put(ctx, tx, "run", fmt.Sprint(last, runs)); err != nil {
				return err
			}
			if runs == 1 {
				var pid int64
				if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, impatient); err != nil {
					return err
				}
				ended(pid)
			}
			if last { // the next statement is the commit
				return nil
			}
			return put(ctx, tx, "end", "")
		})
		if runs != 2 || setting(t, st, "run") != fmt.Sprint(last, 2) {
			t.Errorf("%d runs, %q is there", runs, setting(t, st, "run"))
		}
	}

	p := st.NewPipe()
	defer p.Close()
	var pid int64
	if err := p.Run(ctx, store.Stmt{SQL: "begin"}, store.Stmt{SQL: "SELECT pg_backend_pid()", Row: func(scan func(...any) error) error { return scan(&pid) }},
		store.Stmt{SQL: impatient}); err != nil {
		t.Fatal(err)
	}
	ended(pid)
	err := store.MapCommitError(p.Run(ctx, store.Stmt{SQL: "commit"}))
	if !store.IsRetryable(err) || !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) {
		t.Errorf("the ledger is not told to try again: %v", err)
	}
	p.Reset()
	must.Check(t, p.Run(ctx, store.Stmt{SQL: "SELECT 1"}), "after it")
}

// When the connection breaks in the commit, the caller learns that nobody knows.
func TestLostCommit(t *testing.T) {
	st, cfg := storetest.Open(t, store.Postgres)
	ctx := t.Context()
	runs := 0
	err := st.Tx(ctx, func(tx *store.Tx) error {
		runs++
		var pid int64
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		if err := put(ctx, tx, "a", "1"); err != nil {
			return err
		}
		storetest.Exec(t, cfg.Database, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
		return nil
	})
	if !errors.Is(err, store.ErrUnknownOutcome) || store.IsRetryable(err) || !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || runs != 1 {
		t.Errorf("after %d runs: %v", runs, err)
	}
}

func TestIsUnique(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		insert := func(address, name string) error {
			return st.Tx(ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO principals (address, name, sealed_key, created_at) VALUES ($1, $2, $3, 0)", address, name, []byte{})
				return err
			})
		}
		must.Do(t, insert("1", "a"))
		for _, err := range []error{insert("1", "b"), insert("2", "a")} {
			if !store.IsUnique(err) || store.IsRetryable(err) {
				t.Errorf("taken: %v", err)
			}
		}
		check := st.Tx(ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO plan_orders (plan_id, orders) VALUES ('1', -1)")
			return err
		})
		if check == nil || store.IsUnique(check) || store.IsRetryable(check) {
			t.Errorf("a check: %v", check)
		}
	})
	if store.IsUnique(nil) || store.IsUnique(io.EOF) {
		t.Error("unique without a database")
	}
}

func TestIsRetryable(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("batch: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {errors.New("no"), false}, {store.ErrNotFound, false}, {context.Canceled, false}, {context.DeadlineExceeded, false},
		{pg("40001"), true}, {pg("40P01"), true}, {pg("55P03"), true}, {pg("57P01"), true}, {pg("57P03"), true}, {pg("08006"), true},
		{pg("53300"), true}, {pg("25006"), true}, {pg("25P03"), true}, {pg("23505"), false}, {pg("23514"), false}, {pg("42601"), false}, {pg("57014"), false},
		{io.ErrUnexpectedEOF, true}, {store.MapError(pg("40P01")), true}, {store.MapCommitError(io.EOF), false},
		{store.MapCommitError(pg("57P01")), false}, {store.MapCommitError(pg("40001")), true}, {store.MapCommitError(pg("25P03")), true},
	} {
		if got := store.IsRetryable(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if errors.Is(store.MapCommitError(pg("40001")), store.ErrUnknownOutcome) || errors.Is(store.MapCommitError(pg("23514")), store.ErrUnknownOutcome) {
		t.Error("the server said that it rolled back")
	}
	if !errors.Is(store.MapCommitError(context.DeadlineExceeded), store.ErrUnknownOutcome) {
		t.Error("nobody waited for the answer")
	}
	if !errors.Is(store.MapError(pgx.ErrNoRows), store.ErrNotFound) {
		t.Error("no rows")
	}
}

// The file that somebody else keeps locked.
func TestSQLiteBusy(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	other := must.Get(sql.Open("sqlite", "file:"+filepath.Join(cfg.Data, "toll.db")+"?_pragma=busy_timeout(0)"))(t)
	defer other.Close()
	write(t, st, func(*store.Tx) error {
		_, err := other.ExecContext(t.Context(), "INSERT INTO settings (name, value) VALUES ('a', x'')")
		if !store.IsRetryable(err) || store.IsUnique(err) || !errors.Is(store.MapError(err), toll.NewError(toll.CodeDatabaseUnavailable)) {
			t.Errorf("busy: %v", err)
		}
		return nil
	})
}

// Readers do not wait for the writer, nor for each other.
func TestReadersBesideWriter(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		write(t, st, func(tx *store.Tx) error { return put(ctx, tx, "a", "old") })
		write(t, st, func(tx *store.Tx) error {
			if err := put(ctx, tx, "a", "new"); err != nil {
				return err
			}
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for range 50 {
						if v, err := store.Setting(ctx, st, "a"); err != nil || string(v) != "old" {
							t.Errorf("%q, %v", v, err)
							return
						}
					}
				})
			}
			wg.Wait()
			return nil
		})
	})
}
