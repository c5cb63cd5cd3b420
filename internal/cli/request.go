package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll/x402"
)

const apiBase = "/api/v1"

// call makes a call of the API and returns the answer as received, so that its numbers stay exact.
func (a *app) call(ctx context.Context, method, path string, query url.Values, in any) (json.RawMessage, error) {
	var body json.RawMessage
	err := a.client().Call(ctx, method, apiBase+path, query, in, &body)
	return body, err
}

// send makes a change and prints its answer.
func (a *app) send(ctx context.Context, method, path string, in any) error {
	body, err := a.call(ctx, method, path, nil, in)
	if err != nil {
		return err
	}
	return a.record(body)
}

// showMade is [app.made] for a value.
func (a *app) showMade(v any, member string) error {
	b, err := x402.Encode(v)
	if err != nil {
		return err
	}
	return a.made(b, member)
}

// made prints a record that was made; quiet, it prints the member alone by which others name it.
func (a *app) made(got json.RawMessage, member string) error {
	if a.set.output != formatQuiet {
		return a.record(got)
	}
	_, err := fmt.Fprintln(a.out, clean(at(got, member)))
	return err
}

// paging are the flags of lists.
type paging struct {
	page, size        int
	sortBy, sortOrder string
	all               bool
	pagination        string // JSON {"page":1,"offset":10}
}

func (p *paging) bind(f *pflag.FlagSet) {
	f.IntVar(&p.page, "page", 0, "page number, from 1")
	f.IntVar(&p.size, "offset", 0, "records a page, 1 to 100")
	f.StringVar(&p.sortBy, "sort-by", "", "created, updated or name")
	f.StringVar(&p.sortOrder, "sort-order", "", "asc or desc")
	f.BoolVar(&p.all, "all", false, "every page")
	f.StringVar(&p.pagination, "pagination", "", `page and size as JSON: {"page":1,"offset":10}`)
	f.String("org-id", "", "accepted and ignored")
}

func (p *paging) query(a *app) (url.Values, error) {
	q := url.Values{}
	if p.pagination != "" {
		raw, err := a.objectArgument("pagination", p.pagination)
		if err != nil {
			return nil, err
		}
		members, err := membersOf(raw)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			q.Set(m.name, text(m.value))
		}
	}
	set := func(name, value string) {
		if value != "" && value != "0" {
			q.Set(name, value)
		}
	}
	set("page", strconv.Itoa(p.page))
	set("pageSize", strconv.Itoa(p.size))
	set("sortBy", p.sortBy)
	set("sortOrder", p.sortOrder)
	if p.all && !q.Has("pageSize") {
		q.Set("pageSize", "100")
	}
	return q, nil
}

// list is a command that prints a list.
type list struct {
	use, short string
	aliases    []string
	path       string // in which the words of use stand for the arguments
	member     string // of the answer, that holds the records
	columns    []column
	flags      []flag // by which it filters
}

func (a *app) list(l list) *cobra.Command {
	var p paging
	c := command(l.use, l.short, nil)
	c.Aliases = l.aliases
	filters := a.inputs(c, l.flags)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := p.query(a)
		if err != nil {
			return err
		}
		in, err := filters()
		if err != nil {
			return err
		}
		maps.Copy(q, in.query())
		path := pathOf(l.path, l.use, args)
		if p.all {
			return a.listAll(cmd.Context(), path, q, l.member, l.columns)
		}
		body, err := a.call(cmd.Context(), http.MethodGet, path, q, nil)
		if err != nil {
			return err
		}
		if err := a.page(body, l.member, l.columns); err != nil {
			return err
		}
		a.cutOff(body, l.member)
		return nil
	}
	p.bind(c.Flags())
	return c
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
		a.say("note", "%d of %d; --all shows every one", len(shown), total)
	case err != nil && at(page, "nextCursor") != "":
		a.say("note", "%d of more; --all shows every one", len(shown))
	}
}

// listAll follows the cursors. As JSON the answer is one object with the member alone.
func (a *app) listAll(ctx context.Context, path string, q url.Values, member string, columns []column) error {
	items := []json.RawMessage{}
	for {
		body, err := a.call(ctx, http.MethodGet, path, q, nil)
		if err != nil {
			return err
		}
		var page map[string]json.RawMessage
		var some []json.RawMessage
		var next *string
		if err := json.Unmarshal(body, &page); err != nil {
			return unreadable(err)
		}
		if err := json.Unmarshal(page[member], &some); err != nil {
			return unreadable(err)
		}
		if raw, ok := page["nextCursor"]; ok {
			if err := json.Unmarshal(raw, &next); err != nil {
				return unreadable(err)
			}
		}
		items = append(items, some...)
		if next == nil || *next == "" || len(some) == 0 {
			break
		}
		q.Del("page")
		q.Set("cursor", *next)
	}
	return a.showPage(map[string]any{member: items, "total": len(items)}, member, columns)
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
