// Package workspace has the pages of a workspace. They are rows of one table. Most pages are a [page.Record], which
// the template sheet draws. Their forms work without scripts. Records come from the API in the same process, with the rights of
// the signed-in person; [Deps] names what the API does not have.
package workspace

import (
	"context"
	"embed"
	"net/http"
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
	Coins    bool                          // the service takes payments on a chain
	Changes  func(version string) []Change // of the API since a version
	Outbound outbound.Config               // where calls of the page that tries an agent may go
	Times    ReadTimes
}

// Records reads what several rows of a page need, in one call.
type Records interface {
	Plans(ctx context.Context, ids []toll.PlanID) (map[toll.PlanID]*toll.Plan, error)
	Agents(ctx context.Context, ids []toll.AgentID) (map[toll.AgentID]*toll.Agent, error)
	// LastUses returns for each balance when its subscriber last paid for a request; the zero time means never.
	LastUses(ctx context.Context, of []toll.Balance) ([]time.Time, error)
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
	w := &pages{Deps: d, outbound: outbound.New(d.Outbound), tries: newTries(), payers: cache.New[payersKey, []page.Stat](mostPayers)}
	return page.Set{
		Templates: templates,
		Routes:    []page.Route{{Path: "/w/{workspace}/live", Raw: w.live}},
		Areas:     w.areas(),
	}
}

// areas is the table of the pages.
func (w *pages) areas() []page.Area {
	const read, spend, manage = toll.RightRead, toll.RightSpend, toll.RightManage
	return []page.Area{
		{
			Title: "Overview", Template: "overview", Group: page.GroupHome, Nav: "Overview", Icon: "layout-grid", Key: "o", Right: read,
			Get: w.showOverview,
		},
		{Path: "/start", Title: "Start selling", Under: "/agents", Right: manage, Persons: true, Get: w.askStart, Post: w.start},
		{Path: "/agents/{agent}/start", Template: "start", Under: "/agents", Right: read, Act: manage, Get: w.showStart, Post: makeTest},
		{Path: "/agents", Title: "Agents", Group: page.GroupSell, Nav: "Agents", Icon: "bot", Key: "a", Right: read, Get: listAgents},
		{Path: "/agents/new", Title: "Create agent", Under: "/agents", Right: manage, Get: askAgent, Post: registerAgent},
		{Path: "/agents/{agent}", Under: "/agents", Right: read, Act: manage, Get: showAgent, Post: actOnAgent},
		{Path: "/agents/{agent}/gate.yaml", Right: read, Get: gateFile},
		{Path: "/agents/{agent}/edit", Under: "/agents", Right: manage, Get: askAgentEdit, Post: editAgent},
		{Path: "/plans", Title: "Plans", Group: page.GroupSell, Nav: "Plans", Icon: "tag", Key: "p", Right: read, Get: listPlans},
		{Path: "/plans/new", Title: "Create plan", Template: "plan_new", Under: "/plans", Right: manage, Get: askPlan, Post: registerPlan},
		{Path: "/plans/{plan}", Under: "/plans", Right: read, Get: w.showPlan, Post: actOnPlan},
		{Path: "/plans/{plan}/edit", Under: "/plans", Right: manage, Get: askPlanEdit, Post: editPlan},
		{
			Path: "/subscribers", Title: "Subscribers", Group: page.GroupSell, Nav: "Subscribers", Icon: "users", Key: "s", Right: read,
			Get: w.listSubscribers,
		},
		{Path: "/usage", Title: "Usage", Group: page.GroupSell, Nav: "Usage", Icon: "activity", Key: "u", Right: read, Get: w.showUsage},
		{
			Path: "/revenue", Title: "Revenue", Group: page.GroupSell, Nav: "Revenue", Icon: "coins", Key: "r", Right: read,
			Get: w.showRevenue,
		},
		{Path: "/keys/{key}/calls", Under: "/keys", Right: read, Persons: true, Get: listCalls},
		{
			Path: "/holdings", Title: "My plans", Group: page.GroupBuy, Nav: "My plans", Icon: "coins", Key: "h", Right: read,
			Get: listHoldings,
		},
		{Path: "/holdings/{plan}", Under: "/holdings", Right: read, Act: spend, Get: w.showHolding, Post: topUp},
		{
			Path: "/orders", Title: "Orders", Group: page.GroupSell, Nav: "Orders", Icon: "shopping-cart", Key: "n", Right: read,
			Bought: "Spending", Get: listOrders(w),
		},
		{Path: "/orders/{order}", Under: "/orders", Right: read, Act: toll.RightMoney, Get: readOrder(w), Post: refundOrder},
		{
			Path: "/requests", Title: "Requests", Group: page.GroupSell, Nav: "Requests", Icon: "receipt", Key: "q", Right: read,
			Bought: "Receipts", Get: w.listRequests,
		},
		{Path: "/requests/{request}", Under: "/requests", Right: read, Get: w.showRequest},
		{
			Path: "/tokens", Title: "Access tokens", Group: page.GroupBuy, Nav: "Access tokens", Icon: "badge-check", Key: "t",
			Right: read, Get: listTokens,
		},
		{Path: "/tokens/new", Title: "Create access token", Under: "/tokens", Right: spend, Get: askToken, Post: makeToken},
		{Path: "/tokens/{token}", Under: "/tokens", Right: read, Act: spend, Get: showToken, Post: endToken},
		{
			Path: "/delegations", Title: "Delegations", Group: page.GroupBuy, Nav: "Delegations", Icon: "hand-coins", Key: "d",
			Right: read, Get: listDelegations,
		},
		{
			Path: "/delegations/new", Title: "Create delegation", Under: "/delegations", Right: spend, Get: askDelegation,
			Post: makeDelegation,
		},
		{Path: "/delegations/{delegation}", Under: "/delegations", Right: read, Act: spend, Get: showDelegation, Post: changeDelegation},
		{Path: "/cards", Title: "Cards", Group: page.GroupBuy, Nav: "Cards", Icon: "credit-card", Key: "c", Right: read, Get: w.listCards},
		{Path: "/cards/{card}", Under: "/cards", Right: read, Act: spend, Get: showCard, Post: changeCard},
		{
			Path: "/wallet", Title: "Wallet", Group: page.GroupManage, Nav: "Wallet", Icon: "wallet", Key: "b", Right: read, Get: showWallet,
			Post: useWallet,
		},
		{Path: "/export/{list}", Right: read, Get: export},
		{
			Path: "/keys", Title: "API keys", Group: page.GroupDevelop, Nav: "API keys", Icon: "key-round", Key: "k", Right: read,
			Persons: true, Get: listKeys,
		},
		{Path: "/keys/{key}", Under: "/keys", Right: read, Act: toll.RightKeys, Persons: true, Get: w.showKey, Post: changeKey},
		{Path: "/keys/new", Title: "Create API key", Under: "/keys", Right: toll.RightKeys, Persons: true, Get: w.askKey, Post: makeKey},
		{
			Path: "/programs", Title: "Connected apps", Group: page.GroupDevelop, Nav: "Connected apps", Icon: "shield", Right: read,
			Get: w.listPrograms,
		},
		{Path: "/programs/{grant}", Under: "/programs", Right: read, Get: w.showProgram, Post: w.endProgram},
		{
			Path: "/webhooks", Title: "Webhooks", Group: page.GroupDevelop, Nav: "Webhooks", Icon: "webhook", Key: "w", Right: read,
			Get: listHooks,
		},
		{Path: "/webhooks/new", Title: "Create webhook", Under: "/webhooks", Right: manage, Get: askHook, Post: makeHook},
		{Path: "/webhooks/{webhook}", Under: "/webhooks", Right: read, Act: manage, Get: showHook, Post: actOnHook},
		{Path: "/webhooks/{webhook}/edit", Under: "/webhooks", Right: manage, Get: askHookEdit, Post: editHook},
		{
			Path: "/events", Title: "Events", Group: page.GroupDevelop, Nav: "Events", Icon: "list", Key: "e", Right: read,
			Get: w.listEvents,
		},
		{Path: "/events/{event}", Under: "/events", Right: read, Get: w.showEvent},
		{Path: "/members/{user}", Under: "/members", Right: toll.RightMembers, Persons: true, Get: showMember, Post: w.changeMember},
		{
			Path: "/members", Title: "Members", Template: "members", Group: page.GroupManage, Nav: "Members", Icon: "users", Key: "m",
			Right: read, OwnTickets: true, Persons: true,
			Get:  func(c *page.Context) (page.View, error) { return showMembers(c, http.StatusOK, membersPage{}, "") },
			Post: w.postMembers,
		},
		{Path: "/try", Title: "Try it", Template: "try", Under: "/holdings", Right: read, Act: spend, Get: showTry, Post: w.postTry},
		{
			Path: "/settings", Title: "Workspace", Group: page.GroupManage, Nav: "Workspace", Icon: "building-2", Right: read,
			Act: toll.RightMembers, Get: showWorkspace, Post: changeWorkspace,
		},
		{
			Path: "/audit", Title: "Audit log", Group: page.GroupManage, Nav: "Audit log", Icon: "history", Key: "l",
			Right: toll.RightMembers, Persons: true, Get: w.listActs,
		},
		{
			Path: "/notifications", Title: "Notifications", Group: page.GroupManage, Nav: "Notifications", Icon: "bell", Right: read,
			Persons: true, Get: w.askNotices, Post: w.chooseNotices,
		},
		{Path: "/search", Title: "Search", Template: "search", Right: read, Get: search},
		{
			Path: "/clock", Title: "Test clock", Under: "/events", Right: read, Act: manage, Sandbox: true, Get: w.showClock,
			Post: moveClock,
		},
		{Path: "/components", Title: "Components", Template: "components_page", Right: read, Sandbox: true, Get: showComponents},
	}
}
