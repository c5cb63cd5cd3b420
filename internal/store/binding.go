package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// liteError is an error of SQLite on a [connection]. Those of database/sql are [sqlite.Error].
type liteError struct {
	code int // extended
	text string
}

func (e *liteError) Error() string { return e.text }

func sqliteCode(err error) (code int, ok bool) {
	if e, ok := errors.AsType[*liteError](err); ok {
		return e.code, true
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code(), true
	}
	return 0, false
}

// connection is a connection to SQLite without database/sql, which copies each value through interfaces and C memory of
// its own. One goroutine uses it at a time.
type connection struct {
	tls *libc.TLS
	db  uintptr
	out uintptr // what C functions return by address
}

// connect opens a database file that exists, and sets pragmas.
func connect(path string, pragmas ...string) (_ *connection, err error) {
	c := &connection{tls: libc.NewTLS()}
	defer func() {
		if err != nil {
			_ = c.close() // the first error counts
		}
	}()
	if c.out = libc.Xmalloc(c.tls, 2*libc.Tsize_t(unsafe.Sizeof(c.out))); c.out == 0 {
		return nil, errNoMemory
	}
	name, err := libc.CString(path)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, name)
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_NOMUTEX, 0)
	c.db = c.result(0)
	if rc != sqlite3.SQLITE_OK {
		return nil, c.failure(rc)
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	for _, pragma := range pragmas {
		s, err := c.prepare("PRAGMA " + pragma)
		if err != nil {
			return nil, err
		}
		_, err = s.exec(nil)
		if err = errors.Join(err, s.close()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

var errNoMemory = errors.New("store: SQLite is out of memory")

// close closes the connection. Its statements were closed before.
func (c *connection) close() error {
	var err error
	if rc := sqlite3.Xsqlite3_close_v2(c.tls, c.db); rc != sqlite3.SQLITE_OK {
		err = c.failure(rc)
	}
	libc.Xfree(c.tls, c.out)
	c.tls.Close()
	return err
}

// result reads the nth value that a C function left in out.
func (c *connection) result(n uintptr) uintptr {
	return *(*uintptr)(pointer(c.out + n*unsafe.Sizeof(c.out)))
}

// pointer is the address of C memory, which the garbage collector leaves alone.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// memory is C memory as bytes, until SQLite changes it.
func memory(p uintptr, n int) []byte {
	if p == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), n)
}

func (c *connection) failure(rc int32) error {
	text, more := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc)), ""
	if c.db != 0 {
		more = libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
	}
	if more != "" && more != text {
		text += ": " + more
	}
	return &liteError{int(rc), fmt.Sprintf("%s (%d)", text, rc)}
}

type statement struct {
	c       *connection
	p       uintptr
	params  int
	columns int
	once    bool // closed after its use

	buffer uintptr // C memory with the texts and bytes that are bound
	size   int     // of buffer
	turn   uint64  // counts its uses, so that rows of an earlier one end
	open   bool    // rows are being read
	first  bool    // a row was read ahead
	err    error   // of the rows
}

// maxKeptBuffer bounds the memory that a statement keeps, in bytes.
const maxKeptBuffer = 64 << 10

func (c *connection) prepare(text string) (*statement, error) {
	z, err := libc.CString(text)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, z)
	tail := c.out + unsafe.Sizeof(c.out)
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, z, int32(len(text)+1), sqlite3.SQLITE_PREPARE_PERSISTENT, c.out, tail); rc != sqlite3.SQLITE_OK {
		return nil, c.failure(rc)
	}
	s := &statement{c: c, p: c.result(0)}
	if rest := strings.TrimSpace(text[c.result(1)-z:]); s.p == 0 || rest != "" {
		return nil, errors.Join(fmt.Errorf("store: not a single SQL statement: %q", text), s.close())
	}
	s.params = int(sqlite3.Xsqlite3_bind_parameter_count(c.tls, s.p))
	s.columns = int(sqlite3.Xsqlite3_column_count(c.tls, s.p))
	return s, nil
}

func (s *statement) close() error {
	sqlite3.Xsqlite3_finalize(s.c.tls, s.p) // its result is that of the last step
	libc.Xfree(s.c.tls, s.buffer)
	s.p, s.buffer, s.size = 0, 0, 0
	return nil
}

// reset ends a use, and unlocks what it read.
func (s *statement) reset() {
	sqlite3.Xsqlite3_reset(s.c.tls, s.p) // its result is that of the last step
	s.open = false
	s.turn++
	switch {
	case s.once:
		_ = s.close() // nil
	case s.size > maxKeptBuffer:
		sqlite3.Xsqlite3_clear_bindings(s.c.tls, s.p)
		libc.Xfree(s.c.tls, s.buffer)
		s.buffer, s.size = 0, 0
	}
}

// bind copies texts and bytes once, into memory that is used again: the garbage collector may move stacks.
func (s *statement) bind(args []any) error {
	if len(args) < s.params {
		return fmt.Errorf("store: %d arguments for %d placeholders", len(args), s.params)
	}
	args = args[:s.params]
	need := 0
	for _, a := range args {
		switch v := a.(type) {
		case []byte:
			need += len(v) + 1
		case string:
			need += len(v) + 1
		case int64, nil, bool:
		default: // rare: named types and pointers
			return s.bindOthers(args)
		}
	}
	if need > s.size {
		libc.Xfree(s.c.tls, s.buffer)
		s.size = max(need, 256)
		if s.buffer = libc.Xmalloc(s.c.tls, libc.Tsize_t(s.size)); s.buffer == 0 {
			s.size = 0
			return errNoMemory
		}
	}
	free := s.buffer
	put := func(n int) (at uintptr, to []byte) {
		at = free
		free += uintptr(n) + 1 // empty values have an address, too; a nil one would be NULL
		return at, memory(at, n)
	}
	for i, a := range args {
		rc, place := int32(0), int32(i+1)
		switch v := a.(type) {
		case int64:
			rc = sqlite3.Xsqlite3_bind_int64(s.c.tls, s.p, place, v)
		case string:
			at, to := put(len(v))
			copy(to, v)
			rc = sqlite3.Xsqlite3_bind_text(s.c.tls, s.p, place, at, int32(len(v)), 0)
		case []byte:
			if v == nil {
				rc = sqlite3.Xsqlite3_bind_null(s.c.tls, s.p, place)
				break
			}
			at, to := put(len(v))
			copy(to, v)
			rc = sqlite3.Xsqlite3_bind_blob(s.c.tls, s.p, place, at, int32(len(v)), 0)
		case bool:
			n := int64(0)
			if v {
				n = 1
			}
			rc = sqlite3.Xsqlite3_bind_int64(s.c.tls, s.p, place, n)
		default:
			rc = sqlite3.Xsqlite3_bind_null(s.c.tls, s.p, place)
		}
		if rc != sqlite3.SQLITE_OK {
			return s.c.failure(rc)
		}
	}
	return nil
}

// bindOthers converts what database/sql would.
func (s *statement) bindOthers(args []any) error {
	plain := make([]any, len(args))
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return fmt.Errorf("store: argument %d: %w", i+1, err)
		}
		switch v.(type) {
		case int64, string, []byte, bool, nil:
		default:
			return fmt.Errorf("store: argument %d: a %T cannot be stored", i+1, a)
		}
		plain[i] = v
	}
	return s.bind(plain)
}

func (s *statement) exec(args []any) (int64, error) {
	if err := s.bind(args); err != nil {
		s.reset()
		return 0, err
	}
	rc := sqlite3.Xsqlite3_step(s.c.tls, s.p)
	for rc == sqlite3.SQLITE_ROW {
		rc = sqlite3.Xsqlite3_step(s.c.tls, s.p)
	}
	var err error
	if rc != sqlite3.SQLITE_DONE {
		err = s.c.failure(rc)
	}
	s.reset()
	if err != nil {
		return 0, err
	}
	return sqlite3.Xsqlite3_changes64(s.c.tls, s.c.db), nil
}

// query runs the statement to its first row, so that errors show here.
func (s *statement) query(args []any) error {
	if err := s.bind(args); err != nil {
		s.reset()
		return err
	}
	s.turn++
	s.open, s.first, s.err = true, false, nil
	s.first = s.next()
	return s.err
}

// next moves to the next row. After the last one, or an error, the use has ended.
func (s *statement) next() bool {
	if !s.open || s.first {
		more := s.first
		s.first = false
		return more
	}
	rc := sqlite3.Xsqlite3_step(s.c.tls, s.p)
	if rc == sqlite3.SQLITE_ROW {
		return true
	}
	if rc != sqlite3.SQLITE_DONE {
		s.err = s.c.failure(rc)
	}
	s.reset()
	return false
}

func (s *statement) scan(dest []any) error {
	if !s.open {
		return errors.New("store: Scan without a row")
	}
	if len(dest) != s.columns {
		return fmt.Errorf("store: %d destinations for %d columns", len(dest), s.columns)
	}
	for i, d := range dest {
		kind := sqlite3.Xsqlite3_column_type(s.c.tls, s.p, int32(i))
		ok := true
		switch d := d.(type) {
		case *int64:
			if ok = kind == sqlite3.SQLITE_INTEGER; ok {
				*d = sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, int32(i))
			}
		case *string:
			if ok = kind == sqlite3.SQLITE_TEXT; ok {
				*d = string(s.bytes(i))
			}
		case *[]byte:
			if ok = kind == sqlite3.SQLITE_BLOB || kind == sqlite3.SQLITE_NULL; ok {
				*d = append([]byte(nil), s.bytes(i)...)
			}
		default:
			ok = false
		}
		if ok {
			continue
		}
		if err := assign(reflect.ValueOf(d), s.value(i, kind)); err != nil {
			return fmt.Errorf("store: column %d: %w", i+1, err)
		}
	}
	return nil
}

// bytes is a text or a blob, until the next step.
func (s *statement) bytes(i int) []byte {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.p, int32(i))
	return memory(p, int(sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, int32(i))))
}

// value is a column as a value of database/sql.
func (s *statement) value(i int, kind int32) any {
	switch kind {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, int32(i))
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(s.c.tls, s.p, int32(i))
	case sqlite3.SQLITE_TEXT:
		return string(s.bytes(i))
	case sqlite3.SQLITE_BLOB:
		return append([]byte(nil), s.bytes(i)...)
	}
	return nil
}

// assign stores a value where dest points to, as database/sql does for the types that this program reads.
func assign(dest reflect.Value, v any) error {
	if scanner, ok := dest.Interface().(sql.Scanner); ok {
		return scanner.Scan(v)
	}
	if dest.Kind() != reflect.Pointer || dest.IsNil() {
		return errors.New("the destination is not a pointer")
	}
	to := dest.Elem()
	switch to.Kind() {
	case reflect.Pointer:
		if v == nil {
			to.SetZero()
			return nil
		}
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to, v)
	case reflect.Interface:
		if v == nil {
			to.SetZero()
		} else {
			to.Set(reflect.ValueOf(v))
		}
		return nil
	case reflect.Bool:
		if b, err := driver.Bool.ConvertValue(v); err == nil && v != nil {
			to.SetBool(b.(bool))
			return nil
		}
	case reflect.Int, reflect.Int64, reflect.Int32:
		switch n := v.(type) {
		case int64:
			if !to.OverflowInt(n) {
				to.SetInt(n)
				return nil
			}
		case string:
			if parsed, err := strconv.ParseInt(n, 10, 64); err == nil && !to.OverflowInt(parsed) {
				to.SetInt(parsed)
				return nil
			}
		}
	case reflect.String:
		switch x := v.(type) {
		case string:
			to.SetString(x)
			return nil
		case []byte:
			to.SetString(string(x))
			return nil
		case int64:
			if to.Type() == reflect.TypeFor[string]() {
				to.SetString(strconv.FormatInt(x, 10))
				return nil
			}
		}
	case reflect.Slice:
		if to.Type().Elem().Kind() == reflect.Uint8 {
			switch x := v.(type) {
			case nil:
				to.SetZero()
				return nil
			case []byte:
				to.SetBytes(x)
				return nil
			case string:
				to.SetBytes([]byte(x))
				return nil
			case int64:
				to.SetBytes(strconv.AppendInt(nil, x, 10))
				return nil
			}
		}
	}
	return fmt.Errorf("a %T cannot be read into a %s", v, to.Type())
}
