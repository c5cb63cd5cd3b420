package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestNamesOfWorkspaces: who manages people names the workspace. Members and who is invited read the name, and two workspaces may
// have the same one.
func TestNamesOfWorkspaces(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		w := alice.workspace()
		at := "/w/" + w
		if body := alice.get(at).body; !strings.Contains(body, "This workspace has no name") {
			t.Errorf("a workspace without a name:\n%s", mainPart.FindString(body))
		}
		const name = `Bob's <b>agents</b>`
		const shown = `Bob&#39;s &lt;b&gt;agents&lt;/b&gt;`
		reads(t, alice.follow(alice.act(at+"/settings", "act", "name", "name", " "+name+" ")), http.StatusOK, "Workspace renamed.", shown)
		if body := alice.get(at).body; strings.Contains(body, "This workspace has no name") || !strings.Contains(body, "<b><bdi>"+shown+"</bdi></b>") || strings.Contains(body, "<b>agents") {
			t.Errorf("the overview:\n%s", body)
		}
		// Another workspace of that name.
		reads(t, bob.follow(bob.act("/w/"+bob.workspace()+"/settings", "act", "name", "name", name)), http.StatusOK, shown)
		link := alice.invite(w, "developer")
		reads(t, newVisitor(t, o.address).get("/sign-up?link="+link), http.StatusOK, shown)
		dev := o.signUp("dev", link)
		reads(t, dev.get(at+"/settings"), http.StatusOK, shown)
		for what, text := range map[string]string{"too long": strings.Repeat("x", 101), "control": "a\x01b"} {
			if res := alice.act(at+"/settings", "act", "name", "name", text); res.status != http.StatusBadRequest || !strings.Contains(res.body, "printable characters") {
				t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
			}
		}
		ticket := ticketOf.FindStringSubmatch(dev.get(at + "/agents/new").body)[1]
		for _, act := range []string{"name", "delete"} {
			if res := dev.post(at+"/settings", map[string][]string{"act": {act}, "name": {"Dan's"}, "confirm": {name}, "ticket": {ticket}}); res.status != http.StatusForbidden {
				t.Errorf("%s by a developer: %d", act, res.status)
			}
		}
		reads(t, alice.get(at+"/audit"), http.StatusOK, "workspace.renamed")
		for org, err := range client.New(alice.keyOf(w), client.WithURL(o.address), client.WithRetries(0)).Organizations(t.Context()) {
			if err != nil || org.Name != name {
				t.Errorf("%+v, %v", org, err)
			}
		}
		reads(t, alice.follow(alice.act(at+"/settings", "act", "name", "name", "")), http.StatusOK, "unnamed")
	})
}

// TestOverview_Narrowed: the figures of the overview are of one plan or agent when somebody asks for that, and lists of everything
// are left out then. A buyer sees what is left of a plan, and how long it lasts.
func TestOverview_Narrowed(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.sold("alice", "bob")
		s.settle("one", 1234)
		alice, bob := s.seller, s.buyer
		figure := `<p class="value num">1,234</p>`
		eventually(t, "the count of usage", func() bool { return strings.Contains(alice.get(alice.w).body, figure) })
		for query, narrowed := range map[string]bool{"": false, "?plan=" + string(s.plan): true, "?agent=" + string(s.agent): true, "?plan=" + string(s.plan) + "&agent=" + string(s.agent): true} {
			body := alice.get(alice.w + query).body
			if !strings.Contains(body, figure) || strings.Contains(body, "Latest paid requests") == narrowed || strings.Contains(body, "Recent orders") == narrowed {
				t.Errorf("%q:\n%s", query, mainPart.FindString(body))
			}
		}
		if body := alice.get(alice.w + "?agent=1").body; strings.Contains(body, figure) {
			t.Errorf("of another agent:\n%s", mainPart.FindString(body))
		}
		for _, query := range []string{"?plan=x", "?agent=x"} {
			if res := alice.get(alice.w + query); res.status != http.StatusNotFound {
				t.Errorf("%s: %d", query, res.status)
			}
		}
		reads(t, alice.get(alice.w+"/agents/"+string(s.agent)), http.StatusOK, "Last settled", "request one", "Last refusal", "none in this period")

		// 3,766 of 5,000 credits are left; 1,234 in a week are 21 days more.
		for _, path := range []string{"", "/holdings"} {
			reads(t, bob.get(bob.w+path), http.StatusOK, "/holdings/"+string(s.plan), "3,766", "1,234", "in 21 days")
		}
		reads(t, bob.get(bob.w+"/holdings/"+string(s.plan)), http.StatusOK, "Credits burned in 30 days", "in 21 days")
		if body := alice.get(alice.w).body; strings.Contains(body, "Plans you bought") {
			t.Errorf("who bought nothing:\n%s", mainPart.FindString(body))
		}
		s.settle("two", 2000)
		s.settle("three", 1500) // 266 are left, of 4,734 in a week
		eventually(t, "the warning", func() bool {
			return strings.Contains(bob.get(bob.w).body, "Credits of Basic run out in 9 hours")
		})
	})
}

// TestClockPage: the operator of a sandbox moves its time, and nobody else does.
func TestClockPage(t *testing.T) {
	s, address := start(t, server.Config{Data: storetest.Dir(t)}) // the clock of the service itself
	o := &town{t: t, s: s, address: address}
	link := must.Get(s.FirstLink(t.Context()))(t)
	operator, bob := o.signUp("operator", link[strings.LastIndex(link, "=")+1:]), o.signUp("bob", "")
	page, other := "/w/"+operator.workspace()+"/clock", "/w/"+bob.workspace()+"/clock"
	reads(t, operator.get(page), http.StatusOK, "0 seconds", "Move clock forward")
	reads(t, bob.get(other), http.StatusOK, "workspace can move the clock")
	for by, want := range map[string]string{"": "is required", "x": "whole number", "9999999": "at most 100 years"} {
		if res := operator.act(page, "act", "move", "by", by, "unit", "86400"); res.status != http.StatusBadRequest || !strings.Contains(res.body, want) {
			t.Errorf("%q: %d %s", by, res.status, mainPart.FindString(res.body))
		}
	}
	reads(t, operator.follow(operator.act(page, "act", "move", "by", "3", "unit", "3600")), http.StatusOK, "3 hours", time.Now().Add(3*time.Hour).UTC().Format("January 2, 2006, 15:"))
	ticket := ticketOf.FindStringSubmatch(bob.get("/w/" + bob.workspace() + "/agents/new").body)[1]
	if res := bob.post(other, map[string][]string{"act": {"move"}, "by": {"1"}, "unit": {"3600"}, "ticket": {ticket}}); res.status == http.StatusSeeOther {
		t.Errorf("another person moves it: %d", res.status)
	}
}
