package web

import (
	"github.com/tollhq/toll/internal/plain"
)

// part is a list that belongs to a record.
type part struct {
	Title string
	Table *table
}

// nameOf is a name that somebody chose, for a page.
func nameOf(name string) string {
	if name = plain.Name(name); name == "" {
		return "without a name"
	}
	return name
}

func listedState(listed bool) *state {
	if listed {
		return &state{"listed", "good"}
	}
	return &state{"not listed", "quiet"}
}
