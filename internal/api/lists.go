package api

import (
	"context"
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

// Paging is what every list answer has beside its records. The count has three names and the size two, as three kinds
// of clients read them.
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
	out := Paging{Total: l.Total, TotalCount: l.Total, TotalResults: l.Total, Page: p.Number, Offset: p.Size, PageSize: p.Size}
	if l.Next != "" {
		out.NextCursor = &l.Next
	}
	return out
}

// values returns the query string; a parameter that is there twice could mean two things.
func (c *call) values() (url.Values, error) {
	if c.r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, toll.Errorf(toll.CodeBadRequest, "The query string cannot be read.")
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
	ctx, cancel := context.WithTimeout(c.r.Context(), listTime)
	context.AfterFunc(c.r.Context(), cancel) // net/http ends that one with the request
	c.r = c.r.WithContext(ctx)
	p := store.Page{Number: 1, Size: 10, Sort: store.SortCreated}
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
			case "name":
				p.Sort = store.SortName
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
