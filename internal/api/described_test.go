package api

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/pay"
)

// Each list of the route table is described once, with the type of its records, and each description belongs to a route.
func TestLists_Described(t *testing.T) {
	paths := map[string]int{}
	for _, l := range list.All {
		paths[l.Path]++
		members := l.Members()
		for _, c := range l.Columns {
			if !slices.ContainsFunc(members, func(m string) bool { return m == c.Path || strings.HasPrefix(c.Path, m+".") }) {
				t.Errorf("%s: records have no %s", l.Path, c.Path)
			}
			if c.Title == "" || c.Title != strings.TrimSpace(c.Title) {
				t.Errorf("%s: %s has the title %q", l.Path, c.Path, c.Title)
			}
		}
	}
	for _, r := range table(Deps{Facilitator: &pay.Facilitator{}}.withDefaults(), nil) {
		path := strings.TrimPrefix(r.path, Base)
		isPaged := slices.ContainsFunc(r.query, func(q query) bool { return q.name == "cursor" && strings.Contains(q.description, "nextCursor") })
		switch of := r.action.list; {
		case of == nil && isPaged:
			t.Errorf("%s has no description", r.op)
		case of == nil:
			continue
		case of.of.Path != path || paths[path] != 1:
			t.Errorf("%s: %d descriptions, the one of its action is of %s", r.op, paths[path], of.of.Path)
		case elem(of.record) != of.of.Record:
			t.Errorf("%s lists %v, and its description has %v", r.op, of.record, of.of.Record)
		}
		delete(paths, path)
	}
	for _, r := range table(Deps{Facilitator: &pay.Facilitator{}}.withDefaults(), nil) {
		delete(paths, strings.TrimPrefix(r.path, Base)) // lists without pages
	}
	if len(paths) > 0 {
		t.Errorf("descriptions without a route: %v", paths)
	}
}

func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
