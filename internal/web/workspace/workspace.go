package workspace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

func showWorkspace(c *page.Context) (page.View, error) {
	at, err := c.API.Workspace(c.Acting(), c.Person.Address)
	if err != nil {
		return nil, c.Failed("page", err)
	}
	you := "an API key with these rights: " + rightWords(c.Person.Rights)
	if c.Person.User != nil {
		you = string(c.Person.Workspace.Role)
	}
	s := page.Record{
		Facts: []page.Fact{
			{Label: "ID", Cell: page.Cell{ID: at.ID}}, {Label: "Name", Cell: page.Cell{Text: page.NameOf(at.Name)}}, {Label: "Your role", Cell: page.Cell{Text: you}},
			{Label: "Environment", Cell: page.Cell{Text: string(c.Environment)}}, {Label: "Created", Cell: page.Cell{At: at.CreatedAt.Time}},
		},
	}
	files := &page.Table{Caption: "Files", Head: []page.Column{{Text: "List"}, {Text: "For spreadsheets"}, {Text: "For programs"}}}
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		if of := exports[name]; of.field == "" && c.Person.Rights.Has(of.right) {
			files.Rows = append(files.Rows, []page.Cell{
				{Text: of.title}, {Text: "CSV", To: c.To("export", name)}, {Text: "NDJSON", To: c.To("export", name) + "?format=ndjson"},
			})
		}
	}
	s.Parts = []page.Part{{Title: "Export data", Table: files}}
	if c.Person.HasName() && c.Person.Rights.Has(toll.RightMembers) {
		s.Acts = []page.Dialog{c.DialogOf("name", "Rename workspace", "Members see the name instead of the address.",
			page.Field{Name: "name", Label: "Name", Value: at.Name, Max: 100})}
	}
	if c.Person.HasName() && c.Person.Rights.Has(toll.RightExport) {
		s.Acts = append(s.Acts, c.DangerOf("delete", "Delete workspace",
			"All members lose access. API keys, access tokens, connected apps, and webhooks stop working. Plans and agents are unlisted. "+
				"Orders, receipts, and the audit log stay with the service. Money stays in the wallet, so export its key first.",
			page.Field{Name: "confirm", Label: "To confirm, type " + confirmation(at), Required: true}))
	}
	return c.Record("Workspace", s)
}

// confirmation is what a person types to delete a workspace: its name, or its id.
func confirmation(at *toll.WorkspaceRecord) string { return cmp.Or(plain.Name(at.Name), at.ID) }

func changeWorkspace(c *page.Context) (page.View, error) {
	if err := page.NeedPerson(c); err != nil {
		return nil, err
	}
	if c.Form.Get("act") != "name" {
		return deleteWorkspace(c)
	}
	return c.Finish(func() (page.Outcome, error) {
		_, err := c.API.RenameWorkspace(c.Acting(), c.Person.Address, c.Text("name"))
		return page.Outcome{To: c.To("settings"), Done: "Workspace renamed."}, err
	})
}

func deleteWorkspace(c *page.Context) (page.View, error) {
	err := c.HasRight(toll.RightExport)
	if err == nil {
		err = page.NeedProof(c, "Before you delete the workspace for all its members, confirm that it is you. The confirmation is valid for ten minutes.")
	}
	if err != nil {
		return nil, err
	}
	at, err := c.API.Workspace(c.Acting(), c.Person.Address)
	if err != nil {
		return nil, c.Failed("page", err)
	}
	return c.Finish(func() (page.Outcome, error) {
		if c.Form.Get("act") != "delete" {
			return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		if c.Text("confirm") != confirmation(at) {
			return page.Outcome{}, page.OneFault("confirm", "Enter the text exactly as shown.")
		}
		_, err := c.API.DeleteWorkspace(c.Acting(), c.Person.Address)
		return page.Outcome{To: page.PathSecurity}, err
	})
}

func (w *pages) listActs(c *page.Context) (page.View, error) {
	filter, q := c.Filters(
		page.Field{Name: "act", Label: "Action", Max: 80, Hint: ""}, page.Field{Name: "since", Label: "From", Type: "date"},
		page.Field{Name: "until", Label: "Before", Type: "date"},
	)
	acts, err := page.ListOf[*toll.Act](c, list.AuditLog, q)
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	names := map[string]string{}
	t := page.TableOf(c, list.AuditLog.Show("at", "act", "actor", "object", "source"), "action", acts, func(e *toll.Act, cell page.Cells) {
		*cell["act"], *cell["actor"] = page.Cell{Text: e.Act, Sub: plain.Name(detailText(e.Detail))}, w.actor(c, names, e)
		if e.Source == "" {
			cell["source"].Text = "not recorded"
		}
	})
	t.Empty = &page.Empty{Icon: "history", Title: "No entries", Text: "Changes to members, keys, plans, and money appear here with the person or key that made them.", Command: "toll audit-log"}
	return c.Record("Audit log", page.Record{
		Lead: "All changes in this workspace. The entries form a hash chain, so a changed or missing entry is detected.", Links: file(c, "audit", q), Filter: filter, Table: t,
	})
}

// actor names the person, API key, or operator that made a change.
func (w *pages) actor(c *page.Context, names map[string]string, e *toll.Act) page.Cell {
	switch e.ActorKind {
	case "user":
		if _, ok := names[e.Actor]; !ok {
			var id toll.UUID
			if id.UnmarshalText([]byte(e.Actor)) == nil {
				if u, err := w.People.User(c.Ctx(), id); err == nil {
					names[e.Actor] = plain.Name(u.Name)
				}
			}
		}
		return page.Cell{Text: cmp.Or(names[e.Actor], "a former member")}
	case "key":
		return page.Cell{ID: e.Actor, To: c.To("keys", e.Actor)}
	}
	return page.Cell{Text: "the operator"}
}

// detailText is what an entry says of a change, in one line: the members after it, and what they were before.
func detailText(detail json.RawMessage) string {
	var d struct{ Before, After any }
	if json.Unmarshal(detail, &d) != nil {
		return ""
	}
	before, after := wordsOf(d.Before), wordsOf(d.After)
	switch {
	case before == "":
		return after
	case after == "":
		return "was " + before
	}
	return before + " → " + after
}

// mostWords bounds the text of a value in the audit log, in characters.
const mostWords = 120

// wordsOf are the plain members of a value, by their names.
func wordsOf(value any) string {
	text := ""
	switch value := value.(type) {
	case nil:
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if w := wordsOf(value[name]); w != "" && name != "id" {
				parts = append(parts, name+" "+w)
			}
		}
		text = strings.Join(parts, ", ")
	default:
		text = fmt.Sprint(value)
	}
	if r := []rune(text); len(r) > mostWords {
		text = string(r[:mostWords]) + "…"
	}
	return text
}

func (w *pages) listPrograms(c *page.Context) (page.View, error) {
	all, err := w.Programs.Programs(c.Ctx(), c.Person.Address)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	t := &page.Table{
		Caption: "Connected apps", Head: []page.Column{{Text: "App"}, {Text: "Access"}, {Text: "Last used"}, {Text: "Connected"}, {Text: "Expires"}},
		Empty: &page.Empty{
			Icon: "shield", Title: "No connected apps yet", Text: "Apps appear here after you approve their access to this workspace.",
			To: page.PathDevice, Button: "Approve a device", Command: "toll login --device",
		},
		Pager: &page.Pager{Total: int64(len(all)), Noun: "app"},
	}
	for _, g := range all {
		t.Rows = append(t.Rows, []page.Cell{
			{Text: g.Name, To: c.To("programs", g.ID.String())}, {Text: g.Has}, {Text: g.LastUse}, {At: g.CreatedAt}, {At: g.EndsAt},
		})
	}
	return c.Record("Connected apps", page.Record{
		Lead: "Apps that a member approved to act for this workspace.", Table: t,
		Links: []page.Link{{Text: "Approve a device", To: page.PathDevice + "?" + url.Values{"workspace": {c.Person.Address.String()}}.Encode(), Plain: true}},
	})
}

// program returns the consent of the page.
func (w *pages) program(c *page.Context) (g Program, err error) {
	all, err := w.Programs.Programs(c.Ctx(), c.Person.Address)
	if err != nil {
		return g, c.Failed("app", err)
	}
	for _, g := range all {
		if strings.EqualFold(g.ID.String(), c.Param("grant")) {
			return g, nil
		}
	}
	return g, c.Missing("app")
}

func (w *pages) showProgram(c *page.Context) (page.View, error) {
	g, err := w.program(c)
	if err != nil {
		return nil, err
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: g.ID.String()}}, {Label: "Client id", Cell: page.Cell{ID: g.ClientID}}, {Label: "Access", Cell: page.Cell{Text: g.Has}}, {Label: "Connected", Cell: page.Cell{Text: page.Date(g.CreatedAt)}},
		{Label: "Last used", Cell: page.Cell{Text: g.LastUse}}, {Label: "Expires", Cell: page.Cell{Text: page.Date(g.EndsAt)}},
	}}
	if g.Resource != "" {
		s.Facts = append(s.Facts, page.Fact{Label: "Access is valid at", Cell: page.Cell{Text: g.Resource}})
	}
	s.Acts = []page.Dialog{c.DangerOf("end", "Revoke", "The app loses access immediately. The API keys, access tokens, and app access that the app created are revoked too.")}
	return c.Record(g.Name, s)
}

func (w *pages) endProgram(c *page.Context) (page.View, error) {
	g, err := w.program(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		if c.Form.Get("act") != "end" {
			return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		ended, err := w.Programs.EndGrant(c.Ctx(), c.Person.Caller, g.ID)
		return page.Outcome{To: c.To("programs"), Done: page.EndedText(ended)}, err
	})
}
