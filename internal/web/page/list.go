package page

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
)

// MostRows is how many rows a page of a list has.
const MostRows = 25

// oldest is the order of a list that begins with its oldest record.
const oldest = "oldest"

// Orders of lists: timeSorts those of every list, nameSorts those of records with names.
var (
	timeSorts = []Option{{Text: "Newest first"}, {Value: oldest, Text: "Oldest first"}}
	NameSorts = append(slices.Clone(timeSorts), Option{Value: "updated", Text: "Recently updated first"}, Option{Value: "name", Text: "By name"})
)

// ListPage reads the cursor and the order of a list from the query string. The page offers the orders of [timeSorts].
func (c *Context) ListPage() Listing { return c.PageOf(timeSorts) }

// PageOf is [Context.ListPage] for other orders.
func (c *Context) PageOf(sorts []Option) Listing {
	c.sort = &Field{Name: "sort", Label: "Sort", Value: c.R.URL.Query().Get("sort"), Options: sorts}
	if !HasOption(sorts, c.sort.Value) {
		c.sort.Value = ""
	}
	p := Listing{Size: MostRows, Cursor: c.R.URL.Query().Get("cursor")}
	switch by := c.sort.Value; by {
	case "": // the newest record first
	case oldest:
		p.Ascending = true
	default:
		p.Sort, p.Ascending = by, by == "name"
	}
	return p
}

// sortField is the field that chooses the order of a list, which a list of one has no use for.
func sortField(c *Context, t *Table) []Field {
	if c.sort == nil || t == nil || t.Pager == nil || len(t.Rows) == 0 || t.Pager.Total == 1 && c.sort.Value == "" {
		return nil
	}
	return []Field{*c.sort}
}

// SetPage asks the API for a page of a list.
func SetPage(q url.Values, p Listing) {
	q.Set("pageSize", strconv.Itoa(p.Size))
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	if p.Sort != "" {
		q.Set("sortBy", p.Sort)
	}
	if p.Ascending {
		q.Set("sortOrder", "asc")
	}
}

// Listing says which part of a list a page reads, and in which order.
type Listing struct {
	Size      int
	Cursor    string // [List.Next] of the part before
	Sort      string // "" is the time of creation
	Ascending bool
}

// List is a part of a list.
type List[T any] struct {
	Items []T
	Total int64  // of the whole list, -1 when it is not counted
	Next  string // cursor of the next part, "" at the end
}

// ListOf reads the part of a list of the API that the page shows. The page offers the orders sorts, none for [timeSorts].
func ListOf[T any](c *Context, of list.List, q url.Values, sorts ...Option) (out List[T], err error) {
	if q = maps.Clone(q); q == nil {
		q = url.Values{}
	}
	if sorts == nil {
		sorts = timeSorts
	}
	SetPage(q, c.PageOf(sorts))
	return PartOf[T](c, of, q)
}

// PartOf reads the part of a list of the API that a query names.
func PartOf[T any](c *Context, of list.List, q url.Values) (out List[T], err error) {
	var page map[string]json.RawMessage
	if err = c.API.Call(c.Acting(), http.MethodGet, "/api/v1"+of.Path, q, nil, &page); err != nil {
		return out, err
	}
	var next *string
	total := page["total"]
	if total == nil {
		total = json.RawMessage("-1")
	}
	err = errors.Join(
		json.Unmarshal(page[of.Member], &out.Items), json.Unmarshal(total, &out.Total), json.Unmarshal(page["nextCursor"], &next),
	)
	if next != nil {
		out.Next = *next
	}
	return out, err
}

// Filters are fields of the query string that narrow a list, and the same for the API.
func (c *Context) Filters(fields ...Field) ([]Field, url.Values) {
	q := url.Values{}
	for i := range fields {
		f := &fields[i]
		if f.Value = strings.TrimSpace(c.R.URL.Query().Get(f.Name)); f.Value == "" {
			continue
		}
		value := f.Value
		if f.Type == "date" {
			if day, err := time.Parse(time.DateOnly, value); err == nil {
				value = day.Format("2006-01-02T15:04:05.000Z")
			}
		}
		q.Set(f.Name, value)
	}
	return fields, q
}

// Narrowed returns the error of a list; nil for a filter that the API refuses, which the page says above an empty list.
func (c *Context) Narrowed(err error) error {
	if err == nil {
		return nil
	}
	e := toll.AsError(err)
	if e.HTTPStatus() < http.StatusInternalServerError && c.R.URL.Query().Get("cursor") == "" {
		c.Status, c.Fault = e.HTTPStatus(), explained(e)
		return nil
	}
	return c.Failed("list page", err)
}

// Once is [Context.Acting] for what a form creates: a crash in between makes no second one.
func (c *Context) Once() context.Context {
	return client.WithIdempotencyKey(c.Acting(), c.Form.Get("ticket"))
}
