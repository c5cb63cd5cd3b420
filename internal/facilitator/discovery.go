package facilitator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// catalogueTTL is how old the catalogue may be. It is the same for everybody, so one read serves all.
	catalogueTTL = 5 * time.Second
	// catalogueBound is how many agents are in it, those that were last updated.
	catalogueBound = 10_000
)

// listing is an item of the catalogue, with what finds and orders it.
type listing struct {
	x402.CatalogueItem
	updated int64  // microseconds since 1970
	key     string // unique
	text    string // in lower case: what a search looks through
}

// before reports whether a stands before b: what was updated last comes first.
func (a *listing) before(updated int64, key string) bool {
	return a.updated > updated || a.updated == updated && a.key < key
}

// readCatalogue makes the catalogue: the endpoints and tools of listed agents with a listed plan. Endpoints that are paths,
// or that end in a wildcard, have no url to call and are left out.
func (f *Facilitator) readCatalogue(ctx context.Context, _ struct{}) ([]listing, error) {
	l, err := store.ReadListed(ctx, f.store, catalogueBound)
	if err != nil {
		return nil, err
	}
	var all []listing
	for _, a := range l.Agents {
		var terms []*x402.Terms
		names := []string{a.Metadata.Name, a.Metadata.Description}
		for _, ref := range a.Plans {
			terms = append(terms, f.termsOf(l.Plans[ref.PlanID]))
			names = append(names, ref.Name)
		}
		words := strings.ToLower(strings.Join(append(names, a.Metadata.Tags...), "\n"))
		for i, e := range a.API.Endpoints {
			item, ok := f.listed(a, e, terms, l.Discovered[a.ID])
			if !ok || slices.Contains(a.API.OpenEndpoints, e.URL) {
				continue
			}
			item.key = string(a.ID) + "/" + strconv.Itoa(i)
			item.text = words + "\n" + strings.ToLower(item.Resource)
			all = append(all, item)
		}
	}
	slices.SortFunc(all, func(a, b listing) int {
		return cmp.Or(cmp.Compare(b.updated, a.updated), strings.Compare(a.key, b.key))
	})
	return all, nil
}

// listed returns the item of an endpoint; false when it cannot be listed.
func (f *Facilitator) listed(a *toll.Agent, e toll.Endpoint, terms []*x402.Terms, known []store.Discovered) (item listing, ok bool) {
	info, resource, template := registeredInfo(a, e)
	if info == nil {
		return item, false
	}
	verb := e.Verb
	item.Type = x402.ResourceHTTP
	if strings.HasPrefix(strings.ToLower(e.URL), "mcp:") {
		item.Type, verb = x402.ResourceMCP, "POST"
	}
	item.Resource, item.X402Version, item.Description = resource, x402.Version, a.Metadata.Description
	item.Metadata.AgentID = a.ID
	updated := a.UpdatedAt
	for _, d := range known {
		if d.Verb == e.Verb && d.URL == e.URL {
			info, item.MimeType = json.RawMessage(d.Info), d.MimeType
			if d.UpdatedAt.After(updated) {
				updated = d.UpdatedAt
			}
		}
	}
	item.updated, item.LastUpdated = updated.UnixMicro(), updated.Unix()
	item.LastUpdatedAt = updated.UTC().Format(time.RFC3339)
	item.Accepts = x402.NewPaymentRequired(terms, x402.Options{
		Namespace: f.ns, Environment: f.env, AgentID: a.ID, HTTPVerb: verb,
	}).Accepts
	extension, err := x402.Encode(&struct {
		Info          json.RawMessage `json:"info"`
		RouteTemplate string          `json:"routeTemplate,omitempty"`
	}{info, template})
	if err != nil {
		return item, false
	}
	item.Extensions = map[string]json.RawMessage{x402.ExtensionBazaar: extension}
	return item, true
}

type httpInput struct {
	Type     string    `json:"type"`
	Method   string    `json:"method"`
	BodyType string    `json:"bodyType,omitempty"`
	Body     *struct{} `json:"body,omitzero"`
}

type toolInput struct {
	Type        string `json:"type"`
	Tool        string `json:"toolName"`
	Description string `json:"description,omitempty"`
	Schema      struct {
		Type string `json:"type"`
	} `json:"inputSchema"`
}

// registeredInfo describes an endpoint by what its builder registered; nil when the catalogue has no place for it.
func registeredInfo(a *toll.Agent, e toll.Endpoint) (info json.RawMessage, resource, template string) {
	var input any
	if tool, ok := x402.ToolOf(e.URL); ok {
		in := toolInput{Type: x402.ResourceMCP, Tool: tool, Description: a.Metadata.Description}
		in.Schema.Type = "object"
		input, resource = in, e.URL
	} else {
		in := httpInput{Type: x402.ResourceHTTP, Method: e.Verb}
		switch e.Verb {
		case "GET", "HEAD", "DELETE":
		case "POST", "PUT", "PATCH":
			in.BodyType, in.Body = "json", &struct{}{}
		default:
			return nil, "", "" // the extension has no such method
		}
		if resource, template, ok = x402.RouteOf(e.URL); !ok {
			return nil, "", ""
		}
		input = in
	}
	info, err := x402.Encode(&struct {
		Input any `json:"input"`
	}{input})
	if err != nil {
		return nil, "", ""
	}
	return info, resource, template
}

// picked returns the items that pass a filter.
func (f *Facilitator) picked(ctx context.Context, by x402.CatalogueFilter) ([]listing, error) {
	all, _, err := f.catalogue.get(ctx, struct{}{})
	if err != nil {
		return nil, err
	}
	if by.PayTo != "" {
		payTo, err := toll.ParseAddress(by.PayTo)
		if err != nil {
			return nil, nil // nobody is paid there
		}
		by.PayTo = payTo.String() // as items have it
	}
	var out []listing
	for _, l := range all {
		if by.Type != "" && l.Type != by.Type {
			continue
		}
		if _, ok := l.Extensions[by.Extension]; by.Extension != "" && !ok {
			continue
		}
		if slices.ContainsFunc(l.Accepts, func(r x402.Requirements) bool {
			return (by.PayTo == "" || r.PayTo == by.PayTo) && (by.Scheme == "" || r.Scheme == by.Scheme) &&
				(by.Network == "" || x402.SameNetwork(r.Network, by.Network, f.env))
		}) {
			out = append(out, l)
		}
	}
	return out, nil
}

// Catalogue lists what can be paid for here, last updated first: limit items from offset on.
func (f *Facilitator) Catalogue(ctx context.Context, by x402.CatalogueFilter, limit, offset int) (*x402.Catalogue, error) {
	items, err := f.picked(ctx, by)
	if err != nil {
		return nil, err
	}
	c := &x402.Catalogue{
		X402Version: x402.Version, Items: []x402.CatalogueItem{},
		Pagination: x402.CataloguePage{Limit: limit, Offset: offset, Total: len(items)},
	}
	for i := offset; i < len(items) && len(c.Items) < limit; i++ {
		c.Items = append(c.Items, items[i].CatalogueItem)
	}
	return c, nil
}

// Search is Catalogue for items that have each word of a query in the name, the description or a tag of their agent, the
// name of a plan, or their url. The cursor is that of the part before; one that was not issued here is an error with
// [toll.CodeBadPage].
func (f *Facilitator) Search(ctx context.Context, query string, by x402.CatalogueFilter, limit int, cursor string) (*x402.FoundResources, error) {
	updated, key, err := readCursor(cursor)
	if err != nil {
		return nil, err
	}
	items, err := f.picked(ctx, by)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(query))
	r := &x402.FoundResources{X402Version: x402.Version, Resources: []x402.CatalogueItem{}}
	var last *listing
	for i := range items {
		l := &items[i]
		if cursor != "" && (l.before(updated, key) || l.updated == updated && l.key == key) {
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l.text, w) }) {
			continue
		}
		if len(r.Resources) == limit {
			r.PartialResults = true
			next := base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(last.updated, 10) + "," + last.key))
			r.Pagination.Cursor = &next
			break
		}
		r.Resources = append(r.Resources, l.CatalogueItem)
		last = l
	}
	r.Pagination.Limit = len(r.Resources)
	return r, nil
}

func readCursor(s string) (updated int64, key string, err error) {
	if s == "" {
		return 0, "", nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	at, key, ok := strings.Cut(string(b), ",")
	if err == nil && ok && key != "" {
		if updated, err = strconv.ParseInt(at, 10, 64); err == nil {
			return updated, key, nil
		}
	}
	return 0, "", toll.Errorf(toll.CodeBadPage, "The cursor was not issued by this service.")
}
