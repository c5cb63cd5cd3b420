package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// workspacePages are the workspace itself and what was done in it.
func workspacePages() []areaPage {
	return []areaPage{
		{
			Path: "/settings", Title: "Workspace", Template: "sheet", Group: groupManage, Nav: "Workspace", Icon: "building-2",
			Right: toll.RightRead, Act: toll.RightMembers, Get: showWorkspace, Post: changeWorkspace,
		},
		{
			Path: "/audit", Title: "Audit log", Template: "sheet", Group: groupManage, Nav: "Audit log", Icon: "history", Key: "l",
			Right: toll.RightMembers, Persons: true, Get: listActs,
		},
	}
}

func showWorkspace(v *visit) {
	p, err := store.PrincipalByAddress(v.ctx(), v.w.Store, v.person.Address)
	if v.failed("workspace", err) {
		return
	}
	you := "an API key with the rights " + rightWords(v.person.Rights)
	if v.person.User != nil {
		you = string(v.person.Workspace.Role)
	}
	s := sheet{
		Facts: []fact{
			{"Id", cell{ID: v.person.Address.Lower()}}, {"Name", cell{Text: nameOf(p.Shown())}}, {"You are", cell{Text: you}},
			{"Environment", cell{Text: string(v.w.Environment)}}, {"Made", at(p.CreatedAt)},
		},
	}
	files := &table{Caption: "Files", Head: []column{{Text: "List"}, {Text: "For a spreadsheet"}, {Text: "For programs"}}}
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		if of := exports[name]; of.field == "" && v.person.Rights.Has(of.right) {
			files.Rows = append(files.Rows, []cell{
				{Text: of.title}, {Text: "CSV", To: v.to("export", name)}, {Text: "NDJSON", To: v.to("export", name) + "?format=ndjson"},
			})
		}
	}
	s.Parts = []part{{"Take everything away", files}}
	if v.person.HasName() && v.person.Rights.Has(toll.RightMembers) {
		s.Acts = []dialog{v.dialogOf("name", "Name the workspace", "Members see the name in place of the address.",
			field{Name: "name", Label: "Name", Value: p.Title, Max: 100})}
	}
	if v.person.HasName() && v.person.Rights.Has(toll.RightExport) {
		s.Acts = append(s.Acts, v.dangerOf("delete", "Delete the workspace",
			"All members lose their access, and API keys, access tokens, programs and webhooks end. Plans and agents are not listed any more. "+
				"Orders, receipts and the audit log stay with the service. Money in the wallet stays there: export its key before.",
			field{Name: "confirm", Label: "To confirm, type " + confirmation(p), Required: true}))
	}
	v.sheet("Workspace", s)
}

// confirmation is what a person types to delete a workspace: its name, or its id.
func confirmation(p store.Principal) string { return cmp.Or(plain.Name(p.Shown()), p.Address.Lower()) }

func changeWorkspace(v *visit) {
	if !isPerson(v) {
		return
	}
	if v.form.Get("act") != "name" {
		deleteWorkspace(v)
		return
	}
	v.finish(func() (outcome, error) {
		err := v.w.People.Members.Rename(v.ctx(), v.person.Caller, v.text("name"))
		return outcome{To: v.to("settings"), Done: "The workspace has its name."}, err
	})
}

func deleteWorkspace(v *visit) {
	if !v.hasRight(toll.RightExport) || !hasProof(v, "This deletes the workspace for all its members. Prove first that it is you: the proof counts for ten minutes.") {
		return
	}
	p, err := store.PrincipalByAddress(v.ctx(), v.w.Store, v.person.Address)
	if v.failed("workspace", err) {
		return
	}
	v.finish(func() (outcome, error) {
		if v.form.Get("act") != "delete" {
			return outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		if v.text("confirm") != confirmation(p) {
			return outcome{}, oneFault("confirm", "must be exactly the name that is asked for")
		}
		_, err := v.w.API.DeleteWorkspace(v.acting(), v.person.Address)
		return outcome{To: PathSecurity}, err
	})
}

var actSyntax = regexp.MustCompile(`^[a-z_]{1,40}\.[a-z_]{1,40}$`)

func listActs(v *visit) {
	filter, q := v.filters(
		field{Name: "act", Label: "Act", Max: 80, Hint: ""}, field{Name: "since", Label: "From", Type: "date"},
		field{Name: "until", Label: "Before", Type: "date"},
	)
	if act := q.Get("act"); act != "" && !actSyntax.MatchString(act) {
		v.status, v.fault = http.StatusBadRequest, "An act is two words with a dot between, such as member.removed."
		v.sheet("Audit log", sheet{Filter: filter})
		return
	}
	since, _ := time.Parse(time.RFC3339, q.Get("since")) // an unreadable day narrows nothing
	until, _ := time.Parse(time.RFC3339, q.Get("until"))
	list, err := store.AuditList(v.ctx(), v.w.Store, v.person.Address.Lower(), q.Get("act"), since, until, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Audit log",
		Head:    []column{{Text: "Time"}, {Text: "Act", Stays: true}, {Text: "By"}, {Text: "Object"}, {Text: "From"}},
		Empty:   &empty{Icon: "history", Title: "No entries", Text: "Each change of people, keys, plans and money is noted here, with who made it.", Command: "toll audit-log"},
		Pager:   v.pagerOf(list.Total, list.Next, "act"),
	}
	files := file(v, "audit", q)
	names := map[string]string{}
	for _, e := range list.Items {
		from := cell{ID: plain.Name(e.Source)}
		if from.ID == "" {
			from.Text = "not kept"
		}
		t.Rows = append(t.Rows, []cell{{At: e.At}, {Text: e.Act, Sub: plain.Name(detailText(e.Detail))}, actor(v, names, e), {ID: e.Object}, from})
	}
	v.sheet("Audit log", sheet{Lead: "Who changed what. Entries form a chain: none can be altered or left out unseen.", Links: files, Filter: filter, Table: t})
}

// actor is who did what an entry notes, by the name of a person.
func actor(v *visit, names map[string]string, e store.AuditEntry) cell {
	switch e.ActorKind {
	case "user":
		if _, ok := names[e.Actor]; !ok {
			var id toll.UUID
			if id.UnmarshalText([]byte(e.Actor)) == nil {
				if u, err := v.w.People.User(v.ctx(), id); err == nil {
					names[e.Actor] = plain.Name(u.Name)
				}
			}
		}
		return cell{Text: cmp.Or(names[e.Actor], "a person who left")}
	case "key":
		return cell{ID: e.Actor, To: v.to("keys", e.Actor)}
	}
	return cell{Text: "the operator"}
}

// detailText is what an entry says of a change, in one line: the members after it, and what they were before.
func detailText(detail string) string {
	var d struct{ Before, After any }
	if json.Unmarshal([]byte(detail), &d) != nil {
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

// programPages are the programs that people let into the workspace.
func programPages() []areaPage {
	return []areaPage{
		{
			Path: "/programs", Title: "Programs", Template: "sheet", Group: groupDevelop, Nav: "Programs", Icon: "shield",
			Right: toll.RightRead, Get: listPrograms,
		},
		{
			Path: "/programs/{grant}", Template: "sheet", Under: "/programs", Right: toll.RightRead,
			Get: showProgram, Post: endProgram,
		},
	}
}

func listPrograms(v *visit) {
	grants, err := v.w.OAuth.Grants(v.ctx(), v.person.Address, mostGranted)
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Programs", Head: []column{{Text: "Program"}, {Text: "Has"}, {Text: "Last use"}, {Text: "Since"}, {Text: "Ends"}},
		Empty: &empty{
			"shield", "No programs", "A program that wants to use this workspace sends you to a page where you decide. It appears here then.",
			PathDevice, "Let a program on a device in", "toll login --device",
		},
		Pager: &pager{Total: int64(len(grants)), Noun: "program"},
	}
	for _, g := range grants {
		one, err := v.w.granted(v.ctx(), g)
		if v.failed("program", err) {
			return
		}
		t.Rows = append(t.Rows, []cell{
			{Text: one.Name, To: v.to("programs", g.ID.String())}, {Text: one.Has}, {Text: one.LastUse}, {At: g.CreatedAt}, {At: g.EndsAt},
		})
	}
	v.sheet("Programs", sheet{
		Lead: "What can act for this workspace because a person let it in.", Table: t,
		Links: []link{{Text: "Let a program on a device in", To: PathDevice + "?" + url.Values{"workspace": {v.person.Address.String()}}.Encode(), Plain: true}},
	})
}

// program returns the consent of the page. It has answered when ok is false.
func program(v *visit) (g granted, ok bool) {
	grants, err := v.w.OAuth.Grants(v.ctx(), v.person.Address, mostGranted)
	if v.failed("program", err) {
		return g, false
	}
	for _, one := range grants {
		if strings.EqualFold(one.ID.String(), v.param("grant")) {
			g, err := v.w.granted(v.ctx(), one)
			return g, !v.failed("program", err)
		}
	}
	v.missing("program")
	return g, false
}

func showProgram(v *visit) {
	g, ok := program(v)
	if !ok {
		return
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: g.ID.String()}}, {"Client", cell{ID: g.ClientID}}, {"It has", cell{Text: g.Has}}, {"Since", cell{Text: g.Since}},
		{"Last use", cell{Text: g.LastUse}}, {"Ends", cell{Text: g.Until}},
	}}
	if g.Resource != "" {
		s.Facts = append(s.Facts, fact{"To be used at", cell{Text: g.Resource}})
	}
	s.Acts = []dialog{v.dangerOf("end", "Revoke", "The program is refused at once. What it made with this access ends with it.")}
	v.sheet(g.Name, s)
}

func endProgram(v *visit) {
	g, ok := program(v)
	if !ok {
		return
	}
	v.finish(func() (outcome, error) {
		if v.form.Get("act") != "end" {
			return outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		ended, err := v.w.OAuth.EndGrant(v.ctx(), v.person.Caller, g.ID)
		return outcome{To: v.to("programs"), Done: endedText(ended)}, err
	})
}
