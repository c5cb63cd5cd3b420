package catalogue_test

import (
	"context"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// TestSearchGivenBack: a search gives its place back when it succeeds, when it is refused, and when its request ends while it waits.
// T178
func TestSearchGivenBack(t *testing.T) {
	s := sqlite(t)
	s.agent(nil, s.plan(dynamic(1, 10)))
	f := s.one()
	gone, cancel := context.WithCancel(s.ctx)
	cancel()
	for range 2 {
		for _, query := range []string{"", "a", "nothing like this"} {
			_, err := f.Search(s.ctx, query, x402.CatalogueFilter{}, 10, "")
			must.Do(s, err)
			_, _, err = f.FindAgents(s.ctx, query, 10, "")
			must.Do(s, err)
		}
		if _, err := f.Search(s.ctx, "", x402.CatalogueFilter{}, 10, "bad cursor"); err == nil {
			t.Error("a bad cursor is accepted")
		}
		done := f.TakeSearch()
		if _, err := f.Search(gone, "", x402.CatalogueFilter{}, 10, ""); toll.AsError(err).Code != toll.CodeUnavailable {
			t.Errorf("a search of a request that ended: %v", err)
		}
		if _, _, err := f.FindAgents(gone, "", 10, ""); toll.AsError(err).Code != toll.CodeUnavailable {
			t.Errorf("a search of a request that ended: %v", err)
		}
		done()
	}
}
