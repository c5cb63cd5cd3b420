package workspace

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// members returns the people of the workspace, the oldest membership first.
func members(c *page.Context) (all []*toll.Member, err error) {
	for m, err := range c.API.Members(c.Acting(), client.Ascending(), client.PageSize(100)) {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// member returns the person of the page.
func member(c *page.Context) (*toll.Member, error) {
	all, err := members(c)
	if err != nil {
		return nil, c.Failed("member", err)
	}
	for _, one := range all {
		if one.UserID.String() == c.Param("user") {
			return one, nil
		}
	}
	return nil, c.Missing("member")
}

func showMember(c *page.Context) (page.View, error) {
	m, err := member(c)
	if err != nil {
		return nil, err
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: m.UserID.String()}}, {Label: "Role", Cell: page.Cell{Text: string(m.Role)}}, {Label: "Member since", Cell: page.Cell{At: m.Since.Time}},
	}}
	if m.UserID == c.Person.User.ID || !c.Person.Workspace.Role.Manages(m.Role) {
		s.Note = "You cannot change this membership. Only another owner of the workspace can."
		return c.Record(page.NameOf(m.Name), s)
	}
	open, err := page.PartOf[toll.Session](c, list.MemberSessions.Under(m.UserID.String()), url.Values{"pageSize": {strconv.Itoa(page.MostRows)}})
	if err != nil {
		return nil, c.Failed("member", err)
	}
	t := page.TableOf(c, list.MemberSessions.Show("agent", "since", "usedAt"), "session", page.List[toll.Session]{Items: open.Items}, nil)
	t.Empty = &page.Empty{Icon: "monitor", Title: "No sessions", Text: "Browsers and terminals in which this person is signed in appear here."}
	s.Parts = []page.Part{{Title: "Sessions", Table: t}}
	roles := page.Field{Name: "role", Label: "Role", Value: string(m.Role)}
	for _, r := range toll.Roles() {
		if c.Person.Workspace.Role.Manages(r) {
			roles.Options = append(roles.Options, page.Option{Value: string(r), Text: string(r)})
		}
	}
	s.Acts = []page.Dialog{
		c.DialogOf("role", "Change role", "The API keys and connected apps of this person lose all rights that the new role does not have.", roles),
	}
	if m.Role == toll.RoleDeveloper {
		f := page.Field{
			Name: "limit", Label: "Monthly limit", Mode: "decimal", Members: []string{"spendLimitCents"},
			Hint: "One amount for dollars and euros combined, such as 50.00. Leave empty for no limit.",
		}
		if m.SpendLimitCents != nil {
			f.Value = toll.FormatAmount(toll.UnitsOfCents(int64(*m.SpendLimitCents)), 6)
			s.Bars = []page.Bar{{Label: "Spent this month", Value: int64(*m.SpentCents), Max: int64(*m.SpendLimitCents), Text: spentText(m)}}
		}
		s.Acts = append(s.Acts, c.DialogOf("limit", "Set spending limit", "The limit applies to each calendar month (UTC). It covers orders that this person pays from the wallet, and "+
			"delegations that they create. They cannot use delegations of other members. Existing delegations and access tokens keep working.", f))
	}
	s.Acts = append(s.Acts,
		c.DialogOf("sessions", "End sessions", "This person must sign in again to use this workspace. They stay signed in to other workspaces."),
		c.DangerOf("remove", "Remove", "This person loses access to this workspace. Their API keys, access tokens, and connected apps in this workspace are revoked.",
			page.Field{Name: "keep", Label: "Keep the API keys and connected apps, and transfer them to me", Type: "checkbox"}))
	return c.Record(page.NameOf(m.Name), s)
}

// spentText describes how much of a spending limit is used.
func spentText(m *toll.Member) string {
	return amountText(*m.SpentCents) + " of " + amountText(*m.SpendLimitCents) + " in dollars and euros combined"
}

func (w *pages) changeMember(c *page.Context) (page.View, error) {
	m, err := member(c)
	if err == nil {
		err = page.NeedProof(c, page.ConfirmWhy)
	}
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		out, in, who := page.Outcome{To: c.To("members", m.UserID.String())}, w.People.Members, c.Person.Caller
		switch c.Form.Get("act") {
		case "role":
			out.Done = "Role changed."
			_, err := in.Change(c.Ctx(), who, m.UserID, people.MemberChange{Role: new(toll.Role(c.Form.Get("role")))})
			return out, err
		case "limit":
			cents, err := cents(c, "limit")
			if err != nil {
				return out, err
			}
			limit := toll.SetTo(cents)
			if out.Done = "Spending limit set."; c.Text("limit") == "" {
				out.Done, limit = "Spending limit removed.", toll.Clear[toll.Cents]()
			}
			_, err = in.Change(c.Ctx(), who, m.UserID, people.MemberChange{SpendLimit: limit})
			return out, err
		case "sessions":
			n, err := in.EndSessions(c.Ctx(), who, m.UserID)
			out.Done = page.Count(n, "session") + " ended."
			return out, err
		case "remove":
			removed, err := in.Remove(c.Ctx(), who, m.UserID, c.Form.Get("keep") != "")
			return page.Outcome{To: c.To("members"), Done: plain.Name(m.Name) + " was removed." + removedWith(removed)}, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}

// formMembers is the first word of what the tickets of the page of members say.
const formMembers = "members"

// membersPage is the people of a workspace.
type membersPage struct {
	Done, Link, LinkEnds string
	Action, Ticket       string
	Members              []shownMember
	Invitations          []shownInvitation
	Roles                []toll.Role
	MayInvite            bool
}

type shownMember struct {
	ID, Name, Since, Ticket, To string
	Spent                       string // of what limit, "" without one
	Role                        toll.Role
	You, CanManage              bool
}

type shownInvitation struct {
	ID, Note, Until, Ticket string
	Role                    toll.Role
}

func (w *pages) postMembers(c *page.Context) (page.View, error) {
	if !c.Holds(c.Form.Get("ticket"), formMembers) {
		return showMembers(c, http.StatusForbidden, membersPage{}, page.Stale)
	}
	if err := page.NeedProof(c, page.ConfirmWhy); err != nil {
		return nil, err
	}
	body, err := w.changeMembers(c)
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return showMembers(c, status, membersPage{}, fault) })
	}
	if c.Form.Get("user") == c.Person.User.ID.String() && c.Form.Get("act") == "remove" {
		return c.Redirect(http.StatusSeeOther, page.PathSecurity)
	}
	return showMembers(c, http.StatusOK, body, "")
}

// changeMembers does what the form says.
func (w *pages) changeMembers(c *page.Context) (body membersPage, err error) {
	who := c.Person.Caller
	var user toll.UUID
	if act := c.Form.Get("act"); act == "role" || act == "remove" {
		if err := user.UnmarshalText([]byte(c.Form.Get("user"))); err != nil {
			return body, err
		}
	}
	switch c.Form.Get("act") {
	case "invite":
		i, err := w.People.Links.Invite(c.Ctx(), who, toll.Role(c.Form.Get("role")), c.Form.Get("note"), nil)
		body.Link, body.LinkEnds = i.Link, page.Date(i.EndsAt.Time)
		return body, err
	case "withdraw":
		body.Done = "Invitation withdrawn."
		id, err := toll.ParseHash(c.Form.Get("invitation"))
		if err == nil {
			err = w.People.Links.Withdraw(c.Ctx(), who, id)
		}
		return body, err
	case "role":
		body.Done = "Role changed."
		_, err = w.People.Members.Change(c.Ctx(), who, user, people.MemberChange{Role: new(toll.Role(c.Form.Get("role")))})
		return body, err
	case "remove":
		removed, err := w.People.Members.Remove(c.Ctx(), who, user, false)
		body.Done = "Member removed." + removedWith(removed)
		return body, err
	}
	return body, toll.NewError(toll.CodeBadRequest)
}

func showMembers(c *page.Context, status int, body membersPage, fault string) (page.View, error) {
	who := c.Person
	o, err := c.Outcome()
	if err != nil {
		return nil, err
	}
	body.Done = cmp.Or(body.Done, o.Done)
	body.Action, body.Ticket = c.To("members"), c.Ticket(formMembers)
	body.MayInvite = who.Rights.Has(toll.RightMembers)
	for _, r := range toll.Roles() {
		if body.MayInvite && who.Workspace.Role.Manages(r) {
			body.Roles = append(body.Roles, r)
		}
	}
	all, err := members(c)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		one := shownMember{
			ID: m.UserID.String(), Name: m.Name, Since: page.Date(m.Since.Time), Role: m.Role, Ticket: body.Ticket,
			You: m.UserID == who.User.ID, To: c.To("members", m.UserID.String()), CanManage: body.MayInvite && who.Workspace.Role.Manages(m.Role),
		}
		if m.SpendLimitCents != nil {
			one.Spent = spentText(m)
		}
		body.Members = append(body.Members, one)
	}
	for i, err := range c.API.Invitations(c.Acting(), client.Ascending()) {
		if err != nil {
			return nil, err
		}
		body.Invitations = append(body.Invitations, shownInvitation{
			ID: i.ID, Note: i.Note, Until: page.Date(i.EndsAt.Time), Role: i.Role, Ticket: body.Ticket,
		})
	}
	return c.Show(status, "members", page.Layout{Title: "Members", Fault: fault, Body: body}, "")
}

// removedWith is [page.EndedWith] for a member, with the webhooks by name.
func removedWith(r toll.Removed) string {
	text := page.EndedWith(r.Ended)
	if len(r.Webhooks) > 0 {
		state := "paused"
		if r.Kept != nil {
			state = "yours now"
		}
		names := make([]string, len(r.Webhooks))
		for i, w := range r.Webhooks {
			names[i] = plain.Name(w.URL)
		}
		text += " These webhooks are " + state + ": " + strings.Join(names, ", ") + "."
	}
	return text
}
