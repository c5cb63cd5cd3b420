package api

import (
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// searched are the kinds of records that a search finds, in the order of its answer.
var searched = []string{
	store.FoundPlan, store.FoundAgent, store.FoundOrder, store.FoundKey, store.FoundPermission, store.FoundDelegation, store.FoundWebhook,
}

// maxFound is how many records of each kind a search answers, maxSearch how long its text may be, in characters.
const (
	maxFound  = 20
	maxSearch = 128
)

func searchRoutes(db store.Querier) []route {
	return []route{{
		op: "search", method: "GET", path: Base + "/protocol/search", auth: keyed, right: toll.RightRead, tag: "Search",
		summary: "Records of the caller by their id, the beginning of it, or the beginning of their name", action: reads(func(c *call) (*SearchResults, error) { return search(c, db) }),
		query: []query{
			{"q", "The text, 1 to 128 characters. Ids of orders are found from 13 characters on, those of access tokens from 6. Required."},
			{"type", "Only records of this kind: " + strings.Join(searched, ", ") + "."},
		},
		codes: []toll.Code{toll.CodeBadRequest, toll.CodeQueryTooLong},
	}}
}

// SearchResult is a record that was found.
type SearchResult struct {
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Name      *string   `json:"name"`
	CreatedAt toll.Time `json:"createdAt"`
}

// SearchResults are records that were found, at most 20 of each kind.
type SearchResults struct {
	Results []SearchResult `json:"results"`
	More    bool           `json:"more"` // there are further ones
}

func search(c *call, db store.Querier) (*SearchResults, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	f := filters{q: q}
	text := strings.TrimSpace(filter(&f, "q", func(s string) (string, error) { return s, nil }))
	kind := filter(&f, "type", wordOf(searched...))
	if n := utf8.RuneCountInString(text); f.err == nil && (n < 1 || n > maxSearch || !utf8.ValidString(text) || strings.ContainsRune(text, 0)) {
		f.err = toll.Faults([]toll.Fault{{Path: "q", Message: "must be 1 to 128 characters"}})
	}
	if f.err != nil {
		return nil, f.err
	}
	out := &SearchResults{Results: []SearchResult{}}
	for _, of := range searched {
		if kind != "" && kind != of {
			continue
		}
		found, err := store.Search(c.context, db, of, c.caller.Address, text, maxFound+1)
		if err != nil {
			return nil, err
		}
		if len(found) > maxFound {
			out.More, found = true, found[:maxFound]
		}
		for _, r := range found {
			result := SearchResult{Type: of, ID: r.ID, CreatedAt: toll.At(r.CreatedAt)}
			if r.Name != "" {
				result.Name = &r.Name
			}
			out.Results = append(out.Results, result)
		}
	}
	return out, nil
}
