package web

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// memberPage is the page of one person of a workspace, for who manages people.
func memberPage() areaPage {
	return areaPage{
		Path: "/members/{user}", Template: "sheet", Under: "/members", Right: toll.RightMembers, Persons: true,
		Get: (*visit).showMember, Post: (*visit).changeMember,
	}
}

// member returns the person of the page, whom the visitor may manage. It has answered when ok is false.
func (v *visit) member() (m toll.Member, ok bool) {
	all, err := v.w.People.Members(v.ctx(), v.person.Address)
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

func (v *visit) showMember() {
	m, ok := v.member()
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
	open, err := v.w.People.SessionsOf(v.ctx(), v.person.Caller, m.UserID, store.Page{Size: mostRows})
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
		v.dialogOf("sessions", "End all sessions", "The person has to sign in again, in all workspaces."),
		v.dangerOf("remove", "Remove", "The person has no access to this workspace from now on. Keys, access tokens and programs of the person here end.",
			field{Name: "keep", Label: "Keep the keys and programs, under my name", Type: "checkbox"}),
	}
	v.sheet(nameOf(m.Name), s)
}

func (v *visit) changeMember() {
	m, ok := v.member()
	if !ok || !v.proved(confirmWhy) {
		return
	}
	v.finish(func() (outcome, error) {
		out, p, who := outcome{To: v.to("members", m.UserID.String())}, v.w.People, v.person.Caller
		switch v.form.Get("act") {
		case "role":
			out.Done = "The role is changed."
			_, err := p.SetRole(v.ctx(), who, m.UserID, toll.Role(v.form.Get("role")))
			return out, err
		case "sessions":
			n, err := p.EndSessionsOf(v.ctx(), who, m.UserID)
			out.Done = count(n, "session") + " ended."
			return out, err
		case "remove":
			removed, err := p.Remove(v.ctx(), who, m.UserID, v.form.Get("keep") != "")
			return outcome{To: v.to("members"), Done: plain.Name(m.Name) + " is removed." + endedWith(removed.Ended)}, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
