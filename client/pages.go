package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhq/toll"
)

// ListOption shapes a list.
type ListOption func(url.Values)

// PageSize sets how many records one call fetches, 1 to 100, default 100.
func PageSize(n int) ListOption {
	return func(q url.Values) { q.Set("pageSize", strconv.Itoa(min(max(n, 1), 100))) }
}

// SortBy orders by "created" (default), "updated" or "name".
func SortBy(member string) ListOption { return func(q url.Values) { q.Set("sortBy", member) } }

// Ascending turns the order around: the default is newest first.
func Ascending() ListOption { return func(q url.Values) { q.Set("sortOrder", "asc") } }

// OfPlan keeps the permissions of one plan.
func OfPlan(id toll.PlanID) ListOption { return func(q url.Values) { q.Set("planId", string(id)) } }

// WithStatus keeps the permissions in one state.
func WithStatus(s toll.PermissionStatus) ListOption {
	return func(q url.Values) { q.Set("status", string(s)) }
}

// page is one answer of a list, whose records are under one of these names.
type page[T any] struct {
	Plans       []T     `json:"plans"`
	Agents      []T     `json:"agents"`
	Permissions []T     `json:"permissions"`
	APIKeys     []T     `json:"apiKeys"`
	NextCursor  *string `json:"nextCursor"`
}

func (p *page[T]) items(member string) []T {
	switch member {
	case "plans":
		return p.Plans
	case "agents":
		return p.Agents
	case "permissions":
		return p.Permissions
	default:
		return p.APIKeys
	}
}

// list follows the cursors of a list. An error ends it, after the records before it.
func list[T any](ctx context.Context, c *Client, path, member string, opts []ListOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		q := url.Values{"pageSize": {"100"}}
		for _, o := range opts {
			o(q)
		}
		seen := map[string]bool{}
		for {
			var p page[T]
			if _, err := c.do(ctx, call{method: http.MethodGet, path: path, query: q, again: true}, &p); err != nil {
				yield(nil, err)
				return
			}
			items := p.items(member)
			for i := range items {
				if !yield(&items[i], nil) {
					return
				}
			}
			if p.NextCursor == nil || *p.NextCursor == "" {
				return
			}
			if seen[*p.NextCursor] {
				yield(nil, toll.Errorf(toll.CodeInternal, "The service repeats a page of a list."))
				return
			}
			seen[*p.NextCursor] = true
			q.Set("cursor", *p.NextCursor)
		}
	}
}
