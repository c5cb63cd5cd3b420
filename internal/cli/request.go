package cli

import (
	"context"
	"encoding/json"
	"math"
	"net/url"
	"strconv"

	"github.com/tollhq/toll/internal/list"
)

const apiBase = "/api/v1"

// call makes a call of the API and returns the answer as received, so that its numbers stay exact.
func (a *app) call(ctx context.Context, method, path string, query url.Values, in any) (json.RawMessage, error) {
	var body json.RawMessage
	err := a.client().Call(ctx, method, apiBase+path, query, in, &body)
	return body, err
}

var pageFlags = []flag{
	{"page", "page", digits, "page number, starting at 1"},
	{"offset", "pageSize", digits, "records per page, 1 to 100"},
	{"sort-by", "sortBy", word.offering("created", "updated", "name"), "created, updated, or name"},
	{"sort-order", "sortOrder", word.offering("asc", "desc"), "asc or desc"},
	{"limit", limit, digits, "maximum number of records, from as many pages as needed"},
	{"all", allPages, toggle, "all pages"},
	{"pagination", pagination, object, `page and size as JSON: {"page":1,"offset":10}`},
	{"org-id", orgID, word, "ignored; accepted for compatibility"},
}

// Members of flags that the service does not get as they are.
const (
	allPages   = "all"
	limit      = "limit"
	pagination = "pagination"
	orgID      = "orgId"
)

// list prints one page, or all pages.
func (a *app) list(ctx context.Context, r *request, of list.List) error {
	all := r.in[allPages] == true
	if raw := value[json.RawMessage](r.in, pagination); raw != nil {
		members, err := membersOf(raw)
		if err != nil {
			return err
		}
		for _, m := range members {
			if r.in[m.name] == nil {
				r.in[m.name] = list.TextOf(m.value)
			}
		}
	}
	most := math.MaxInt
	if text := value[string](r.in, limit); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return usagef("--limit must be a number of 1 or more; got %q", text)
		}
		all, most = true, n
	}
	// A table shows as much as one page can have. What programs read keeps the page of the service.
	if r.in["pageSize"] == nil && (all || a.set.output == formatTable && r.in["page"] == nil) {
		r.in["pageSize"] = min(100, most)
	}
	for _, own := range []string{allPages, limit, pagination, orgID} {
		delete(r.in, own)
	}
	if all {
		return a.listAll(ctx, r, of, most)
	}
	got, err := a.request(ctx, r)
	if err != nil {
		return err
	}
	if err := a.showPage(got, of); err != nil {
		return err
	}
	a.cutOff(got, of.Member)
	return nil
}

// cutOff says when a page is not the whole list.
func (a *app) cutOff(page json.RawMessage, member string) {
	var shown []json.RawMessage
	if json.Unmarshal(rawOf(page, member), &shown) != nil || a.set.output == formatQuiet {
		return
	}
	total, err := strconv.Atoi(at(page, "total"))
	switch {
	case err == nil && len(shown) < total:
		a.say("note", "showing %d of %d; use --all to show all", len(shown), total)
	case err != nil && at(page, "nextCursor") != "":
		a.say("note", "showing %d; use --all to show all", len(shown))
	}
}

// listAll follows the cursors, up to a number of records. As JSON the answer is one object with the member alone.
func (a *app) listAll(ctx context.Context, r *request, of list.List, most int) error {
	items := []json.RawMessage{}
	for {
		page, err := a.request(ctx, r)
		if err != nil {
			return err
		}
		var some []json.RawMessage
		if err := json.Unmarshal(rawOf(page, of.Member), &some); err != nil {
			return unreadable(err)
		}
		items = append(items, some[:min(len(some), most-len(items))]...)
		next := at(page, "nextCursor")
		if next == "" || len(items) == most {
			break
		}
		delete(r.in, "page")
		r.in["cursor"] = next
	}
	return a.showPage(map[string]any{of.Member: items, "total": len(items)}, of)
}

// segments joins a path of words, escaping each.
func segments(words ...string) string {
	var path string
	for _, w := range words {
		path += "/" + url.PathEscape(w)
	}
	return path
}

func isDigits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return s != ""
}
