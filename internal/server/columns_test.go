package server_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	headCell    = regexp.MustCompile(`<th scope="col"[^>]*>([^<]*)</th>`)
	pickForm    = regexp.MustCompile(`(?s)<details class="menu pick">.*?</details>`)
	pickBox     = regexp.MustCompile(`name="cols" value="([^"]*)"( disabled)?( checked)?>([^<]*)</label>`)
	filterForm  = regexp.MustCompile(`(?s)<form method="get" class="filters">.*?</form>`)
	rowLink     = regexp.MustCompile(`<td[^>]*><a href="(/w/[^"]*)"`)
	nextLink    = regexp.MustCompile(`href="([^"]*)" rel="next"`)
	sinceWhen   = regexp.MustCompile(`>[^<]*</time>`)
	hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// listOf returns the section of a page with its list: the table without a heading, or the first one with pages. "" is none.
func listOf(page string) string {
	sections := strings.Split(page, `<section class="panel`)[1:]
	for _, one := range sections {
		_, inside, _ := strings.Cut(one, ">")
		if !strings.HasPrefix(inside, "<header>") && (strings.Contains(one, "<table>") || strings.Contains(one, `<div class="empty">`)) {
			return one
		}
	}
	for _, one := range sections {
		if strings.Contains(one, `<footer class="pager">`) {
			return one
		}
	}
	return ""
}

// heads are the columns that a list shows.
func heads(list string) (out []string) {
	for _, m := range headCell.FindAllStringSubmatch(list, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestColumns_EveryList: on each list a person chooses the columns, by a form without scripts. One that names the row stays, with
// the links of the rows, also for names that no column has.
func TestColumns_EveryList(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	link := must.Get(o.s.FirstLink(t.Context()))(t)
	operator := o.signUp("operator", link[strings.LastIndex(link, "=")+1:])
	s := o.sold("alice", "bob")
	s.records()
	s.settle("one-more", 1)
	must.Get(s.seller.api.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Second"}}))(t)
	must.Get(s.buyer.api.OrderPlan(t.Context(), s.plan))(t)
	all := must.Get(server.PeoplePages(o.s))(t)
	var rows []string
	for _, p := range all {
		if row, ok := strings.CutPrefix(p.Path, "/w/{workspace}"); ok && p.Method == http.MethodGet {
			rows = append(rows, row)
		}
	}
	lists := map[string]bool{} // by row: whether it had records
	sorted := map[string]int{} // by row: how many records were seen in both orders
	for _, who := range []*seller{s.seller, s.buyer, {operator, "/w/" + operator.workspace(), nil}} {
		seen := map[string]bool{}
		for path, page := range who.pages(slices.Concat(slices.Sorted(maps.Keys(areas)), slices.Sorted(maps.Keys(guarded)))) {
			row, _ := pageOf(rows, path)
			list := listOf(page.body)
			if row == "/components" || list == "" || seen[row] {
				continue
			}
			lists[row] = lists[row] || strings.Contains(list, "<table>")
			if strings.Contains(list, "<table>") {
				seen[row] = true
				choosesColumns(t, who.visitor, who.w+path, list)
				sorted[row] = max(sorted[row], beginsWithOldest(t, who.visitor, who.w+path, list))
			}
		}
	}
	for _, row := range []string{
		"/agents", "/plans", "/subscribers", "/requests", "/orders", "/webhooks", "/webhooks/{webhook}", "/events", "/keys", "/keys/{key}/calls", "/tokens",
		"/delegations", "/cards", "/programs", "/holdings", "/audit", "/operator/accounts", "/plans/{plan}", "/agents/{agent}", "/holdings/{plan}",
		"/delegations/{delegation}",
	} {
		if _, ok := lists[row]; !ok {
			t.Errorf("%s was not met, or has no list", row)
		}
	}
	for row, least := range map[string]int{
		"/agents": 2, "/plans": 1, "/keys": 1, "/orders": 2, "/requests": 2, "/events": 2, "/webhooks": 1, "/tokens": 1, "/delegations": 1, "/holdings": 1,
		"/audit": 2, "/operator/accounts": 2,
	} {
		if sorted[row] < least {
			t.Errorf("%s begins with the oldest of %d records, and %d are needed", row, sorted[row], least)
		}
	}
	for row, met := range lists {
		if !met {
			t.Errorf("%s has no record in this test: its columns were not seen", row)
		}
	}
}

// beginsWithOldest opens a list with its oldest record first, and returns how many records it has: 0 where the page does not offer that.
func beginsWithOldest(t *testing.T, v *visitor, path, list string) int {
	t.Helper()
	records := func(list string) (out []string) {
		for _, row := range strings.Split(list, "<tr>") {
			if m := rowLink.FindStringSubmatch(row); m != nil {
				out = append(out, m[1])
			} else if _, cells, found := strings.Cut(row, "<td"); found {
				cells, _, _ = strings.Cut(cells, "</tr>")
				out = append(out, sinceWhen.ReplaceAllString(cells, ""))
			}
		}
		return out
	}
	page := v.get(path + "?sort=oldest")
	newest, shown := records(list), records(listOf(page.body))
	slices.Reverse(newest)
	if !strings.Contains(page.body, `<option value="oldest" selected>`) {
		return 0
	}
	if !slices.Equal(shown, newest) {
		t.Errorf("%s: the oldest first are %v, not %v", path, shown, newest)
	}
	return len(newest)
}

// choosesColumns tries the columns of one list, which is empty afterwards of choices.
func choosesColumns(t *testing.T, v *visitor, path, list string) {
	t.Helper()
	form := pickForm.FindString(list)
	boxes := pickBox.FindAllStringSubmatch(form, -1)
	if len(boxes) != len(heads(list)) || !strings.Contains(form, `<form method="get" action="`+path+`">`) {
		t.Errorf("%s: %d boxes for the columns %v\n%s", path, len(boxes), heads(list), form)
		return
	}
	stays, names := "", []string{}
	for i, b := range boxes {
		if b[3] == "" || b[4] != heads(list)[i] {
			t.Errorf("%s: the box of %s is not checked, or is %q", path, heads(list)[i], b[4])
		}
		if names = append(names, b[1]); b[2] != "" {
			stays += b[4]
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
		t.Errorf("%s: two columns have one name: %v", path, names)
	}
	records := func(list string) []string {
		var out []string
		for _, m := range rowLink.FindAllStringSubmatch(list, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	few := listOf(v.get(path + "?cols=" + names[len(names)-1]).body)
	last := boxes[len(boxes)-1][4]
	if got := strings.Join(heads(few), ","); got != stays+","+last && got != stays {
		t.Errorf("%s with the last column alone shows %s, want %s and %s", path, got, stays, last)
	}
	for _, to := range records(list) {
		if strings.HasPrefix(to, path+"/") && !slices.Contains(records(few), to) {
			t.Errorf("%s: no link to the record %s without columns that can be hidden", path, to)
		}
	}
	for _, hostile := range []string{
		"", ",,,", "no-such-column", `<script>alert(1)</script>`, "%00", strings.Repeat("x", 4000), strings.Repeat("a,", 700), "../../etc",
	} {
		res := v.get(path + "?cols=" + url.QueryEscape(hostile))
		if res.status != http.StatusOK || strings.Contains(res.body, "<script>alert") || !slices.Equal(heads(listOf(res.body)), heads(list)) {
			t.Errorf("%s with the columns %.30q: %d, %v", path, hostile, res.status, heads(listOf(res.body)))
		}
	}
}

// TestColumns_Kept: the choice of columns stays over filters, sorting and pages of a list, stands in the address, and is remembered
// for the person and the list alone.
func TestColumns_Kept(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.seller("alice")
	for range 30 {
		must.Get(alice.api.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}))(t)
	}
	agents := alice.w + "/agents"
	want := func(v *visitor, path, columns string) shown {
		t.Helper()
		res := v.get(path)
		if got := strings.Join(heads(listOf(res.body)), ","); res.status != http.StatusOK || got != columns {
			t.Errorf("%s: %d, the columns %s; want %s", path, res.status, got, columns)
		}
		return res
	}
	const every = "Name,ID,Listed,Plans,Created"

	// A link shows its columns, and changes nothing else.
	res := want(alice.visitor, agents+"?cols=listed&cols=name&sort=name", "Name,Listed")
	next := html.UnescapeString(nextLink.FindStringSubmatch(res.body)[1])
	want(alice.visitor, next, "Name,Listed")
	if q, _ := url.ParseQuery(next[strings.Index(next, "?")+1:]); q.Get("sort") != "name" {
		t.Errorf("the next part of the list is not sorted: %s", next)
	}
	if form := filterForm.FindString(res.body); !strings.Contains(form, `name="cols" value="name,listed"`) {
		t.Errorf("the form that sorts forgets the columns:\n%s", form)
	}
	want(alice.visitor, agents+"?sort=&cols=name%2Clisted", "Name,Listed")
	if form := pickForm.FindString(res.body); !strings.Contains(form, `name="sort" value="name"`) {
		t.Errorf("the form of the columns forgets how the list is sorted:\n%s", form)
	}
	want(alice.visitor, agents, every)

	// The form is sent as a browser without scripts sends it: what is chosen is in the address, and is remembered.
	q := url.Values{}
	for _, m := range hiddenInput.FindAllStringSubmatch(pickForm.FindString(res.body), -1) {
		q.Add(m[1], html.UnescapeString(m[2]))
	}
	q.Add("cols", "plans")
	res = alice.get(agents + "?" + q.Encode())
	to := res.header.Get("Location")
	if res.status != http.StatusSeeOther || strings.Contains(to, "keep") || !strings.Contains(to, "sort=name") {
		t.Fatalf("the form of the columns: %d, to %q", res.status, to)
	}
	want(alice.visitor, to, "Name,Plans")
	res = want(alice.visitor, agents, "Name,Plans")
	want(alice.visitor, html.UnescapeString(nextLink.FindStringSubmatch(res.body)[1]), "Name,Plans")
	want(alice.visitor, agents+"?sort=name", "Name,Plans")
	want(alice.visitor, agents+"?cols=name,id", "Name,ID") // a link goes before what is remembered
	want(alice.visitor, agents, "Name,Plans")
	want(alice.visitor, alice.w+"/keys", "Name,Key,Status,Rights,Last used,Expires")

	// Files have every column.
	if file := alice.get(alice.w + "/export/agents?cols=name"); !strings.HasPrefix(file.body, "id,agentId,name,description,tags,owner,isListed,") {
		t.Errorf("the file lacks columns: %.200s", file.body)
	}

	// Another person with the same browser sees all, and finds no trace of who chose.
	bob := o.seller("bob")
	must.Get(bob.api.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}}))(t)
	at := *alice.base
	at.Path = "/w/"
	for _, c := range alice.jar.Cookies(&at) {
		if c.Name == "columns" {
			if strings.Contains(c.Value, alice.w[3:]) || len(c.Value) > 1024 {
				t.Errorf("the cookie says %s", c.Value)
			}
			bob.jar.SetCookies(&at, []*http.Cookie{{Name: c.Name, Value: c.Value, Path: "/w/"}})
		}
	}
	want(bob.visitor, bob.w+"/agents", every)

	// All columns again: nothing is remembered any more.
	alice.get(agents + "?keep=yes&cols=name,id,listed,plans,created")
	want(alice.visitor, agents, every)

	// A cookie that somebody else wrote changes nothing but columns, and the one that pages write stays short.
	for _, evil := range []string{"x", "|||:::...", strings.Repeat("x|/agents:name.id", 500), "|/agents:id"} {
		bob.jar.SetCookies(&at, []*http.Cookie{{Name: "columns", Value: evil, Path: "/w/"}})
		want(bob.visitor, bob.w+"/agents", every)
	}
}
