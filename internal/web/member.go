package web

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// memberPage is the page of one person of a workspace, for who manages people.
func memberPage() areaPage {
	return areaPage{
		Path: "/members/{user}", Template: "sheet", Under: "/members", Right: toll.RightMembers, Persons: true,
		Get: showMember, Post: changeMember,
	}
}

// member returns the person of the page, whom the visitor may manage. It has answered when ok is false.
func member(v *visit) (m toll.Member, ok bool) {
	all, err := v.w.People.Members.List(v.ctx(), v.person.Address)
	if v.failed("member", err) {
		return m, false
	}
	for _, one := range all {
		if one.UserID.String() == v.param("user") {
			return one, true
		}
	}
	v.missing("member")
	return m, false
}

func showMember(v *visit) {
	m, ok := member(v)
	if !ok {
		return
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: m.UserID.String()}}, {"Role", cell{Text: string(m.Role)}}, {"Since", cell{At: m.Since.Time}},
	}}
	if m.UserID == v.person.User.ID || !v.person.Workspace.Role.Manages(m.Role) {
		s.Note = "You cannot change this membership here."
		v.sheet(nameOf(m.Name), s)
		return
	}
	open, err := v.w.People.Members.Sessions(v.ctx(), v.person.Caller, m.UserID, store.Page{Size: mostRows})
	if v.failed("member", err) {
		return
	}
	t := &table{
		Caption: "Sessions", Head: []column{{Text: "Browser or program"}, {Text: "Signed in"}, {Text: "Last used"}},
		Empty: &empty{Icon: "monitor", Title: "Not signed in", Text: "Each browser and terminal in which the person is signed in appears here."},
	}
	for _, one := range open.Items {
		t.Rows = append(t.Rows, []cell{{Text: nameOf(one.Agent)}, {At: one.Since.Time}, {At: one.UsedAt.Time}})
	}
	s.Parts = []part{{"Sessions", t}}
	roles := field{Name: "role", Label: "Role", Value: string(m.Role)}
	for _, r := range toll.Roles() {
		if v.person.Workspace.Role.Manages(r) {
			roles.Options = append(roles.Options, option{Value: string(r), Text: string(r)})
		}
	}
	s.Acts = []dialog{
		v.dialogOf("role", "Change the role", "Keys and programs of the person have at most the rights of the new role.", roles),
	}
	if m.Role == toll.RoleDeveloper {
		f := field{
			Name: "limit", Label: "Limit in a month", Mode: "decimal", Members: []string{"spendLimitCents"},
			Hint: "In dollars and euros alike, such as 50.00. Empty: no limit.",
		}
		if m.SpendLimitCents != nil {
			f.Value = toll.FormatAmount(toll.UnitsOfCents(int64(*m.SpendLimitCents)), 6)
			s.Bars = []bar{{"Spent this month", int64(*m.SpentCents), int64(*m.SpendLimitCents), spentText(m)}}
		}
		s.Acts = append(s.Acts, v.dialogOf("limit", "Set a spending limit", "Orders that the wallet pays and delegations of the person count, from the "+
			"first of the month (UTC). The person uses no delegations of others. What was made before goes on.", f))
	}
	s.Acts = append(s.Acts,
		v.dialogOf("sessions", "End sessions here", "The person has to sign in again to use this workspace. They stay signed in elsewhere."),
		v.dangerOf("remove", "Remove", "The person has no access to this workspace from now on. Keys, access tokens and programs of the person here end.",
			field{Name: "keep", Label: "Keep the keys and programs, under my name", Type: "checkbox"}))
	v.sheet(nameOf(m.Name), s)
}

// spentText says how much of a spending limit is used.
func spentText(m toll.Member) string {
	return amountText(*m.SpentCents) + " of " + amountText(*m.SpendLimitCents)
}

func changeMember(v *visit) {
	m, ok := member(v)
	if !ok || !hasProof(v, confirmWhy) {
		return
	}
	v.finish(func() (outcome, error) {
		out, in, who := outcome{To: v.to("members", m.UserID.String())}, v.w.People.Members, v.person.Caller
		switch v.form.Get("act") {
		case "role":
			out.Done = "The role is changed."
			_, err := in.Change(v.ctx(), who, m.UserID, people.MemberChange{Role: new(toll.Role(v.form.Get("role")))})
			return out, err
		case "limit":
			cents, err := cents(v, "limit")
			if err != nil {
				return out, err
			}
			limit := toll.SetTo(cents)
			if out.Done = "The spending limit is set."; v.text("limit") == "" {
				out.Done, limit = "The spending limit is taken away.", toll.Clear[toll.Cents]()
			}
			_, err = in.Change(v.ctx(), who, m.UserID, people.MemberChange{SpendLimit: limit})
			return out, err
		case "sessions":
			n, err := in.EndSessions(v.ctx(), who, m.UserID)
			out.Done = count(n, "session") + " ended."
			return out, err
		case "remove":
			removed, err := in.Remove(v.ctx(), who, m.UserID, v.form.Get("keep") != "")
			return outcome{To: v.to("members"), Done: plain.Name(m.Name) + " is removed." + removedWith(removed)}, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
