package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// maxQueryValue bounds a parameter of the query string, in bytes.
const maxQueryValue = 4096

// Paging is what every list answer has beside its records. The count has three names and the size two, as three kinds of clients read them.
type Paging struct {
	Total        int64   `json:"total"`
	TotalCount   int64   `json:"totalCount"`
	TotalResults int64   `json:"totalResults"`
	Page         int     `json:"page"`
	Offset       int     `json:"offset"`
	PageSize     int     `json:"pageSize"`
	NextCursor   *string `json:"nextCursor"`
}

func pagingOf[T any](p store.Page, l store.List[T]) Paging {
	return Paging{
		Total: l.Total, TotalCount: l.Total, TotalResults: l.Total, Page: p.Number, Offset: p.Size, PageSize: p.Size,
		NextCursor: store.NonZero(l.Next),
	}
}

// values returns the query string; a parameter that is there twice could mean two things.
func (c *call) values() (url.Values, error) {
	if c.r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, toll.Errorf(toll.CodeBadRequest, "The query string is malformed.")
	}
	for name, values := range q {
		for _, v := range values {
			if len(v) > maxQueryValue || len(name) > maxQueryValue {
				return nil, toll.NewError(toll.CodeQueryTooLong)
			}
		}
	}
	return q, nil
}

// listTime is how long the database may look for one page.
const listTime = 5 * time.Second

// page reads the paging parameters. What the call reads from here on has a deadline: a list is the dearest read there is.
func (c *call) page() (store.Page, url.Values, error) {
	ctx, cancel := context.WithTimeout(c.context, listTime)
	context.AfterFunc(c.context, cancel) // net/http ends that one with the request
	c.context = ctx
	p := store.Page{Number: 1, Size: 10}
	q, err := c.values()
	if err != nil {
		return p, nil, err
	}
	bad := func(name string) (store.Page, url.Values, error) {
		return p, nil, toll.NewError(toll.CodeBadPage).WithParam("parameter", name)
	}
	for _, name := range []string{"page", "offset", "limit", "pageSize", "sortBy", "sortOrder", "cursor"} {
		values, ok := q[name]
		if !ok {
			continue
		}
		if len(values) != 1 {
			return bad(name)
		}
		v := values[0]
		switch name {
		case "page":
			if p.Number, ok = whole(v, math.MaxInt32); !ok {
				return bad(name)
			}
		case "offset", "limit", "pageSize": // the last one wins
			if p.Size, ok = whole(v, 100); !ok {
				return bad(name)
			}
		case "sortBy":
			switch strings.ToLower(v) {
			case "created", "createdat":
				p.Sort = store.SortCreated
			case "updated", "updatedat":
				p.Sort = store.SortUpdated
			case "name", "subscriber", "plan", "group", "ended":
				p.Sort = store.Sort(strings.ToLower(v))
			default:
				return bad(name)
			}
		case "sortOrder":
			switch strings.ToLower(v) {
			case "asc":
				p.Ascending = true
			case "desc":
			default:
				return bad(name)
			}
		case "cursor":
			if v == "" {
				return bad(name)
			}
			p.Cursor = v
		}
	}
	return p, q, nil
}

// whole reads 1 to most, in the one grammar of numbers.
func whole(s string, most int) (int, bool) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n <= most
}

// filters reads the parameters by which a list filters. The first one that is wrong is the error.
type filters struct {
	q   url.Values
	err error
}

// filter reads a parameter, zero when it is not there.
func filter[T any](f *filters, name string, parse func(string) (T, error)) (v T) {
	values := f.q[name]
	if f.err != nil || len(values) == 0 || len(values) == 1 && values[0] == "" {
		return v
	}
	if len(values) > 1 {
		f.err = toll.Faults([]toll.Fault{{Path: name, Message: "must be sent only once"}})
		return v
	}
	got, err := parse(values[0])
	if e, ok := errors.AsType[*toll.Error](err); ok && e.Code != toll.CodeBadRequest {
		f.err = e.WithParam("parameter", name)
		return v
	}
	if err != nil {
		f.err = toll.Faults([]toll.Fault{{Path: name, Message: err.Error()}})
		return v
	}
	return got
}

// between reads the range of times of a list.
func (f *filters) between() (since, until time.Time) {
	since, until = filter(f, "since", parseMoment), filter(f, "until", parseMoment)
	if f.err == nil && !until.IsZero() && until.Before(since) {
		f.err = toll.Faults([]toll.Fault{{Path: "until", Message: "must not be before since"}})
	}
	return since, until
}

// parseMoment reads a time, or a day for its beginning in UTC.
func parseMoment(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := toll.ParseTime(s)
	if err != nil {
		return t, fmt.Errorf("must be an ISO 8601 time or a day such as 2026-11-21; got %.40q", s)
	}
	return t, nil
}

// wordOf reads one of some words in any case.
func wordOf(words ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		for _, w := range words {
			if strings.EqualFold(s, w) {
				return w, nil
			}
		}
		return "", fmt.Errorf("must be %s; got %.32q", strings.Join(words, " or "), s)
	}
}

// between describes what [filters.between] reads.
var between = []query{
	{"since", "Only records created at or after this time: ISO 8601, or a day in UTC."},
	{"until", "Only records created before this time: ISO 8601, or a day in UTC."},
}
