package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Querier reads: a [Store] outside of a transaction, or a [Tx].
type Querier interface {
	Query(ctx context.Context, q string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, q string, args ...any) *Row
}

// Rows is the result of a query. Close it before the next statement of the same transaction.
type Rows struct {
	pg   pgx.Rows
	lite *sql.Rows

	writer *statement // of the connection that writes to SQLite
	turn   uint64     // of the statement
	err    error
}

func (r *Rows) Next() bool {
	if r.pg != nil {
		return r.pg.Next()
	}
	if r.writer == nil {
		return r.lite.Next()
	}
	if r.turn != r.writer.turn {
		return false
	}
	more := r.writer.next()
	if !more {
		r.err = r.writer.err
	}
	return more
}

func (r *Rows) Scan(dest ...any) error {
	if r.pg != nil {
		return r.pg.Scan(dest...)
	}
	if r.writer == nil {
		return r.lite.Scan(dest...)
	}
	if r.turn != r.writer.turn {
		return errors.New("store: Scan without a row")
	}
	return r.writer.scan(dest)
}

// Close ends the query. It may be called twice.
func (r *Rows) Close() {
	switch {
	case r.pg != nil:
		r.pg.Close()
	case r.writer == nil:
		_ = r.lite.Close() // Err tells what went wrong
	case r.turn == r.writer.turn:
		r.writer.reset()
	}
}

// Err returns what ended the rows early, nil after the last one.
func (r *Rows) Err() error {
	if r.pg != nil {
		return MapError(r.pg.Err())
	}
	if r.writer == nil {
		return MapError(r.lite.Err())
	}
	return MapError(r.err)
}

type Row struct {
	rows *Rows
	err  error
}

// Scan copies the row and ends the query; [ErrNotFound] when there is none.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return ErrNotFound
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// value reads the one value of a query; [ErrNotFound] when there is no row.
func value[T any](ctx context.Context, q Querier, statement string, args ...any) (v T, err error) {
	err = q.QueryRow(ctx, statement, args...).Scan(&v)
	return v, err
}

// values reads the values of a query with one column.
func values[T any](ctx context.Context, q Querier, statement string, args ...any) ([]T, error) {
	return All(ctx, q, func(scan func(dest ...any) error) (v T, err error) { return v, scan(&v) }, statement, args...)
}

func changed(n int64, err error) (bool, error) { return n > 0, err }

// done is the error of a statement that may change no row.
func done(_ int64, err error) error { return err }

// found is [ErrNotFound] when a statement changed no row.
func found(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// All reads the rows of a query with scan.
func All[T any](
	ctx context.Context, q Querier, scan func(scan func(dest ...any) error) (T, error), statement string, args ...any,
) ([]T, error) {
	rows, err := q.Query(ctx, statement, args...)
	return scanAll(rows, err, scan)
}

func scanAll[T any](rows *Rows, err error, scan func(func(dest ...any) error) (T, error)) (out []T, _ error) {
	err = each(rows, err, func(row func(dest ...any) error) error {
		v, err := scan(row)
		out = append(out, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// each reads the rows of a query, and closes it.
func each(rows *Rows, err error, read func(scan func(dest ...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Query reads outside of a transaction.
func (s *Store) Query(ctx context.Context, q string, args ...any) (*Rows, error) {
	if f := s.tracer.Load(); f != nil {
		(*f)(0, q)
	}
	if s.pool == nil {
		return s.lite.query(ctx, q, args)
	}
	rows, err := s.pool.Query(ctx, q, args...)
	if err != nil {
		return nil, MapError(err)
	}
	return &Rows{pg: rows}, nil
}

// QueryRow reads one row outside of a transaction.
func (s *Store) QueryRow(ctx context.Context, q string, args ...any) *Row {
	rows, err := s.Query(ctx, q, args...)
	return &Row{rows: rows, err: err}
}

// positional is a statement whose placeholders are bare question marks, and the arguments that they stand for.
// The SQLite driver compares the names of numbered placeholders one by one; bare ones it counts.
type positional struct {
	text  string
	order []int // nil: the arguments as they are
}

func (p *positional) args(args []any) ([]any, error) {
	for _, a := range args {
		if s, ok := a.(string); ok && (strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s)) {
			return nil, badText()
		}
	}
	if p.order == nil {
		return args, nil
	}
	out := make([]any, len(p.order))
	for i, n := range p.order {
		if n <= len(args) {
			out[i] = args[n-1]
		}
	}
	return out, nil
}

var positionals sync.Map // string -> *positional; statements are a fixed set

func toPositional(q string) *positional {
	if p, ok := positionals.Load(q); ok {
		return p.(*positional)
	}
	p := parsePositional(q)
	positionals.Store(q, p)
	return p
}

func parsePositional(q string) *positional {
	var b strings.Builder
	var order []int
	plain, quoted := true, false
	for i := 0; i < len(q); i++ {
		c := q[i]
		if c == '\'' {
			quoted = !quoted
		}
		if c != '$' || quoted {
			b.WriteByte(c)
			continue
		}
		j := i + 1
		for j < len(q) && q[j] >= '0' && q[j] <= '9' {
			j++
		}
		n, err := strconv.Atoi(q[i+1 : j])
		if err != nil || n == 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('?')
		order = append(order, n)
		plain = plain && n == len(order)
		i = j - 1
	}
	if plain {
		order = nil
	}
	return &positional{text: b.String(), order: order}
}
