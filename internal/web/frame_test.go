package web

import (
	"slices"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/web/operator"
	"github.com/tollhq/toll/internal/web/workspace"
)

// ownRights are pages that every member opens and whose forms check by themselves who may send them, with what checks it.
var ownRights = map[string]string{
	"/plans/{plan}":     "the API: listing and minting take manage, taking back takes money",
	"/wallet":           "the API: the faucet takes spend, the export takes export",
	"/programs/{grant}": "oauth: whoever may let a program in may end it",
	"/members":          "people: roles, and what one may do about oneself",
	"/notifications":    "the API: mails to an address of one's own",
	"/operator":         "the row: operators of the service alone",
}

// TestRightOfEveryPage: each row of the pages of workspaces names a right, and one that sends a form takes more than the right to
// read, or is known to check it further on.
// T154
func TestRightOfEveryPage(t *testing.T) {
	paths := map[string]bool{}
	for _, p := range slices.Concat(workspace.Pages(workspace.Deps{}).Areas, operator.Pages(nil, nil).Areas) {
		if paths[p.Path] {
			t.Errorf("%s has two rows", p.Path)
		}
		paths[p.Path] = true
		if !toll.AllRights().Has(p.Right) || p.Act != "" && !toll.AllRights().Has(p.Act) {
			t.Errorf("%s names the rights %q and %q", p.Path, p.Right, p.Act)
		}
		acts := p.Post != nil && p.Right == toll.RightRead && (p.Act == "" || p.Act == toll.RightRead)
		if acts != (ownRights[p.Path] != "") {
			t.Errorf("the form of %s takes the right to read alone: %t", p.Path, acts)
		}
		if p.Act != "" && p.Post == nil || p.OwnTickets && p.Path != "/members" {
			t.Errorf("%s: an act without a form, or tickets that nobody checks", p.Path)
		}
	}
	for path := range ownRights {
		if !paths[path] {
			t.Errorf("there is no page %s", path)
		}
	}
}
