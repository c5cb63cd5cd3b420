package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// record maps a struct to a table. Each stored field names its column in a tag, so a column stands once:
//
//	Owner  toll.Address `db:"owner"`
//	Parent toll.Hash    `db:"parent,null"`
//
// Text, numbers, flags and bytes are stored as they are, times as microseconds, durations as seconds,
// addresses in lower case, hashes as bytes, amounts of tokens as decimal text, lists of words with blanks
// between. NULL is read as the zero value. Options behind the name change that:
//
//   - null: the zero value is stored as NULL;
//   - empty: the zero value is stored as text or bytes of length 0;
//   - json: stored as JSON, a list without elements as text of length 0;
//   - hex: a hash is stored as text;
//   - uuid: the text of a UUID is stored as 16 bytes;
//   - text: bytes are stored as text;
//   - number: a flag is stored as 0 or 1;
//   - key: identifies the row for update;
//   - set: update writes the column;
//   - version: update counts it up, if it is still the stored one.
//
// A method loaded of the pointer is called after a row was read, and a method storing before one is written, with loaded after it.
//
// The functions of a table that need no statement of their own stand beside its record, as values: its insert and its update,
// and what [by], [locked], [listBy], [runs] and [valueBy] make.
//
// T is what the functions of this package return: the struct, or a pointer to it. A record is made once and
// is safe for concurrent use. It costs some microseconds a row; rows of the hot path are scanned by hand.
type record[T any] struct {
	table    string
	columns  string  // as SELECT names them
	selects  string  // up to the name of the table
	inserts  string  // up to the values
	values   string  // placeholders of one row
	updates  string  // "" when no column may change
	fields   []field // in the order of columns
	changing []field // in the order of updates
	struc    reflect.Type
	pointer  bool
}

type field struct {
	index   int
	form    form
	options []string
}

func (f field) is(option string) bool { return slices.Contains(f.options, option) }

type form int

const (
	inText form = iota
	inNumber
	inFlag
	inBytes
)

// cell is a value as a driver reads it. What is not set was NULL.
type cell struct {
	text   *string
	number *int64
	flag   *bool
	bytes  []byte
}

func (c *cell) dest(f form) any {
	switch f {
	case inText:
		return &c.text
	case inNumber:
		return &c.number
	case inFlag:
		return &c.flag
	}
	return &c.bytes
}

func newRecord[T any](table string) *record[T] {
	r := &record[T]{table: table, struc: reflect.TypeFor[T]()}
	if r.pointer = r.struc.Kind() == reflect.Pointer; r.pointer {
		r.struc = r.struc.Elem()
	}
	var columns, set, key []string
	for i := range r.struc.NumField() {
		name, options, _ := strings.Cut(r.struc.Field(i).Tag.Get("db"), ",")
		if name == "" {
			continue
		}
		f := field{index: i, options: strings.Split(options, ",")}
		f.form = formOf(r.struc.Field(i).Type, f)
		r.fields = append(r.fields, f)
		columns = append(columns, name)
		if f.is("version") {
			set = append(set, name+" = "+name+" + 1")
		}
		if f.is("key") || f.is("set") || f.is("version") {
			r.changing = append(r.changing, f)
			name += fmt.Sprintf(" = $%d", len(r.changing))
		}
		if f.is("set") {
			set = append(set, name)
		} else if f.is("key") || f.is("version") {
			key = append(key, name)
		}
	}
	r.columns = strings.Join(columns, ", ")
	r.selects = "SELECT " + r.columns + " FROM " + table + " "
	r.inserts, r.values = "INSERT INTO "+table+" ("+r.columns+") VALUES ", tuples(1, len(columns))
	if len(set) > 0 {
		r.updates = "UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(key, " AND ")
	}
	return r
}

// insert adds a row. The error is [IsUnique] when its key, or what else is unique, is taken.
func (r *record[T]) insert(ctx context.Context, tx *Tx, v T) error {
	_, err := r.insertOr(ctx, tx, v, "")
	return err
}

// insertOr adds a row unless conflict, the end of the statement, says otherwise; its parameters follow those of the columns. It
// reports whether a row changed.
func (r *record[T]) insertOr(ctx context.Context, tx *Tx, v T, conflict string, more ...any) (did bool, err error) {
	args, err := r.args(nil, v, r.fields)
	if err != nil {
		return false, err
	}
	return changed(tx.Exec(ctx, r.inserts+r.values+" "+conflict, append(args, more...)...))
}

// insertAll adds rows, many with one statement.
func (r *record[T]) insertAll(ctx context.Context, tx *Tx, rows []T) error {
	for part := range chunks(rows) {
		args := make([]any, 0, len(part)*len(r.fields))
		for _, v := range part {
			var err error
			if args, err = r.args(args, v, r.fields); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, r.inserts+tuples(len(part), len(r.fields)), args...); err != nil {
			return err
		}
	}
	return nil
}

// update stores the fields that may change. [ErrNotFound] when there is no such row.
func (r *record[T]) update(ctx context.Context, tx *Tx, v T) error {
	args, err := r.args(nil, v, r.changing)
	if err != nil {
		return err
	}
	return found(tx.Exec(ctx, r.updates, args...))
}

func (r *record[T]) args(args []any, v T, fields []field) ([]any, error) {
	if s, ok := any(v).(interface {
		storing()
		loaded()
	}); ok {
		s.storing()
		defer s.loaded()
	}
	value := reflect.Indirect(reflect.ValueOf(v))
	for _, f := range fields {
		arg, err := f.encode(value.Field(f.index))
		if err != nil {
			return nil, fmt.Errorf("store: %s: %w", r.table, err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// one reads the first row; rest is the statement behind the name of the table. [ErrNotFound] when there is none.
func (r *record[T]) one(ctx context.Context, q Querier, rest string, args ...any) (T, error) {
	return r.scan(q.QueryRow(ctx, r.query(rest), args...).Scan)
}

// all reads all rows; rest is the statement behind the name of the table.
func (r *record[T]) all(ctx context.Context, q Querier, rest string, args ...any) ([]T, error) {
	return All(ctx, q, r.scan, r.query(rest), args...)
}

func (r *record[T]) query(rest string) string { return r.selects + rest }

// by makes the function that returns the row with a key, or [ErrNotFound]. where is the condition, with $1 for the key.
func by[K, T any](r *record[T], where string) func(context.Context, Querier, K) (T, error) {
	return func(ctx context.Context, q Querier, key K) (T, error) { return r.one(ctx, q, "WHERE "+where, arg(key)) }
}

// by2 is [by] for a key of two values.
func by2[K, L, T any](r *record[T], where string) func(context.Context, Querier, K, L) (T, error) {
	return func(ctx context.Context, q Querier, key K, second L) (T, error) {
		return r.one(ctx, q, "WHERE "+where, arg(key), arg(second))
	}
}

// locked is [by] for a row that the transaction is going to change: nobody else changes it meanwhile.
func locked[K, T any](r *record[T], where string) func(context.Context, *Tx, K) (T, error) {
	return func(ctx context.Context, tx *Tx, key K) (T, error) {
		return r.one(ctx, tx, "WHERE "+where+tx.ForUpdate(), arg(key))
	}
}

// locked2 is [locked] for a key of two values.
func locked2[K, L, T any](r *record[T], where string) func(context.Context, *Tx, K, L) (T, error) {
	return func(ctx context.Context, tx *Tx, key K, second L) (T, error) {
		return r.one(ctx, tx, "WHERE "+where+tx.ForUpdate(), arg(key), arg(second))
	}
}

// listBy is [by] for all rows with a key, in the order that follows the condition.
func listBy[K, T any](r *record[T], where string) func(context.Context, Querier, K) ([]T, error) {
	return func(ctx context.Context, q Querier, key K) ([]T, error) {
		return r.all(ctx, q, "WHERE "+where, arg(key))
	}
}

// listBy2 is [listBy] for a key of two values.
func listBy2[K, L, T any](r *record[T], where string) func(context.Context, Querier, K, L) ([]T, error) {
	return func(ctx context.Context, q Querier, key K, second L) ([]T, error) {
		return r.all(ctx, q, "WHERE "+where, arg(key), arg(second))
	}
}

// dropOldest makes the function that removes at most limit rows whose time is set and before a moment, and returns how many.
func dropOldest[T any](r *record[T], key, at string) func(ctx context.Context, tx *Tx, before time.Time, limit int64) (int64, error) {
	statement := "DELETE FROM " + r.table + " WHERE " + key + " IN (SELECT " + key + " FROM " + r.table +
		" WHERE " + at + " > 0 AND " + at + " < $1 ORDER BY " + at + " LIMIT $2)"
	return func(ctx context.Context, tx *Tx, before time.Time, limit int64) (int64, error) {
		return tx.Exec(ctx, statement, Micros(before), limit)
	}
}

// adds makes the function that adds a row unless conflict, the end of the statement, says otherwise, and reports whether a row changed.
func (r *record[T]) adds(conflict string) func(context.Context, *Tx, T) (bool, error) {
	return func(ctx context.Context, tx *Tx, v T) (bool, error) { return r.insertOr(ctx, tx, v, conflict) }
}

// puts is adds for who need not know whether a row changed.
func (r *record[T]) puts(conflict string) func(context.Context, *Tx, T) error {
	return func(ctx context.Context, tx *Tx, v T) error {
		_, err := r.insertOr(ctx, tx, v, conflict)
		return err
	}
}

// runs makes the function that runs a statement with one parameter. end is [done], or [found] when there must be a row.
func runs[A any](end func(int64, error) error, statement string) func(context.Context, *Tx, A) error {
	return func(ctx context.Context, tx *Tx, a A) error { return end(tx.Exec(ctx, statement, arg(a))) }
}

func runs2[A, B any](end func(int64, error) error, statement string) func(context.Context, *Tx, A, B) error {
	return func(ctx context.Context, tx *Tx, a A, b B) error { return end(tx.Exec(ctx, statement, arg(a), arg(b))) }
}

func runs3[A, B, C any](end func(int64, error) error, statement string) func(context.Context, *Tx, A, B, C) error {
	return func(ctx context.Context, tx *Tx, a A, b B, c C) error {
		return end(tx.Exec(ctx, statement, arg(a), arg(b), arg(c)))
	}
}

// first2 is [runs2] for a function that reports whether a row changed: of several callers one changes it.
func first2[A, B any](statement string) func(context.Context, *Tx, A, B) (bool, error) {
	return func(ctx context.Context, tx *Tx, a A, b B) (bool, error) {
		return changed(tx.Exec(ctx, statement, arg(a), arg(b)))
	}
}

// valueBy makes the function that reads the one value of a query with one parameter; [ErrNotFound] when there is no row.
func valueBy[V, A any](query string) func(context.Context, Querier, A) (V, error) {
	return func(ctx context.Context, q Querier, a A) (V, error) { return value[V](ctx, q, query, arg(a)) }
}

// arg is a value as a column without options stores it.
func arg(v any) any {
	stored, _ := field{}.encode(reflect.ValueOf(v)) // it fails for options alone
	return stored
}

func (r *record[T]) list(ctx context.Context, q Querier, l Listing, p Page) (List[T], error) {
	l.Table, l.Columns = r.table, r.columns
	return Select(ctx, q, l, p, r.scan)
}

func (r *record[T]) scan(scan func(dest ...any) error) (t T, err error) {
	cells, dest := make([]cell, len(r.fields)), make([]any, len(r.fields))
	for i, f := range r.fields {
		dest[i] = cells[i].dest(f.form)
	}
	if err := scan(dest...); err != nil {
		return t, err
	}
	value := reflect.New(r.struc)
	for i, f := range r.fields {
		if err := f.decode(value.Elem().Field(f.index), &cells[i]); err != nil {
			return t, fmt.Errorf("store: %s: %w", r.table, err)
		}
	}
	if v, ok := value.Interface().(interface{ loaded() }); ok {
		v.loaded()
	}
	if !r.pointer {
		value = value.Elem()
	}
	return value.Interface().(T), nil
}

// formOf panics when a type cannot be stored.
func formOf(t reflect.Type, f field) form {
	switch t {
	case reflect.TypeFor[toll.Address](), reflect.TypeFor[toll.Units](), reflect.TypeFor[toll.Rights](), reflect.TypeFor[[]string]():
		return inText
	case reflect.TypeFor[time.Time]():
		return inNumber
	}
	switch {
	case f.is("json"), f.is("hex"), f.is("text"):
		return inText
	case f.is("number"):
		return inNumber
	case f.is("uuid"):
		return inBytes
	}
	switch t.Kind() {
	case reflect.Pointer:
		return formOf(t.Elem(), f)
	case reflect.String:
		return inText
	case reflect.Int64:
		return inNumber
	case reflect.Bool:
		return inFlag
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return inBytes
		}
	}
	panic("store: cannot store a " + t.String())
}

func (f field) encode(v reflect.Value) (any, error) {
	if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		switch {
		case f.is("null"):
			return nil, nil
		case f.is("json"), f.is("empty") && f.form == inText:
			return "", nil
		case f.is("empty"):
			return []byte{}, nil
		}
	}
	switch {
	case f.is("json"):
		return encode(v.Interface())
	case f.is("uuid"):
		return uuidBytes(v.String())
	case f.is("text"):
		return string(v.Bytes()), nil
	case f.is("number"):
		if v.Bool() {
			return int64(1), nil
		}
		return int64(0), nil
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return Micros(x), nil
	case time.Duration:
		return int64(x / time.Second), nil
	case toll.Address:
		return x.Lower(), nil
	case toll.Units:
		return x.String(), nil
	case toll.Rights:
		return x.String(), nil
	case []string:
		return strings.Join(x, " "), nil
	case toll.Hash:
		if f.is("hex") {
			return x.String(), nil
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return f.encode(v.Elem())
	case reflect.String:
		return v.String(), nil
	case reflect.Int64:
		return v.Int(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Array:
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return b, nil
	}
	return blob(v.Bytes()), nil
}

// decode leaves v alone when the column was NULL, or text of length 0.
func (f field) decode(v reflect.Value, c *cell) (err error) {
	if c.text == nil && c.number == nil && c.flag == nil && c.bytes == nil || c.text != nil && *c.text == "" {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case f.is("json"):
		return json.Unmarshal([]byte(*c.text), v.Addr().Interface())
	case f.is("text"):
		v.SetBytes([]byte(*c.text))
		return nil
	case f.is("number"):
		v.SetBool(*c.number == 1)
		return nil
	}
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = FromMicros(*c.number)
		return nil
	case *time.Duration:
		*x = time.Duration(*c.number) * time.Second
		return nil
	case *toll.Address:
		*x, err = toll.ParseAddress(*c.text)
		return err
	case *toll.Units:
		*x, err = toll.ParseUnits(*c.text)
		return err
	case *toll.Rights:
		*x = rightsOf(*c.text)
		return nil
	case *[]string:
		*x = strings.Fields(*c.text)
		return nil
	case *toll.Hash:
		if f.is("hex") {
			*x, err = toll.ParseHash(*c.text)
			return err
		}
	}
	switch v.Kind() {
	case reflect.String:
		if f.is("uuid") {
			v.SetString(uuidText(c.bytes))
		} else {
			v.SetString(*c.text)
		}
	case reflect.Int64:
		v.SetInt(*c.number)
	case reflect.Bool:
		v.SetBool(*c.flag)
	case reflect.Array:
		reflect.Copy(v, reflect.ValueOf(c.bytes))
	default:
		v.SetBytes(c.bytes)
	}
	return nil
}
