package facilitator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// maxAnswerBytes is where an answer ends before it has as many items as were asked for.
	maxAnswerBytes = 512 << 10
	// maxQueryBytes and maxQueryWords bound what a search looks for: each word is looked for in every text.
	maxQueryBytes = 256
	maxQueryWords = 16
)

// answer collects the items of an answer. Items of one agent share what they accept.
type answer struct {
	f       *Facilitator
	items   []x402.CatalogueItem
	bytes   int
	accepts map[acceptsKey][]x402.Requirements
}

type acceptsKey struct {
	agent *listedAgent
	verb  string
}

func (f *Facilitator) newAnswer() *answer {
	return &answer{f: f, items: []x402.CatalogueItem{}, accepts: map[acceptsKey][]x402.Requirements{}}
}

// add appends an item and reports whether it had room. The first item always has.
func (r *answer) add(p place) (bool, error) {
	item, err := r.item(p)
	if err != nil {
		return false, err
	}
	const entryBytes = 512 // about an entry of accepts, and what every item has
	n := len(item.Resource) + len(item.Description) + len(item.Extensions[x402.ExtensionBazaar]) + (1+len(item.Accepts))*entryBytes
	if r.bytes += n; r.bytes > maxAnswerBytes && len(r.items) > 0 {
		return false, nil
	}
	r.items = append(r.items, item)
	return true, nil
}

func (r *answer) item(p place) (item x402.CatalogueItem, err error) {
	e, a := p.listed(), p.agent
	item.Type, item.Resource, item.X402Version, item.Description = p.kind(), e.resource, x402.Version, a.description
	item.Metadata.AgentID = a.stamp.ID
	at := store.FromMicros(p.updated())
	item.LastUpdated, item.LastUpdatedAt = at.Unix(), at.Format(time.RFC3339)
	info, err := p.info()
	if d, ok := a.said[e.position]; ok {
		info, item.MimeType, err = json.RawMessage(d.Info), d.MimeType, nil
	}
	if err != nil {
		return item, err
	}
	k := acceptsKey{a, e.verb}
	if item.Type == x402.ResourceMCP {
		k.verb = "POST"
	}
	var known bool
	if item.Accepts, known = r.accepts[k]; !known {
		terms := store.Mapped(a.plans, func(p *listedPlan) *x402.Terms { return p.terms })
		item.Accepts = x402.NewPaymentRequired(terms, x402.Options{
			Namespace: r.f.ns, Environment: r.f.env, AgentID: a.stamp.ID, HTTPVerb: k.verb,
		}).Accepts
		r.accepts[k] = item.Accepts
	}
	template := ""
	if e.template {
		_, rest, _ := strings.Cut(e.resource, "://")
		template = rest[strings.IndexByte(rest, '/'):]
	}
	extension, err := x402.Encode(&struct {
		Info          json.RawMessage `json:"info"`
		RouteTemplate string          `json:"routeTemplate,omitempty"`
	}{info, template})
	item.Extensions = map[string]json.RawMessage{x402.ExtensionBazaar: extension}
	return item, err
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

// info describes an item by what its builder registered.
func (p place) info() (json.RawMessage, error) {
	var input any
	e := p.listed()
	if tool, ok := x402.ToolOf(e.resource); ok {
		in := toolInput{Type: x402.ResourceMCP, Tool: tool, Description: p.agent.description}
		in.Schema.Type = "object"
		input = in
	} else {
		in := httpInput{Type: x402.ResourceHTTP, Method: e.verb}
		switch e.verb {
		case "POST", "PUT", "PATCH":
			in.BodyType, in.Body = "json", &struct{}{}
		}
		input = in
	}
	return x402.Encode(&struct {
		Input any `json:"input"`
	}{input})
}

// picked returns the items that pass a filter.
func (f *Facilitator) picked(ctx context.Context, by x402.CatalogueFilter) (iter.Seq[place], error) {
	c, _, err := f.catalogue.get(ctx, struct{}{})
	if err != nil {
		return nil, err
	}
	none := by.Extension != "" && by.Extension != x402.ExtensionBazaar
	if by.PayTo != "" {
		payTo, err := toll.ParseAddress(by.PayTo)
		none = none || err != nil // nobody is paid there
		by.PayTo = payTo.String() // as items have it
	}
	return func(yield func(place) bool) {
		if none {
			return
		}
		paid := map[*listedAgent]bool{}
		for _, p := range c.items {
			if by.Type != "" && p.kind() != by.Type {
				continue
			}
			ok, known := paid[p.agent]
			if !known {
				ok = f.passes(p.agent, by)
				paid[p.agent] = ok
			}
			if ok && !yield(p) {
				return
			}
		}
	}, nil
}

// passes reports whether one and the same plan of an agent passes a filter.
func (f *Facilitator) passes(a *listedAgent, by x402.CatalogueFilter) bool {
	return slices.ContainsFunc(a.plans, func(p *listedPlan) bool {
		return (by.PayTo == "" || p.terms.PayTo == by.PayTo) && (by.Scheme == "" || p.terms.Scheme == by.Scheme) &&
			(by.Network == "" || x402.SameNetwork(p.terms.Network, by.Network, f.env))
	})
}

// Catalogue lists what can be paid for here, last updated first: limit items from offset on. An answer that would be larger than
// about 512 KiB has fewer items, and its Pagination.Limit says how many.
func (f *Facilitator) Catalogue(ctx context.Context, by x402.CatalogueFilter, limit, offset int) (*x402.Catalogue, error) {
	items, err := f.picked(ctx, by)
	if err != nil {
		return nil, err
	}
	r := f.newAnswer()
	total := 0
	for p := range items {
		if i := total - offset; i >= 0 && i < limit {
			ok, err := r.add(p)
			if err != nil {
				return nil, err
			}
			if !ok {
				limit = len(r.items)
			}
		}
		total++
	}
	return &x402.Catalogue{
		X402Version: x402.Version, Items: r.items,
		Pagination: x402.CataloguePage{Limit: limit, Offset: offset, Total: total},
	}, nil
}

// Search is Catalogue for items that have each word of a query in the name, the description or a tag of their agent, the
// name of a plan, or their url. The cursor is that of the part before. Errors: [toll.CodeBadPage] for a cursor that was not
// issued here, and for a query of more than 256 bytes or 16 words.
func (f *Facilitator) Search(ctx context.Context, query string, by x402.CatalogueFilter, limit int, cursor string) (*x402.FoundResources, error) {
	updated, key, err := readCursor(cursor)
	if err != nil {
		return nil, err
	}
	words, err := wordsOf(query)
	if err != nil {
		return nil, err
	}
	items, err := f.picked(ctx, by)
	if err != nil {
		return nil, err
	}
	done, err := f.search(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	found := &x402.FoundResources{X402Version: x402.Version}
	r := f.newAnswer()
	left := map[*listedAgent][]string{} // the words that an agent does not have, so that its urls must
	var last place
	for p := range items {
		if cursor != "" && cmp.Or(cmp.Compare(updated, p.updated()), strings.Compare(p.key(), key)) <= 0 {
			continue // it stands before the cursor: what was updated last comes first
		}
		rest, known := left[p.agent]
		if !known {
			rest = p.agent.without(words)
			left[p.agent] = rest
		}
		if !p.has(rest) {
			continue
		}
		ok := len(r.items) < limit
		if ok {
			if ok, err = r.add(p); err != nil {
				return nil, err
			}
		}
		if !ok {
			found.PartialResults = true
			next := encodeCursor(last.updated(), last.key())
			found.Pagination.Cursor = &next
			break
		}
		last = p
	}
	found.Resources, found.Pagination.Limit = r.items, len(r.items)
	return found, nil
}

// wordsOf returns the words of a query in lower case. Errors: [toll.CodeBadPage] for more than 256
// bytes or 16 words.
func wordsOf(query string) ([]string, error) {
	words := strings.Fields(strings.ToLower(query))
	if len(query) > maxQueryBytes || len(words) > maxQueryWords {
		return nil, toll.Errorf(toll.CodeBadPage, "A query has at most %d bytes and %d words.", maxQueryBytes, maxQueryWords).
			WithParam("parameter", "query")
	}
	return words, nil
}

// search waits for its turn: one search at a time takes one processor at most. The caller calls done.
func (f *Facilitator) search(ctx context.Context) (done func(), err error) {
	select {
	case f.searching <- struct{}{}:
		return func() { <-f.searching }, nil
	case <-ctx.Done():
		return nil, toll.NewError(toll.CodeUnavailable)
	}
}

// FindAgents returns the agents of the catalogue that have each word of a query in their name,
// description or tags, in the name of a plan, or in a url; last updated first, at most limit of
// them. The cursor is that of the part before; next is "" after the last part. Errors are those of
// [Facilitator.Search].
func (f *Facilitator) FindAgents(ctx context.Context, query string, limit int, cursor string) (found []*store.ListedAgent, next string, err error) {
	updated, id, err := readCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	words, err := wordsOf(query)
	if err != nil {
		return nil, "", err
	}
	c, _, err := f.catalogue.get(ctx, struct{}{})
	if err != nil {
		return nil, "", err
	}
	done, err := f.search(ctx)
	if err != nil {
		return nil, "", err
	}
	defer done()
	var last *listedAgent
	for _, a := range c.listed {
		if cursor != "" && a.compare(updated, id) >= 0 || !a.has(words) {
			continue
		}
		if len(found) == limit {
			return found, encodeCursor(last.updated, string(last.stamp.ID)), nil
		}
		found, last = append(found, a.stamp), a
	}
	return found, "", nil
}

// has reports whether each word is in the texts of the agent, in the name of a plan, or in a url.
func (l *listedAgent) has(words []string) bool {
	return !slices.ContainsFunc(l.without(words), func(word string) bool {
		return !slices.ContainsFunc(l.endpoints, func(e listedEndpoint) bool { return strings.Contains(e.lower, word) })
	})
}

// without returns the words that neither an agent nor the names of its plans have.
func (l *listedAgent) without(words []string) []string {
	var out []string
	for _, w := range words {
		if !strings.Contains(l.text, w) && !slices.ContainsFunc(l.plans, func(p *listedPlan) bool { return strings.Contains(p.name, w) }) {
			out = append(out, w)
		}
	}
	return out
}

// has reports whether the url of an item has all words.
func (p place) has(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.listed().lower, w) })
}

// encodeCursor returns a cursor that points behind a place of the catalogue.
func encodeCursor(updated int64, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(updated, 10) + "," + key))
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
