package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Values come back as they were stored, in a transaction of each engine and outside of one. A statement is used again with values
// of other sizes.
func TestBoundValues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		const insert = "INSERT INTO settings (name, value) VALUES ($1, $2)"
		values := [][]byte{{}, {0}, []byte("a"), bytes.Repeat([]byte("ab\x00"), 100), bytes.Repeat([]byte{7}, 200_000), []byte("small")}
		write(t, st, func(tx *store.Tx) error {
			for i, v := range values {
				if n, err := tx.Exec(ctx, insert, "k"+strings.Repeat("ü", i), v); err != nil || n != 1 {
					t.Fatalf("%d rows, %v", n, err)
				}
			}
			return nil
		})
		check := func(q store.Querier) {
			t.Helper()
			for i, want := range values {
				var name string
				var got []byte
				err := q.QueryRow(ctx, "SELECT name, value FROM settings WHERE name = $1", "k"+strings.Repeat("ü", i)).Scan(&name, &got)
				if err != nil || name != "k"+strings.Repeat("ü", i) || !bytes.Equal(got, want) {
					t.Errorf("%d: %q, %d bytes, %v", i, name, len(got), err)
				}
			}
		}
		check(st)
		write(t, st, func(tx *store.Tx) error { check(tx); return nil })
	})
}

type word string

// What the writer of SQLite reads and binds is what database/sql reads and binds.
func TestWriterScansLikeReaders(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	for _, column := range []string{"1", "0", "-5", "1.5", "'text'", "''", "'12'", "x'0102'", "x''", "NULL"} {
		for name, dest := range map[string]func() any{
			"int64": func() any { return new(int64) }, "int": func() any { return new(int) }, "string": func() any { return new(string) },
			"word": func() any { return new(word) }, "bytes": func() any { return new([]byte) }, "bool": func() any { return new(bool) },
			"*int64": func() any { return new(*int64) }, "*string": func() any { return new(*string) }, "*bool": func() any { return new(*bool) },
			"any": func() any { return new(any) }, "null": func() any { return new(sql.NullInt64) },
		} {
			read, written := dest(), dest()
			readErr := st.QueryRow(t.Context(), "SELECT "+column).Scan(read)
			var writeErr error
			write(t, st, func(tx *store.Tx) error {
				writeErr = tx.QueryRow(t.Context(), "SELECT "+column).Scan(written)
				return nil
			})
			if column == "1.5" && name != "any" { // the program stores no floats
				continue
			}
			if (readErr == nil) != (writeErr == nil) {
				t.Errorf("%s into %s: %v, of the writer %v", column, name, readErr, writeErr)
			} else if readErr == nil {
				t.Run(column+" "+name, func(t *testing.T) { same(t, written, read) })
			}
		}
	}
	number := int64(7)
	for _, arg := range []any{int64(3), 3, true, false, "x", word("y"), []byte{1}, []byte(nil), []byte{}, nil, &number, (*int64)(nil)} {
		var read, written any
		readErr := st.QueryRow(t.Context(), "SELECT $1", arg).Scan(&read)
		write(t, st, func(tx *store.Tx) error {
			if err := tx.QueryRow(t.Context(), "SELECT $1", arg).Scan(&written); (err == nil) != (readErr == nil) {
				t.Errorf("%#v: %v, of the writer %v", arg, readErr, err)
			}
			return nil
		})
		same(t, written, read)
	}
}

// Rows that are left open, read to the end, or nested in those of the same statement do not disturb the next.
func TestWriterRows(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	const numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) SELECT i FROM n"
	write(t, st, func(tx *store.Tx) error {
		outer, err := tx.Query(t.Context(), numbers, int64(3))
		if err != nil {
			return err
		}
		sum := int64(0)
		for outer.Next() {
			var i int64
			if err := outer.Scan(&i); err != nil {
				return err
			}
			inner, err := store.All(t.Context(), tx, func(scan func(...any) error) (v int64, err error) { return v, scan(&v) }, numbers, i)
			if err != nil || int64(len(inner)) != i {
				t.Errorf("%d inner rows, %v", len(inner), err)
			}
			sum += i
		}
		if sum != 6 || outer.Err() != nil || outer.Next() {
			t.Errorf("sum %d, %v", sum, outer.Err())
		}
		first, err := tx.Query(t.Context(), numbers, int64(9))
		if err != nil || !first.Next() {
			t.Errorf("%v", err)
		}
		first.Close()
		second, err := tx.Query(t.Context(), numbers, int64(9))
		if err != nil || !second.Next() {
			t.Errorf("%v", err)
		}
		first.Close() // ends nothing of the second
		var i int64
		if first.Scan(&i) == nil || first.Next() {
			t.Error("rows that were closed go on")
		}
		if err := second.Scan(&i); err != nil || i != 1 || !second.Next() {
			t.Errorf("%d, %v", i, err)
		}
		second.Close()
		return tx.QueryRow(t.Context(), numbers, int64(1)).Scan(&i)
	})
}

// Errors of the writer are those of SQLite, and the transaction after one works.
func TestWriterErrors(t *testing.T) {
	st, cfg := storetest.Open(t, store.SQLite)
	ctx := t.Context()
	write(t, st, func(tx *store.Tx) error { return put(ctx, tx, "a", "1") })
	for statement, want := range map[string]string{
		"INSERT INTO settings (name, value) VALUES ('a', x'')": "UNIQUE constraint failed: settings.name (1555)",
		"INSERT INTO settings (name) VALUES ('b')":             "NOT NULL constraint failed",
		"SELECT missing FROM settings":                         "no such column: missing",
		"DELETE FROM settings; DELETE FROM settings":           "not a single SQL statement",
		"DELETE FROM settings WHERE name = $1 OR name = $2":    "1 arguments for 2 placeholders",
		"": "not a single SQL statement",
	} {
		err := st.Tx(ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(ctx, statement, "x")
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) || store.IsUnique(err) != strings.HasPrefix(want, "UNIQUE") || store.IsRetryable(err) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if got := setting(t, st, "a"); got != "1" {
		t.Errorf("a is %q", got)
	}
	// A file that somebody else keeps locked is unavailable.
	other := must.Get(sql.Open("sqlite", "file:"+filepath.Join(cfg.Data, "toll.db")))(t)
	defer other.Close()
	lock := must.Get(other.Conn(ctx))(t)
	must.Get(lock.ExecContext(ctx, "BEGIN IMMEDIATE"))(t)
	must.Do(t, store.SetBusyTimeout(st, 1))
	err := st.Tx(ctx, func(*store.Tx) error { return nil })
	if !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || !store.IsRetryable(err) || store.ErrorCode(err) != "SQLITE_BUSY" {
		t.Errorf("locked: %v, %q", err, store.ErrorCode(err))
	}
	must.Get(lock.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"))(t)
	write(t, st, func(tx *store.Tx) error { return put(ctx, tx, "c", "2") })
	// A file that cannot grow is full.
	if err := store.SetMaxPages(st, 1); err != nil { // at least what it has
		t.Fatal(err)
	}
	err = st.Tx(ctx, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, "big", make([]byte, 1<<20)) })
	if !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || store.ErrorCode(err) != "SQLITE_FULL" {
		t.Errorf("full: %v, %q", err, store.ErrorCode(err))
	}
}
