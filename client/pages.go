package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// ListOption configures a list.
type ListOption func(url.Values)

// PageSize sets how many records one call fetches, 1 to 100, default 100.
func PageSize(n int) ListOption { return Filter("pageSize", strconv.Itoa(min(max(n, 1), 100))) }

// SortBy sorts by "created" (the default of most lists), "updated", or "name"; subscribers by "subscriber", holdings by "plan".
func SortBy(member string) ListOption { return Filter("sortBy", member) }

// Ascending reverses the default order, which is newest first.
func Ascending() ListOption { return Filter("sortOrder", "asc") }

// OfPlan filters by plan.
func OfPlan(id toll.PlanID) ListOption { return Filter("planId", string(id)) }

// Accessible selects active delegations with a remaining budget and payment methods that this API key may use now.
func Accessible() ListOption { return Filter("accessible", "true") }

// OfProvider filters payment methods by provider.
func OfProvider(p toll.Provider) ListOption { return Filter("provider", string(p)) }

// Since selects records at or after t, with millisecond precision.
func Since(t time.Time) ListOption { return Filter("since", moment(t)) }

// Until selects records before t, with millisecond precision.
func Until(t time.Time) ListOption { return Filter("until", moment(t)) }

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Filter sets a query parameter of a list.
func Filter(name, value string) ListOption { return func(q url.Values) { q.Set(name, value) } }

// WithStatus filters permissions by state.
func WithStatus(s toll.PermissionStatus) ListOption { return Filter("status", string(s)) }

// list returns the items of all pages of a list. An error ends the sequence.
func list[T any](ctx context.Context, c *Client, path, member string, opts []ListOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		q := url.Values{"pageSize": {"100"}}
		for _, o := range opts {
			o(q)
		}
		seen := map[string]bool{}
		for {
			var p map[string]json.RawMessage
			a, err := c.do(ctx, call{method: http.MethodGet, path: path, query: q, idempotent: true}, &p)
			if err != nil {
				yield(nil, err)
				return
			}
			var items []T
			var next *string
			err = x402.Decode(p[member], &items)
			if p["nextCursor"] != nil {
				err = errors.Join(err, x402.Decode(p["nextCursor"], &next))
			}
			if err != nil {
				yield(nil, unreadable(a, err))
				return
			}
			for i := range items {
				if !yield(&items[i], nil) {
					return
				}
			}
			if next == nil || *next == "" {
				return
			}
			if seen[*next] {
				yield(nil, toll.Errorf(toll.CodeInternal, "The service returned the same page of a list again."))
				return
			}
			seen[*next] = true
			q.Set("cursor", *next)
		}
	}
}
