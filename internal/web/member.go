package web

import (
	"net/url"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// memberPage is the page of one person of a workspace, for who manages people.
func memberPage() page.Area {
	return page.Area{
		Path: "/members/{user}", Template: "sheet", Under: "/members", Right: toll.RightMembers, Persons: true,
		Get: showMember, Post: changeMember,
	}
}

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
		{Label: "Id", Cell: page.Cell{ID: m.UserID.String()}}, {Label: "Role", Cell: page.Cell{Text: string(m.Role)}}, {Label: "Since", Cell: page.Cell{At: m.Since.Time}},
	}}
	if m.UserID == c.Person.User.ID || !c.Person.Workspace.Role.Manages(m.Role) {
		s.Note = "You cannot change this membership here."
		return c.Record(page.NameOf(m.Name), s)
	}
	open, err := page.PartOf[toll.Session](c, "/members/"+m.UserID.String()+"/sessions", "sessions", url.Values{"pageSize": {strconv.Itoa(page.MostRows)}})
	if err != nil {
		return nil, c.Failed("member", err)
	}
	t := &page.Table{
		Caption: "Sessions", Head: []page.Column{{Text: "Browser or program"}, {Text: "Signed in"}, {Text: "Last used"}},
		Empty: &page.Empty{Icon: "monitor", Title: "Not signed in", Text: "Each browser and terminal in which the person is signed in appears here."},
	}
	for _, one := range open.Items {
		t.Rows = append(t.Rows, []page.Cell{{Text: page.NameOf(one.Agent)}, {At: one.Since.Time}, {At: one.UsedAt.Time}})
	}
	s.Parts = []page.Part{{Title: "Sessions", Table: t}}
	roles := page.Field{Name: "role", Label: "Role", Value: string(m.Role)}
	for _, r := range toll.Roles() {
		if c.Person.Workspace.Role.Manages(r) {
			roles.Options = append(roles.Options, page.Option{Value: string(r), Text: string(r)})
		}
	}
	s.Acts = []page.Dialog{
		c.DialogOf("role", "Change the role", "Keys and programs of the person have at most the rights of the new role.", roles),
	}
	if m.Role == toll.RoleDeveloper {
		f := page.Field{
			Name: "limit", Label: "Limit in a month", Mode: "decimal", Members: []string{"spendLimitCents"},
			Hint: "In dollars and euros alike, such as 50.00. Empty: no limit.",
		}
		if m.SpendLimitCents != nil {
			f.Value = toll.FormatAmount(toll.UnitsOfCents(int64(*m.SpendLimitCents)), 6)
			s.Bars = []page.Bar{{Label: "Spent this month", Value: int64(*m.SpentCents), Max: int64(*m.SpendLimitCents), Text: spentText(m)}}
		}
		s.Acts = append(s.Acts, c.DialogOf("limit", "Set a spending limit", "Orders that the wallet pays and delegations of the person count, from the "+
			"first of the month (UTC). The person uses no delegations of others. What was made before goes on.", f))
	}
	s.Acts = append(s.Acts,
		c.DialogOf("sessions", "End sessions here", "The person has to sign in again to use this workspace. They stay signed in elsewhere."),
		c.DangerOf("remove", "Remove", "The person has no access to this workspace from now on. Keys, access tokens and programs of the person here end.",
			page.Field{Name: "keep", Label: "Keep the keys and programs, under my name", Type: "checkbox"}))
	return c.Record(page.NameOf(m.Name), s)
}

// spentText says how much of a spending limit is used.
func spentText(m *toll.Member) string {
	return amountText(*m.SpentCents) + " of " + amountText(*m.SpendLimitCents)
}

func changeMember(c *page.Context) (page.View, error) {
	m, err := member(c)
	if err == nil {
		err = page.NeedProof(c, page.ConfirmWhy)
	}
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		out, in, who := page.Outcome{To: c.To("members", m.UserID.String())}, deps(c).People.Members, c.Person.Caller
		switch c.Form.Get("act") {
		case "role":
			out.Done = "The role is changed."
			_, err := in.Change(c.Ctx(), who, m.UserID, people.MemberChange{Role: new(toll.Role(c.Form.Get("role")))})
			return out, err
		case "limit":
			cents, err := cents(c, "limit")
			if err != nil {
				return out, err
			}
			limit := toll.SetTo(cents)
			if out.Done = "The spending limit is set."; c.Text("limit") == "" {
				out.Done, limit = "The spending limit is taken away.", toll.Clear[toll.Cents]()
			}
			_, err = in.Change(c.Ctx(), who, m.UserID, people.MemberChange{SpendLimit: limit})
			return out, err
		case "sessions":
			n, err := in.EndSessions(c.Ctx(), who, m.UserID)
			out.Done = page.Count(n, "session") + " ended."
			return out, err
		case "remove":
			removed, err := in.Remove(c.Ctx(), who, m.UserID, c.Form.Get("keep") != "")
			return page.Outcome{To: c.To("members"), Done: plain.Name(m.Name) + " is removed." + removedWith(removed)}, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
