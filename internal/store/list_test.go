package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Each sort, both ways, by pages and by cursors, gives the same list without gaps and repetitions.
func TestLists(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		names := []string{"b", "a", "B", "ä", "", "z", "a"}
		var all []*toll.Plan
		write(t, st, func(tx *store.Tx) error {
			all = nil
			for i := range 23 {
				p := newPlan(alice, names[i%len(names)])
				p.CreatedAt = noon.Add(time.Duration(i/3) * time.Second) // threes are equal
				p.UpdatedAt = noon.Add(-time.Duration(i/2) * time.Second)
				all = append(all, p)
				if err := store.InsertPlan(ctx, tx, p, "", nil); err != nil {
					return err
				}
			}
			return store.InsertPlan(ctx, tx, newPlan(bob, "a"), "", nil)
		})
		less := map[store.Sort]func(a, b *toll.Plan) int{
			store.SortCreated: func(a, b *toll.Plan) int { return a.CreatedAt.Compare(b.CreatedAt) },
			store.SortUpdated: func(a, b *toll.Plan) int { return a.UpdatedAt.Compare(b.UpdatedAt) },
			store.SortName:    func(a, b *toll.Plan) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) },
		}
		for sort, order := range less {
			for _, ascending := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s ascending %v", sort, ascending), func(t *testing.T) {
					want := slices.Clone(all)
					slices.SortFunc(want, func(a, b *toll.Plan) int {
						c := order(a, b)
						if c == 0 {
							c = cmp.Compare(string(a.ID), string(b.ID))
						}
						if !ascending {
							c = -c
						}
						return c
					})
					page := store.Page{Size: 4, Sort: sort, Ascending: ascending}
					var byPage, byCursor []*toll.Plan
					for page.Number = 1; page.Number <= 7; page.Number++ {
						l := must.Get(store.PlansOfOwner(ctx, st, alice, page))(t)
						if l.Total != 23 || (l.Next == "") != (page.Number >= 6) {
							t.Errorf("page %d: total %d, next %q", page.Number, l.Total, l.Next)
						}
						byPage = append(byPage, l.Items...)
					}
					same(t, planIDs(byPage), planIDs(want))

					next := store.Page{Size: 4, Sort: sort, Ascending: ascending}
					for i := 0; i < 1 || next.Cursor != ""; i++ {
						l := must.Get(store.PlansOfOwner(ctx, st, alice, next))(t)
						if l.Total != 23 {
							t.Errorf("total %d", l.Total)
						}
						byCursor = append(byCursor, l.Items...)
						next = store.Page{Size: 4, Cursor: l.Next, Number: 3} // the cursor keeps the order; the number does not count
					}
					same(t, planIDs(byCursor), planIDs(want))
				})
			}
		}
	})
}

// Ids of bytes go through the cursor as well.
func TestListOfKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		want := map[toll.Hash]bool{}
		write(t, st, func(tx *store.Tx) error {
			clear(want)
			for range 5 {
				k := store.APIKey{ID: toll.NewHash(), Address: alice, CreatedAt: noon}
				want[k.ID] = true
				if err := store.InsertAPIKey(ctx, tx, k); err != nil {
					return err
				}
			}
			return nil
		})
		page := store.Page{Size: 2}
		for {
			l := must.Get(store.APIKeys(ctx, st, alice, page))(t)
			for _, k := range l.Items {
				if !want[k.ID] {
					t.Errorf("key %s is there twice, or foreign", k.ID)
				}
				delete(want, k.ID)
			}
			if page.Cursor = l.Next; l.Next == "" {
				break
			}
		}
		if len(want) != 0 {
			t.Errorf("%d keys are missing", len(want))
		}
	})
}

func TestListRefuses(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	bad := toll.NewError(toll.CodeBadPage)
	for _, p := range []store.Page{
		{Size: 101}, {Size: -1}, {Number: -1}, {Sort: "price"}, {Cursor: "%"}, {Cursor: "bnVsbA"}, {Cursor: "e30"},
		{Cursor: "eyJzIjoiY3JlYXRlZCIsImsiOiJ4IiwiaSI6InQxIn0"}, // a creation time of "x"
		{Cursor: "eyJzIjoiY3JlYXRlZCIsImsiOiIxIiwiaSI6InkxIn0"}, // an id of no kind
	} {
		if _, err := store.PlansOfOwner(t.Context(), st, alice, p); !errors.Is(err, bad) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	l, err := store.PlansOfOwner(t.Context(), st, alice, store.Page{})
	if err != nil || l.Items == nil || len(l.Items) != 0 || l.Total != 0 || l.Next != "" {
		t.Errorf("the empty list: %+v, %v", l, err)
	}
}
