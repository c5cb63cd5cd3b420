package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tollhq/toll"
)

type Sort string

// Sorts.
const (
	SortCreated Sort = "created"
	SortUpdated Sort = "updated"
	SortName    Sort = "name" // by bytes

	SortSubscriber Sort = "subscriber" // by address
	SortPlan       Sort = "plan"       // by the text of its id
	SortTime       Sort = "time"       // of sums: by hour or day
	SortGroup      Sort = "group"      // of sums: by the text of an id
	SortEnded      Sort = "ended"      // of requests: by the time of their outcome
)

// isText reports whether the values of a sort are texts; those of the others are numbers.
func (s Sort) isText() bool {
	return s == SortName || s == SortSubscriber || s == SortPlan || s == SortGroup
}

const (
	defaultPageSize = 10
	maxPageSize     = 100
)

// Page asks for a part of a list. The zero value is the first page of 10, newest first.
type Page struct {
	Number    int    // from 1; 0 is 1
	Size      int    // 1 to 100; 0 is 10
	Sort      Sort   // "" is SortCreated, or the only sort of the list
	Ascending bool   // false: newest or last name first
	Cursor    string // List.Next of the part before; Number, Sort and Ascending do not count then
}

// List is a part of a list.
type List[T any] struct {
	Items []T
	Total int64  // rows of the whole list
	Next  string // cursor of the next part, "" at the end
}

// Map returns the list of what f makes of the items.
func Map[A, B any](l List[A], f func(A) B) List[B] {
	return List[B]{Items: Mapped(l.Items, f), Total: l.Total, Next: l.Next}
}

// Mapped returns what f makes of each item, and no nil.
func Mapped[A, B any](items []A, f func(A) B) []B {
	out := make([]B, len(items))
	for i, item := range items {
		out[i] = f(item)
	}
	return out
}

// Listing is a table, or several that are joined, as a list. All its texts are constants of the program.
type Listing struct {
	Table   string          // what stands behind FROM
	Columns string          // what the scan reads
	Where   string          // may be empty; its placeholders start at $1
	Args    []any           // of Where
	ID      string          // a unique column, TEXT, BYTES or BIGINT, that orders equal sort values
	Sorts   map[Sort]string // column of each sort that the list has
	Count   string          // how the rows are counted, with Args, when there is a cheaper way than to count them; may be empty
}

// Between keeps the rows whose time in a column is at or after since and before until. The zero time is no bound.
func (l *Listing) Between(column string, since, until time.Time) {
	add := func(comparison string, at time.Time) {
		if !at.IsZero() {
			l.Args = append(l.Args, Micros(at))
			l.Where += fmt.Sprintf(" AND %s %s $%d", column, comparison, len(l.Args))
		}
	}
	add(">=", since)
	add("<", until)
}

// Select reads a part of a list. The scan gets the columns of one row. A page or cursor that the list does not have is
// an error with [toll.CodeBadPage].
func Select[T any](ctx context.Context, q Querier, l Listing, p Page, scan func(scan func(dest ...any) error) (T, error)) (List[T], error) {
	list := List[T]{Items: []T{}}
	if _, ok := l.Sorts[SortCreated]; p.Sort == "" && !ok && len(l.Sorts) == 1 {
		for p.Sort = range l.Sorts {
		}
	}
	p, from, err := p.checked()
	if err != nil {
		return list, err
	}
	key, ok := l.Sorts[p.Sort]
	if !ok {
		return list, toll.NewError(toll.CodeBadPage).WithDetails("sortBy %q", string(p.Sort))
	}

	where, args := "", append([]any(nil), l.Args...)
	if l.Where != "" {
		where = " WHERE " + l.Where
	}
	count := cmp.Or(l.Count, "SELECT COUNT(*) FROM "+l.Table+where)
	direction, beyond := "DESC", "<"
	if p.Ascending {
		direction, beyond = "ASC", ">"
	}
	if from != nil {
		if where == "" {
			where = " WHERE "
		} else {
			where += " AND "
		}
		where += fmt.Sprintf("(%s, %s) %s ($%d, $%d)", key, l.ID, beyond, len(args)+1, len(args)+2)
		k, id, err := from.values()
		if err != nil {
			return list, err
		}
		args = append(args, k, id)
	}
	text := fmt.Sprintf("SELECT %s, %s, %s FROM %s%s ORDER BY %s %s, %s %s LIMIT $%d OFFSET $%d",
		l.Columns, key, l.ID, l.Table, where, key, direction, l.ID, direction, len(args)+1, len(args)+2)
	args = append(args, int64(p.Size)+1, int64(p.Number-1)*int64(p.Size))

	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return list, err
	}
	defer rows.Close()
	var lastKey, lastID any
	for rows.Next() {
		if len(list.Items) == p.Size {
			list.Next = encodeCursor(p, lastKey, lastID)
			break
		}
		item, err := scan(func(dest ...any) error { return rows.Scan(append(dest, &lastKey, &lastID)...) })
		if err != nil {
			return list, err
		}
		list.Items = append(list.Items, item)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return list, err
	}

	if from == nil && p.Number == 1 && list.Next == "" {
		list.Total = int64(len(list.Items))
		return list, nil
	}
	err = q.QueryRow(ctx, count, l.Args...).Scan(&list.Total)
	return list, err
}

// checked returns the page with its defaults, and the place where it begins, nil for the begin of the list.
func (p Page) checked() (Page, *cursor, error) {
	p.Sort, p.Number, p.Size = cmp.Or(p.Sort, SortCreated), cmp.Or(p.Number, 1), cmp.Or(p.Size, defaultPageSize)
	if p.Number < 1 || p.Number > 1<<31 || p.Size < 1 || p.Size > maxPageSize {
		return p, nil, toll.NewError(toll.CodeBadPage)
	}
	if p.Cursor == "" {
		return p, nil, nil
	}
	from, err := decodeCursor(p.Cursor)
	if err != nil {
		return p, nil, err
	}
	p.Sort, p.Ascending, p.Number = from.Sort, from.Ascending, 1
	return p, from, nil
}

type cursor struct {
	Sort      Sort   `json:"s"`
	Ascending bool   `json:"a,omitempty"`
	Key       string `json:"k"`
	ID        string `json:"i"` // "t" and text, "x" and hexadecimal digits, or "n" and a number
}

func encodeCursor(p Page, key, id any) string {
	c := cursor{Sort: p.Sort, Ascending: p.Ascending}
	switch k := key.(type) {
	case int64:
		c.Key = strconv.FormatInt(k, 10)
	case string:
		c.Key = k
	}
	switch i := id.(type) {
	case string:
		c.ID = "t" + i
	case []byte:
		c.ID = "x" + hex.EncodeToString(i)
	case int64:
		c.ID = "n" + strconv.FormatInt(i, 10)
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and a bool
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeCursor(s string) (*cursor, error) {
	var c cursor
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil || len(s) > 4096 || c.ID == "" {
		return nil, badCursor()
	}
	return &c, nil
}

func badCursor() error {
	return toll.Errorf(toll.CodeBadPage, "The cursor was not issued by this service.")
}

func (c *cursor) values() (key, id any, err error) {
	key = c.Key
	if !c.Sort.isText() {
		if key, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
			return nil, nil, badCursor()
		}
	}
	switch c.ID[0] {
	case 't':
		return key, c.ID[1:], nil
	case 'x':
		b, err := hex.DecodeString(c.ID[1:])
		if err != nil {
			return nil, nil, badCursor()
		}
		return key, b, nil
	case 'n':
		n, err := strconv.ParseInt(c.ID[1:], 10, 64)
		if err != nil {
			return nil, nil, badCursor()
		}
		return key, n, nil
	}
	return nil, nil, badCursor()
}
