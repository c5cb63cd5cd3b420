package server_test

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestDeleteWorkspace: an owner deletes a workspace on its page, after a fresh proof and with its name typed. Members, keys, invitations and
// access tokens end, its plans cannot be bought any more, and what was recorded stays.
func TestDeleteWorkspace(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.sold("alice", "bob")
		alice, bob := s.seller, s.buyer
		w := strings.TrimPrefix(alice.w, "/w/")
		settings := alice.w + "/settings"
		admin := o.signUp("admin", alice.invite(w, "admin"))
		open := alice.invite(w, "viewer")
		settled := s.settle("one", 10)
		key := client.New(admin.keyOf(w), client.WithURL(o.address), client.WithRetries(0))
		confirm := regexpOf(`To confirm, type ([^<]+)<`, alice.get(settings).body)
		if body := admin.get(settings).body; strings.Contains(body, `value="delete"`) {
			t.Error("an admin is asked whether to delete")
		}
		for what, res := range map[string]shown{
			"an admin":               admin.post(settings, url.Values{"act": {"delete"}, "confirm": {confirm}, "ticket": {"x"}}),
			"a person outside":       bob.post(settings, url.Values{"act": {"delete"}, "confirm": {confirm}, "ticket": {"x"}}),
			"without the name":       alice.act(settings, "act", "delete"),
			"with another name":      alice.act(settings, "act", "delete", "confirm", confirm+"x"),
			"another act":            alice.act(settings, "act", "x", "confirm", confirm),
			"without a ticket":       alice.post(settings, url.Values{"act": {"delete"}, "confirm": {confirm}}),
			"the session of a key":   o.keySession(admin.keyOf(w)).post(settings, url.Values{"act": {"delete"}, "confirm": {confirm}}),
			"an old proof":           o.later(11*time.Minute, func() shown { return alice.act(settings, "act", "delete", "confirm", confirm) }),
			"an API key":             {status: statusOf(t, key, w)},
			"somebody's own session": {status: statusOf(t, bob.api, w)},
		} {
			if res.status < 400 && !strings.Contains(res.body, "Confirm that it is you") {
				t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
			}
		}
		if alice.get(alice.w).status != http.StatusOK || admin.get(alice.w).status != http.StatusOK {
			t.Fatal("the workspace is gone")
		}
		form := formWith(t, alice.get(settings), "delete").with("confirm", confirm)
		first, second := alice.submit(form), alice.submit(form) // a double click
		if first.status != http.StatusSeeOther || first.header.Get("Location") != "/account/security" {
			t.Fatalf("%d %s\n%s", first.status, first.header.Get("Location"), mainPart.FindString(first.body))
		}
		if second.status >= http.StatusInternalServerError {
			t.Errorf("the second: %d", second.status)
		}
		reads(t, alice.follow(first), http.StatusOK, "Your account")
		st := storetest.OpenConfig(t, store.Config{Data: o.db.Data, Database: o.db.Database, Admin: true, ReadOnly: true})
		lower := toll.MustAddress(w).Lower()
		if acts := storetest.Acts(t, st, lower, "workspace.deleted"); !slices.Equal(acts, []string{lower + ` {"before":{"invitations":1,"members":2}}`}) {
			t.Errorf("the audit log says %q", acts)
		}
		o.ahead.Add(int64(2 * time.Second)) // keys are looked at once a second
		for _, v := range []*visitor{alice.visitor, admin} {
			if res := v.get(alice.w); res.status != http.StatusNotFound {
				t.Errorf("a member afterwards: %d", res.status)
			}
		}
		for _, c := range []*client.Client{alice.api, key} {
			if _, err := c.Wallet(t.Context()); toll.AsError(err).Code != toll.CodeNotAuthenticated {
				t.Errorf("a key afterwards: %v", err)
			}
		}
		if res := bob.get("/join?link=" + open); res.status != bob.get("/join?link=unknown").status || strings.Contains(res.body, "<form") && strings.Contains(res.body, `value="`+open) {
			t.Errorf("the invitation is still good: %d\n%s", res.status, mainPart.FindString(res.body))
		}
		if _, err := bob.api.OrderPlan(t.Context(), s.plan); toll.AsError(err).Code != toll.CodePlanUnlisted {
			t.Errorf("an order of its plan: %v", err)
		}
		r, err := bob.api.Request(t.Context(), "one")
		if err != nil || r.Transaction == nil || r.Transaction.String() != settled.Transaction {
			t.Errorf("the record of a request: %+v %v", r, err)
		}
		if b, err := bob.api.Balance(t.Context(), s.plan); err != nil || b.Used != 10 {
			t.Errorf("the balance: %+v %v", b, err)
		}
	})
}

// regexpOf returns what a page says at a place.
func regexpOf(pattern, body string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(body)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

func (o *town) keySession(key string) *visitor {
	v := newVisitor(o.t, o.address)
	v.signIn(v.get("/sign-in"), key)
	return v
}

// later does something when time has passed, and goes back.
func (o *town) later(d time.Duration, do func() shown) shown {
	o.ahead.Add(int64(d))
	defer o.ahead.Add(-int64(d))
	return do()
}

func statusOf(t *testing.T, c *client.Client, workspace string) int {
	t.Helper()
	_, err := c.DeleteWorkspace(t.Context(), toll.MustAddress(workspace))
	if err == nil {
		return http.StatusOK
	}
	return toll.AsError(err).HTTPStatus()
}

// TestDeleteWorkspace_Owes: who sold credits for money, or has an order that is not decided, cannot delete the workspace.
func TestDeleteWorkspace_Owes(t *testing.T) {
	c := newCardShop(t)
	link := must.Get(c.s.FirstLink(t.Context()))(t)
	o := &town{t: t, s: c.s, address: c.url}
	owner := o.signUp("owner", link[strings.LastIndex(link, "=")+1:])
	res := owner.act("/account/security", "act", "claim", "api_key", c.owner.Key)
	if res.status != http.StatusOK {
		t.Fatalf("claim: %d %s", res.status, mainPart.FindString(res.body))
	}
	settings := "/w/" + c.owner.Address.String() + "/settings"
	try := func() shown {
		confirm := regexpOf(`To confirm, type ([^<]+)<`, owner.get(settings).body)
		return owner.act(settings, "act", "delete", "confirm", confirm)
	}
	buyer := newVisitor(t, c.url)
	buyer.signIn(buyer.get("/sign-in"), c.holder.Key)
	page := buyer.submit(formOf(t, buyer.get("/w/"+c.holder.Address.String()+"/holdings/"+string(c.plan)))).header.Get("Location")
	page = strings.TrimPrefix(page, c.s.PublicURL())
	if res := try(); res.status != http.StatusConflict || !strings.Contains(res.body, "Pending or disputed orders") {
		t.Errorf("with an open order: %d\n%s", res.status, mainPart.FindString(res.body))
	}
	buyer.follow(buyer.submit(formOf(t, buyer.get(page)))) // pays on the processor's page
	to, _ := linkOf(t, buyer.get(page))
	buyer.get(c.fill(to, goodCard))
	eventually(t, "the order is paid", func() bool {
		b, err := c.buyer.Balance(t.Context(), c.plan)
		return err == nil && b.Available > 0
	})
	if res := try(); res.status != http.StatusConflict || !strings.Contains(res.body, "still has credits") {
		t.Errorf("with credits that were paid: %d\n%s", res.status, mainPart.FindString(res.body))
	}
	if owner.get(settings).status != http.StatusOK {
		t.Fatal("the workspace is gone")
	}
	b := must.Get(c.buyer.Balance(t.Context(), c.plan))(t)
	if _, err := c.seller.TakeBack(t.Context(), c.plan, c.holder.Address, b.Available); !errors.Is(err, toll.NewError(toll.CodeCreditsNotFree)) {
		t.Errorf("credits that were paid are taken back: %v", err)
	}
	must.Get(c.seller.RefundOrder(t.Context(), regexpOf(`/checkout/([0-9a-f-]{36})`, page), 0))(t)
	eventually(t, "the credits are gone", func() bool {
		b, err := c.buyer.Balance(t.Context(), c.plan)
		return err == nil && b.Available == 0
	})
	if res := try(); res.status != http.StatusConflict || !strings.Contains(res.body, "within the last minute") {
		t.Errorf("right after an order, as another process might place one now: %d\n%s", res.status, mainPart.FindString(res.body))
	}
	c.ahead.Add(int64(2 * time.Minute))
	if res := try(); res.status != http.StatusSeeOther {
		t.Errorf("when nothing is owed: %d\n%s", res.status, mainPart.FindString(res.body))
	}
}
