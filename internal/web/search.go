package web

import (
	"net/http"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// searchPages find records of the workspace, and pages.
func searchPages() []areaPage {
	return []areaPage{{Path: "/search", Title: "Search", Template: "search", Right: toll.RightRead, Get: search}}
}

// found is what a search leads to.
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
	{Kind: "Page", Text: "Your account", To: PathSecurity}, {Kind: "Page", Text: "Explore agents", To: PathExplore},
	{Kind: "Page", Text: "Check a receipt", To: PathReceipts}, {Kind: "Page", Text: "Documents", To: "/docs"},
}

// search finds pages by the beginning of a word of their name, and records by their id or name. The whole id of a record leads
// to its page at once.
func search(v *visit) {
	page := searchPage{Query: strings.TrimSpace(v.r.URL.Query().Get("q"))}
	if page.Query == "" {
		v.draw("Search", page)
		return
	}
	for _, a := range v.w.areas {
		if a.Title != "" && !strings.Contains(a.Path, "{") && mayGo(v, a) && begins(a.Title, page.Query) {
			kind := "Page"
			if strings.HasSuffix(a.Path, "/new") {
				kind = "Act"
			}
			page.Results = append(page.Results, found{Kind: kind, Text: a.Title, To: v.base() + a.Path})
		}
	}
	for _, p := range pagesAround {
		if begins(p.Text, page.Query) && (p.To != PathSecurity || v.person.HasName()) {
			page.Results = append(page.Results, p)
		}
	}
	records, more, err := v.w.API.Search(v.acting(), page.Query, "")
	if err != nil && toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError {
		v.fail(err)
		return
	}
	if err != nil {
		v.status, v.fault = toll.AsError(err).HTTPStatus(), toll.AsError(err).Text()
	}
	page.More = more
	for _, r := range records {
		if !has(v, foundPages[r.Type]) {
			continue
		}
		one := found{Kind: kindNames[r.Type], ID: r.ID, To: v.to(foundPages[r.Type], r.ID)}
		if r.Name != nil {
			one.Text = plain.Name(*r.Name)
		}
		if strings.EqualFold(r.ID, page.Query) && !v.r.URL.Query().Has("list") {
			v.redirect(http.StatusSeeOther, one.To)
			return
		}
		page.Results = append(page.Results, one)
	}
	if v.person.User != nil {
		members, err := v.w.People.Members.List(v.ctx(), v.person.Address)
		if v.failed("member", err) {
			return
		}
		for _, m := range members {
			if begins(m.Name, page.Query) {
				page.Results = append(page.Results, found{Kind: "Member", Text: plain.Name(m.Name), To: v.to("members")})
			}
		}
	}
	if len(page.Results) == 0 && has(v, "requests") {
		r, err := v.w.API.SettlementByTransaction(v.acting(), page.Query)
		if err != nil {
			r, err = v.w.API.Settlement(v.acting(), page.Query)
		}
		if err == nil {
			page.Results = append(page.Results, found{Kind: "Request", ID: r.AgentRequestID, To: v.to("requests", r.AgentRequestID)})
		}
	}
	v.draw("Search", page)
}

// mayGo reports whether the person may open a page.
func mayGo(v *visit, a areaPage) bool {
	user := v.person.User
	return v.person.Rights.Has(a.Right) && (user != nil || !a.Persons) && (!a.Operators || user.Operator)
}

// has reports whether there are pages of these records, which the person may open.
func has(v *visit, records string) bool {
	for _, a := range v.w.areas {
		if a.Path == "/"+records {
			return mayGo(v, a)
		}
	}
	return false
}

// begins reports whether a word of a name begins with a text, in any case.
func begins(name, text string) bool {
	name, text = strings.ToLower(name), strings.ToLower(text)
	return strings.HasPrefix(name, text) || strings.Contains(name, " "+text)
}
