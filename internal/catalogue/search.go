package catalogue

import (
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
	// maxAnswerBytes ends an answer before it has as many items as were requested.
	maxAnswerBytes = 512 << 10
	// maxQueryBytes and maxQueryWords bound a query: each word is searched in every text.
	maxQueryBytes = 256
	maxQueryWords = 16
)

// answer collects the items of an answer. Items of one agent share their payment requirements.
type answer struct {
	brand   Brand
	items   []x402.CatalogueItem
	bytes   int
	accepts map[acceptsKey][]x402.Requirements
}

type acceptsKey struct {
	agent *listedAgent
	verb  string
}

func (c *Catalogue) newAnswer() *answer {
	return &answer{brand: c.Brand, items: []x402.CatalogueItem{}, accepts: map[acceptsKey][]x402.Requirements{}}
}

// add appends an item and reports whether it had room. The first item always has.
func (r *answer) add(i item) (bool, error) {
	shown, err := r.show(i)
	if err != nil {
		return false, err
	}
	const entryBytes = 512 // about an entry of accepts, and what every item has
	n := len(shown.Resource) + len(shown.Description) + len(shown.Extensions[x402.ExtensionBazaar]) + (1+len(shown.Accepts))*entryBytes
	if r.bytes += n; r.bytes > maxAnswerBytes && len(r.items) > 0 {
		return false, nil
	}
	r.items = append(r.items, shown)
	return true, nil
}

func (r *answer) show(i item) (s x402.CatalogueItem, err error) {
	e, a := i.endpoint(), i.agent
	s.Type, s.Resource, s.X402Version, s.Description = i.kind(), e.resource, x402.Version, a.description
	s.Metadata.AgentID = a.stamp.ID
	at := store.FromMicros(i.updated())
	s.LastUpdated, s.LastUpdatedAt = at.Unix(), at.Format(time.RFC3339)
	var about struct {
		Info          json.RawMessage `json:"info"`
		RouteTemplate string          `json:"routeTemplate,omitempty"`
	}
	if d, ok := a.said[e.position]; ok {
		about.Info, s.MimeType = json.RawMessage(d.Info), d.MimeType
	} else if about.Info, err = i.info(); err != nil {
		return s, err
	}
	k := acceptsKey{a, e.verb}
	if s.Type == x402.ResourceMCP {
		k.verb = "POST"
	}
	if r.accepts[k] == nil {
		terms := store.Mapped(a.plans, func(p *listedPlan) *x402.Terms { return p.terms })
		r.accepts[k] = x402.NewPaymentRequired(terms, x402.Options{
			Namespace: r.brand.Names, Environment: r.brand.Environment, AgentID: a.stamp.ID, HTTPVerb: k.verb,
		}).Accepts
	}
	s.Accepts = r.accepts[k]
	if e.template {
		_, path, _ := strings.Cut(e.resource, "://")
		about.RouteTemplate = path[strings.IndexByte(path, '/'):]
	}
	extension, err := x402.Encode(&about)
	s.Extensions = map[string]json.RawMessage{x402.ExtensionBazaar: extension}
	return s, err
}

// input describes how an HTTP endpoint or a tool is called.
type input struct {
	Type        string            `json:"type"`
	Method      string            `json:"method,omitempty"`
	BodyType    string            `json:"bodyType,omitempty"`
	Body        *struct{}         `json:"body,omitzero"`
	Tool        string            `json:"toolName,omitempty"`
	Description string            `json:"description,omitempty"`
	Schema      map[string]string `json:"inputSchema,omitempty"`
}

// info describes an item by what its builder registered.
func (i item) info() (json.RawMessage, error) {
	e := i.endpoint()
	in := input{Type: x402.ResourceHTTP, Method: e.verb}
	if tool, ok := x402.ToolOf(e.resource); ok {
		in = input{Type: x402.ResourceMCP, Tool: tool, Description: i.agent.description, Schema: map[string]string{"type": "object"}}
	} else if slices.Contains([]string{"POST", "PUT", "PATCH"}, e.verb) {
		in.BodyType, in.Body = "json", &struct{}{}
	}
	return x402.Encode(map[string]*input{"input": &in})
}

func (c *Catalogue) picked(l *listing, by x402.CatalogueFilter) iter.Seq[item] {
	none := by.Extension != "" && by.Extension != x402.ExtensionBazaar
	if by.PayTo != "" {
		payTo, err := toll.ParseAddress(by.PayTo)
		none = none || err != nil // no plan pays to a malformed address
		by.PayTo = payTo.String() // as items have it
	}
	passes := func(p *listedPlan) bool {
		return (by.PayTo == "" || p.terms.PayTo == by.PayTo) && (by.Scheme == "" || p.terms.Scheme == by.Scheme) &&
			(by.Network == "" || x402.SameNetwork(p.terms.Network, by.Network, c.Brand.Environment))
	}
	return func(yield func(item) bool) {
		if none {
			return
		}
		paid := map[*listedAgent]bool{} // one of its plans passes
		for _, i := range l.items {
			if by.Type != "" && i.kind() != by.Type {
				continue
			}
			ok, known := paid[i.agent]
			if !known {
				ok = slices.ContainsFunc(i.agent.plans, passes)
				paid[i.agent] = ok
			}
			if ok && !yield(i) {
				return
			}
		}
	}
}

// List returns what can be bought, last updated first: limit items from offset on. An answer that would exceed about 512 KiB has
// fewer items, and its Pagination.Limit says how many.
func (c *Catalogue) List(ctx context.Context, by x402.CatalogueFilter, limit, offset int) (*x402.Catalogue, error) {
	l, _, err := c.listing.Get(ctx, struct{}{})
	if err != nil {
		return nil, err
	}
	r := c.newAnswer()
	total := 0
	for i := range c.picked(l, by) {
		if n := total - offset; n >= 0 && n < limit {
			ok, err := r.add(i)
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

type search struct {
	listing *listing
	words   []string // in lower case
	after   *spot    // where an earlier answer stopped; nil: from the beginning
}

// begin reads a query and its cursor, and waits while another search runs, so that searches use one processor at most. The caller
// calls done. Errors: [toll.CodeBadPage], [toll.CodeUnavailable].
func (c *Catalogue) begin(ctx context.Context, query, cursor string) (s search, done func(), err error) {
	if s.after, err = readCursor(cursor); err != nil {
		return s, nil, err
	}
	s.words = strings.Fields(strings.ToLower(query))
	if len(query) > maxQueryBytes || len(s.words) > maxQueryWords {
		return s, nil, toll.Errorf(toll.CodeBadPage, "A query must have at most %d bytes and %d words.", maxQueryBytes, maxQueryWords).
			WithParam("parameter", "query")
	}
	if s.listing, _, err = c.listing.Get(ctx, struct{}{}); err != nil {
		return s, nil, err
	}
	select {
	case c.searching <- struct{}{}:
		return s, func() { <-c.searching }, nil
	case <-ctx.Done():
		return s, nil, toll.NewError(toll.CodeUnavailable)
	}
}

// Search is List for items with each word of a query in the name, the description, or a tag of their agent, the name of a plan, or
// their URL. cursor is that of the previous answer. Errors: [toll.CodeBadPage] for a cursor that was not issued here, and for a
// query of more than 256 bytes or 16 words; [toll.CodeUnavailable].
func (c *Catalogue) Search(ctx context.Context, query string, by x402.CatalogueFilter, limit int, cursor string) (*x402.FoundResources, error) {
	s, done, err := c.begin(ctx, query, cursor)
	if err != nil {
		return nil, err
	}
	defer done()
	found := &x402.FoundResources{X402Version: x402.Version}
	r := c.newAnswer()
	left := map[*listedAgent][]string{} // the words that an agent does not have, so that its URLs must
	var last item
	for i := range c.picked(s.listing, by) {
		if s.after != nil && i.spot().compare(*s.after) <= 0 {
			continue
		}
		words, known := left[i.agent]
		if !known {
			words = i.agent.without(s.words)
			left[i.agent] = words
		}
		if !i.endpoint().has(words) {
			continue
		}
		ok := len(r.items) < limit
		if ok {
			if ok, err = r.add(i); err != nil {
				return nil, err
			}
		}
		if !ok {
			found.PartialResults = true
			next := last.spot().cursor()
			found.Pagination.Cursor = &next
			break
		}
		last = i
	}
	found.Resources, found.Pagination.Limit = r.items, len(r.items)
	return found, nil
}

// FindAgents returns the listed agents with each word of a query in their name, description, or tags, in the name of a plan, or in a
// URL: at most limit, last updated first. next is the cursor of the next call, "" at the end. Errors are those of [Catalogue.Search].
func (c *Catalogue) FindAgents(ctx context.Context, query string, limit int, cursor string) (found []*store.ListedAgent, next string, err error) {
	s, done, err := c.begin(ctx, query, cursor)
	if err != nil {
		return nil, "", err
	}
	defer done()
	var last *listedAgent
	for _, a := range s.listing.sorted {
		if s.after != nil && a.spot().compare(*s.after) <= 0 || !a.has(s.words) {
			continue
		}
		if len(found) == limit {
			return found, last.spot().cursor(), nil
		}
		found, last = append(found, a.stamp), a
	}
	return found, "", nil
}

// has reports whether each word is in the texts of the agent, in the name of a plan, or in a URL.
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

func (e *listedEndpoint) has(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.lower, w) })
}

func (s spot) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(s.updated, 10) + "," + s.key))
}

func readCursor(text string) (*spot, error) {
	if text == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	at, key, ok := strings.Cut(string(b), ",")
	if err == nil && ok && key != "" {
		if updated, err := strconv.ParseInt(at, 10, 64); err == nil {
			return &spot{updated, key}, nil
		}
	}
	return nil, toll.Errorf(toll.CodeBadPage, "The cursor was not issued by this service.")
}
