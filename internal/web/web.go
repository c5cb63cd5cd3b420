// Package web serves the pages for people: it composes sign-in, consent, workspaces, public pages, orders, and cards. They load nothing
// from other origins, except the form of the card processor, which the page of an order may have in a frame.
//
// The toolkit is in web/page, sessions are in web/session, pages of a workspace are in web/workspace, and those of operators in web/operator.
package web

import (
	"embed"

	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/operator"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/public"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/internal/web/signin"
	"github.com/tollhq/toll/internal/web/workspace"
)

//go:generate sh -c "cd generate && npm ci --ignore-scripts --no-audit --no-fund && node vendor.mjs"

//go:embed *.html static
var files embed.FS

// Deps has what the pages are built on.
type Deps struct {
	Pages    page.Config
	Session  session.Config
	Records  *records.Records
	Rows     workspace.Records
	Cards    public.Cards // nil: no card rail
	Coins    bool         // there is a chain rail
	People   *people.People
	Events   workspace.Events
	Operator operator.Operator
	Changes  func(version string) []workspace.Change // of the API since a version
	Outbound outbound.Config                         // where calls of the page that tries an agent may go
	Times    workspace.ReadTimes
}

// New returns the pages. Errors: a public address that is not an origin.
func New(d Deps) (*page.Site, error) {
	persons := &signin.Pages{People: d.People}
	consent := &signin.Consent{Records: d.Records}
	d.Pages.SignIn, d.Pages.Cards = persons, d.Cards != nil
	return page.NewSite(d.Pages, d.Session, files, page.Set{Templates: files}, signin.Set(persons, consent),
		public.Pages(public.Deps{Records: d.Records, Cards: d.Cards, SignUp: persons.MayRegister()}),
		workspace.Pages(workspace.Deps{
			Records: d.Rows, Events: d.Events, Programs: consent, Auth: d.Records.Auth, People: d.People, Cards: d.Cards != nil, Coins: d.Coins, Changes: d.Changes, Outbound: d.Outbound, Times: d.Times,
		}), operator.Pages(d.Operator, d.People))
}
