package workspace

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// found is one result of a search.
type found struct{ Kind, Text, ID, To string }

// searchPage is the answer to a search. The palette shows its results as well.
type searchPage struct {
	Query   string
	Results []found
	More    bool
}

// foundPages are the pages of records, by what the API calls their kind.
var foundPages = map[string]string{
	"plan": "plans", "agent": "agents", "order": "orders", "apiKey": "keys", "permission": "tokens", "delegation": "delegations",
	"webhook": "webhooks",
}

// kindNames are those kinds as people read them.
var kindNames = map[string]string{
	"plan": "Plan", "agent": "Agent", "order": "Order", "apiKey": "API key", "permission": "Access token", "delegation": "Delegation",
	"webhook": "Webhook",
}

// pagesAround are pages outside the workspace.
var pagesAround = []found{
	{Kind: "Page", Text: "Your account", To: page.PathSecurity}, {Kind: "Page", Text: "Explore agents", To: page.PathExplore},
	{Kind: "Page", Text: "Check a receipt", To: page.PathReceipts}, {Kind: "Page", Text: "Documentation", To: "/docs"},
}

// search finds pages by the beginning of a word of their name, and records by their id or name. The whole id of a record leads
// to its page at once.
func search(c *page.Context) (page.View, error) {
	body := searchPage{Query: strings.TrimSpace(c.R.URL.Query().Get("q"))}
	if body.Query == "" {
		return c.Draw("Search", body)
	}
	for _, a := range c.Areas {
		if a.Title != "" && !strings.Contains(a.Path, "{") && page.MayGo(c, a) && begins(a.Title, body.Query) {
			kind := "Page"
			if strings.HasSuffix(a.Path, "/new") {
				kind = "Action"
			}
			body.Results = append(body.Results, found{Kind: kind, Text: a.Title, To: c.Base() + a.Path})
		}
	}
	for _, p := range pagesAround {
		if begins(p.Text, body.Query) && (p.To != page.PathSecurity || c.Person.HasName()) {
			body.Results = append(body.Results, p)
		}
	}
	records, more, err := c.API.Search(c.Acting(), body.Query, "")
	if err != nil && toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError {
		return nil, err
	}
	if err != nil {
		c.Status, c.Fault = toll.AsError(err).HTTPStatus(), toll.AsError(err).Text()
	}
	body.More = more
	for _, r := range records {
		if !has(c, foundPages[r.Type]) {
			continue
		}
		one := found{Kind: kindNames[r.Type], ID: r.ID, To: c.To(foundPages[r.Type], r.ID)}
		if r.Name != nil {
			one.Text = plain.Name(*r.Name)
		}
		if strings.EqualFold(r.ID, body.Query) && !c.R.URL.Query().Has("list") {
			return c.Redirect(http.StatusSeeOther, one.To)
		}
		body.Results = append(body.Results, one)
	}
	if c.Person.User != nil {
		members, err := members(c)
		if err != nil {
			return nil, c.Failed("member", err)
		}
		for _, m := range members {
			if begins(m.Name, body.Query) {
				body.Results = append(body.Results, found{Kind: "Member", Text: plain.Name(m.Name), To: c.To("members")})
			}
		}
	}
	if len(body.Results) == 0 && has(c, "requests") {
		r, err := c.API.SettlementByTransaction(c.Acting(), body.Query)
		if err != nil {
			r, err = c.API.Settlement(c.Acting(), body.Query)
		}
		if err == nil {
			body.Results = append(body.Results, found{Kind: "Request", ID: r.AgentRequestID, To: c.To("requests", r.AgentRequestID)})
		}
	}
	return c.Draw("Search", body)
}

// has reports whether there are pages of these records, which the person may open.
func has(c *page.Context, records string) bool {
	for _, a := range c.Areas {
		if a.Path == "/"+records {
			return page.MayGo(c, a)
		}
	}
	return false
}

// begins reports whether a word of a name begins with a text, in any case.
func begins(name, text string) bool {
	name, text = strings.ToLower(name), strings.ToLower(text)
	return strings.HasPrefix(name, text) || strings.Contains(name, " "+text)
}

type componentsPage struct {
	Stats         []page.Stat
	Tasks         []page.Task
	Table, Nobody *page.Table
	Dialog        *page.Dialog
	Fields        []page.Field
	Facts         []page.Fact
	Steps         []page.Step
}

func showComponents(c *page.Context) (page.View, error) {
	now := c.Clock()
	long := "A name as long as the service allows, which shows how each component handles text that does not fit on one line"
	id := "0x7D3cA1b2C3d4E5f60718293a4B5c6D7e8F901a74"
	return c.Draw("Components", componentsPage{
		Stats: []page.Stat{
			{Label: "Revenue", Value: "1,284.50", Unit: "USDC", Note: "from 1,086.75"}, {Label: "Credits burned", Value: "412,906", Note: "from 377,301"},
			{Label: "Paid requests", Value: "198,224"}, {Label: "Large number", Value: "9,223,372,036,854,775,807", Unit: "credits"},
		},
		Tasks: []page.Task{
			{Tone: "bad", Title: "A webhook is failing", Text: "12 deliveries to hooks.example.com since 09:40", To: "#", Act: "Inspect"},
			{Tone: "warn", Title: "API key “ci” expires in 3 days", Text: "Used 4 minutes ago", To: "#", Act: "Rotate"}, {Tone: "quiet", Title: "API 1.1 is current", Text: long, To: "#", Act: "Compare"},
		},
		Table: &page.Table{
			Caption: "Settlements", Head: []page.Column{{Text: "Time"}, {Text: "Agent"}, {Text: "Subscriber"}, {Text: "Status"}, {Text: "Price", Num: true}, {Text: "Credits", Num: true}},
			Rows: [][]page.Cell{
				{page.At(now.Add(-4 * time.Minute)), {Text: "Ask", To: "#", Sub: "summarize"}, {ID: id}, {State: &page.State{Text: "confirmed", Tone: "good"}}, {Sum: &page.Sum{Amount: "1,000,000.00", Currency: "USDC"}, Num: true}, page.Credits(2)},
				{page.At(now.Add(3 * time.Hour)), {Text: long, To: "#"}, {ID: id, To: "#"}, {State: &page.State{Text: "failed", Tone: "bad"}}, {Sum: &page.Sum{Amount: "0.000000000000000001", Currency: "ETH"}, Num: true}, page.Credits(9223372036854775807)},
				{page.At(time.Time{}), {Text: "Search"}, {ID: "short"}, {State: &page.State{Text: "sent", Tone: "warn"}}, {Text: "free", Num: true}, page.Credits(0)},
			},
			Pager: &page.Pager{Total: 1234, Noun: "settlement", Next: "#"},
		},
		Nobody: &page.Table{Empty: &page.Empty{Icon: "bot", Title: "No agents yet", Text: "Your agents appear here. An agent is a server that charges subscribers per request.", To: "#", Button: "Create agent", Command: "toll agents create --help"}},
		Dialog: &page.Dialog{ID: "ask", Open: "Open dialog", Title: "Remove this?", Text: "Everything it created is removed too.", Action: "#", Button: "Remove", Danger: true,
			Fields: []page.Field{{Name: "why", Label: "Reason", Max: 100}}},
		Fields: []page.Field{
			{Name: "name", Label: "Name", Value: "Basic", Hint: "The name that buyers see.", Max: 256, Required: true},
			{Name: "price", Label: "Price", Value: "1.00", Unit: "USDC", Mode: "decimal"},
			{Name: "kind", Label: "Kind", Options: []page.Option{{Value: "one", Text: "One"}, {Value: "two", Text: "Two"}}, Value: "two"},
			{Name: "text", Label: "Description", Area: true, Max: 2000},
			{Name: "amount", Label: "Credits", Value: "0", Mode: "numeric", Fault: "Credits must be at least 1."},
			{Name: "sort", Label: "Sort", Type: "radio", Value: "a", Options: []page.Option{{Value: "a", Text: "A", Hint: "The first option."}, {Value: "b", Text: "B"}}},
			{Name: "some", Label: "Some", Type: "checks", Options: []page.Option{{Value: "x", Text: "X", On: true}, {Value: "y", Text: long}}},
			{Name: "sure", Label: "I am sure", Type: "checkbox", Value: "yes", Hint: "This cannot be undone."},
		},
		Facts: []page.Fact{{Label: "Agent", Cell: page.Cell{Text: "Ask", To: "#"}}, {Label: "ID", Cell: page.Cell{ID: id}}, {Label: "Price", Cell: page.Cell{Sum: &page.Sum{Amount: "1.00", Currency: "USDC"}}}, {Label: "Created", Cell: page.At(now)}},
		Steps: []page.Step{{Title: "Recorded", Text: "", At: now.Add(-time.Hour), Tone: "good"}, {Title: "Sent", Text: "In transaction " + page.Short(id), At: now.Add(-30 * time.Minute), Tone: "good"}, {Title: "Final", Text: "", At: time.Time{}, Tone: ""}},
	})
}

func (w *pages) showClock(c *page.Context) (page.View, error) {
	clock, err := c.API.Clock(c.Acting())
	moves, err2 := w.Auth.IsOperator(c.Ctx(), c.Person.Address)
	if err := errors.Join(err, err2); err != nil {
		return nil, c.Failed("clock", err)
	}
	ahead := page.Span(toll.UnitsOf(clock.OffsetSecs))
	if ahead == "" {
		ahead = "0 seconds"
	}
	s := page.Record{
		Lead:  "The clock of this sandbox. Move the clock forward to test credits and keys that expire, and payments that come due.",
		Facts: []page.Fact{{Label: "Now", Cell: page.Cell{Text: page.Date(clock.Now.Time)}}, {Label: "Ahead of server time", Cell: page.Cell{Text: ahead}}},
	}
	switch {
	case !moves:
		s.Note = "Only the operator's workspace can move the clock. The clock applies to all workspaces of this service."
	case c.Person.Rights.Has(toll.RightManage):
		s.Acts = []page.Dialog{c.DialogOf("move", "Move clock forward", "The clock applies to all workspaces and cannot be moved back. Everything that expires before the new time expires immediately, which can include your session.",
			page.Field{Name: "by", Label: "Duration", Mode: "numeric", Required: true, Members: []string{"advanceSecs"}}, page.Field{Name: "unit", Label: "Unit", Options: lengths})}
	}
	return c.Record("Test clock", s)
}

func moveClock(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		by, err := duration(c, "by", "unit")
		if err != nil {
			return page.Outcome{}, err
		}
		if by.IsZero() {
			return page.Outcome{}, page.OneFault("by", "is required")
		}
		n := by.Int()
		const most = 100 * toll.YearSecs
		if !n.IsInt64() || n.Int64() > most {
			return page.Outcome{}, page.OneFault("by", "must be at most 100 years")
		}
		clock, err := c.API.AdvanceClock(c.Acting(), time.Duration(n.Int64())*time.Second)
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("clock"), Done: "The clock is now at " + page.Date(clock.Now.Time) + "."}, nil
	})
}
