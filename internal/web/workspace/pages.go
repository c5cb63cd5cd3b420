// Package workspace has the pages of a workspace. They are rows of one table, see [Pages]: an area is a file with its rows, and most
// pages draw the template sheet. Their forms work without scripts. Records come from the API in the same process, with the rights of
// the signed-in person; [Deps] names what the API does not have.
package workspace

import (
	"context"
	"embed"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/web/page"
)

//go:embed *.html
var templates embed.FS

// Deps has what the pages need besides the API.
type Deps struct {
	Records  Records
	Events   Events
	Programs Programs
	Auth     *auth.Auth
	People   *people.People
	Cards    bool                          // the service takes cards
	Changes  func(version string) []Change // of the API since a version
	Outbound outbound.Config               // where calls of the page that tries an agent may go
}

// Records reads what several rows of a page need, in one call.
type Records interface {
	Plans(ctx context.Context, ids []toll.PlanID) (map[toll.PlanID]*toll.Plan, error)
	Agents(ctx context.Context, ids []toll.AgentID) (map[toll.AgentID]*toll.Agent, error)
	// LastUses returns when subscribers of a plan last paid for a request.
	LastUses(ctx context.Context, plan toll.PlanID, subscribers []toll.Address) (map[toll.Address]*toll.Time, error)
}

// Events is the stream of events of a workspace.
type Events interface {
	// Wait returns the length of the stream as soon as it is above after, or after a time.
	Wait(ctx context.Context, workspace toll.Address, session string, after int64, wait time.Duration) (last int64, err error)
	BySequence(ctx context.Context, workspace toll.Address, sequence int64) (*toll.Event, error)
	// MailWebhook returns the webhook that sends mails to one of the credentials, and which one; nil for none.
	MailWebhook(ctx context.Context, workspace toll.Address, credentials []toll.UUID) (*toll.Webhook, toll.UUID, error)
}

// Programs are the programs that people let into a workspace.
type Programs interface {
	Programs(ctx context.Context, workspace toll.Address) ([]Program, error)
	EndGrant(ctx context.Context, c auth.Caller, id toll.Hash) (toll.Ended, error)
}

// Program is a program with access to a workspace, as a person reads it.
type Program struct {
	ID                toll.Hash
	Name, ClientID    string
	Has               string
	Resource          string
	LastUse           string
	CreatedAt, EndsAt time.Time
}

// pages has the services behind the pages.
type pages struct {
	Deps
	outbound *outbound.Client
	tries    *tries // calls from pages that run
	payers   *cache.Cache[payersKey, []page.Stat]
}

// Pages returns the pages.
func Pages(d Deps) page.Set {
	d.Outbound.Timeout = tryTimeout
	w := &pages{Deps: d, outbound: outbound.New(d.Outbound), tries: &tries{of: map[toll.Address]int{}}, payers: cache.New[payersKey, []page.Stat](mostPayers)}
	return page.Set{
		Templates: templates,
		Routes:    []page.Route{{Path: "/w/{workspace}/live", Raw: w.live}},
		Areas: slices.Concat(
			overviewPages(w), agentPages(), planPages(w), usagePages(w), requestPages(w), orderPages(), buyingPages(w), moneyPages(w), exportPages(),
			keyPages(w), programPages(w), hookPages(w), memberPages(w), tryPages(w), workspacePages(w), noticePages(w), searchPages(),
			clockPages(w), componentPages(),
		),
	}
}
