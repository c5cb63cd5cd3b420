package server_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

var (
	keyIn   = regexp.MustCompile(`data-copy="(sandbox[^"]*:[^"]*|tk_sandbox_[^"]*)"`)
	tokenIn = regexp.MustCompile(`data-copy="(eyJ[^"]*)"`)
)

// follow opens the page to which a form led.
func (v *visitor) follow(res shown) shown {
	v.t.Helper()
	if res.status != http.StatusSeeOther {
		v.t.Fatalf("%d, no redirect:\n%s", res.status, mainPart.FindString(res.body))
	}
	return v.get(res.header.Get("Location"))
}

// keysOf are the API keys that the owner of a workspace sees in the API.
func keysOf(t *testing.T, o *town, key string) (out []*toll.APIKey) {
	t.Helper()
	for k, err := range client.New(key, client.WithURL(o.address), client.WithRetries(0)).Keys(t.Context()) {
		must.Do(t, err)
		out = append(out, k)
	}
	return out
}

// TestKeysOnPages: a person makes a key with few rights, sees it once, rotates it and ends it. However often a form is
// sent, it makes one key.
func TestKeysOnPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		local := alice.keyOf(w)
		keys := "/w/" + w + "/keys"
		dev := o.signUp("dev", alice.invite(w, "developer"))
		form := formOf(t, dev.get(keys+"/new")).with("name", "<b>shop</b>").with("rights", "read", "sell").with("ends", "604800")
		before := len(keysOf(t, o, local))
		first, second := dev.submit(form), dev.submit(form) // a double click
		if first.header.Get("Location") != second.header.Get("Location") {
			t.Errorf("the second leads to %q, the first to %q", second.header.Get("Location"), first.header.Get("Location"))
		}
		if keyIn.MatchString(alice.follow(second).body) {
			t.Error("another person sees the key")
		}
		page := dev.follow(second)
		m := keyIn.FindStringSubmatch(page.body)
		if m == nil || page.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("no key on the page:\n%s", mainPart.FindString(page.body))
		}
		if strings.Contains(page.body, "<b>shop") {
			t.Error("the name is markup")
		}
		for what, res := range map[string]shown{
			"a reload": dev.follow(second), "the first answer": dev.follow(first), "the list": dev.get(keys),
		} {
			if keyIn.MatchString(res.body) || strings.Contains(res.body, m[1]) {
				t.Errorf("%s shows the key", what)
			}
		}
		if n := len(keysOf(t, o, local)); n != before+1 {
			t.Fatalf("%d keys were made", n-before)
		}
		c := client.New(m[1], client.WithURL(o.address), client.WithRetries(0))
		if _, err := c.Wallet(t.Context()); err != nil {
			t.Errorf("the key does not read: %v", err)
		}
		_, err := c.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "x"}})
		if toll.AsError(err).Code != toll.CodeRightMissing {
			t.Errorf("the key manages: %v", err)
		}
		record, _, _ := strings.Cut(first.header.Get("Location"), "?")

		// Rotation: both work until the overlap is over, and the new one is shown once.
		page = dev.follow(dev.act(record, "act", "rotate", "overlap", "3600"))
		n := keyIn.FindStringSubmatch(page.body)
		if n == nil || n[1] == m[1] {
			t.Fatalf("no new key:\n%s", mainPart.FindString(page.body))
		}
		next := client.New(n[1], client.WithURL(o.address), client.WithRetries(0))
		for _, c := range []*client.Client{c, next} {
			if _, err := c.Wallet(t.Context()); err != nil {
				t.Errorf("a key is refused within the overlap: %v", err)
			}
		}
		rotated := ""
		for _, k := range keysOf(t, o, local) {
			if k.Name != nil && *k.Name == "<b>shop</b>" && !strings.HasSuffix(record, k.ID.String()) {
				rotated = keys + "/" + k.ID.String()
			}
		}
		page = dev.follow(dev.act(rotated, "act", "change", "name", "till", "version", "1.0"))
		if !strings.Contains(page.body, "<h1>till</h1>") || !strings.Contains(page.body, "1.1 is current") || !strings.Contains(page.body, "onchainMirror") {
			t.Errorf("after the change:\n%s", mainPart.FindString(page.body))
		}
		page = dev.follow(dev.act(rotated, "act", "end"))
		if !strings.Contains(page.body, "API key revoked.") || strings.Contains(page.body, `value="end"`) {
			t.Errorf("after the end:\n%s", mainPart.FindString(page.body))
		}
		o.ahead.Add(int64(2 * time.Second)) // keys are looked at once a second
		if _, err := next.Wallet(t.Context()); toll.AsError(err).Code != toll.CodeNotAuthenticated {
			t.Errorf("the key lives on: %v", err)
		}
	})
}

// TestKeysPages_KeysOnPages: who lacks the right makes no key, nobody makes one with more rights than their own, and the session of a key
// has no such pages.
// T154
func TestKeysPages_KeysOnPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		keys := "/w/" + w + "/keys"
		dev, viewer := o.signUp("dev", alice.invite(w, "developer")), o.signUp("viewer", alice.invite(w, "viewer"))
		out := o.signUp("out", "")
		session := newVisitor(t, o.address)
		local := alice.keyOf(w)
		session.signIn(session.get("/sign-in"), local)
		made := len(keysOf(t, o, local))
		form := formOf(t, dev.get(keys+"/new")).values
		stolen := url.Values{"ticket": form["ticket"], "act": {"make"}, "rights": {"read"}}
		for what, of := range map[string]struct {
			got  shown
			want int
		}{
			"a viewer opens the form":  {viewer.get(keys + "/new"), http.StatusForbidden},
			"a viewer sends the form":  {viewer.post(keys+"/new", stolen), http.StatusForbidden},
			"a stranger opens":         {out.get(keys), http.StatusNotFound},
			"a stranger sends":         {out.post(keys+"/new", stolen), http.StatusNotFound},
			"the session of a key":     {session.get(keys), http.StatusForbidden},
			"it sends":                 {session.post(keys+"/new", stolen), http.StatusForbidden},
			"without a ticket":         {dev.post(keys+"/new", url.Values{"act": {"make"}, "rights": {"read"}}), http.StatusForbidden},
			"of another person":        {alice.post(keys+"/new", stolen), http.StatusForbidden},
			"a right above the own":    {dev.act(keys+"/new", "act", "make", "rights", "money"), http.StatusForbidden},
			"a right of people":        {alice.act(keys+"/new", "act", "make", "rights", "members"), http.StatusForbidden},
			"no right":                 {dev.act(keys+"/new", "act", "make"), http.StatusBadRequest},
			"an unknown right":         {dev.act(keys+"/new", "act", "make", "rights", "x"), http.StatusBadRequest},
			"an end of another time":   {dev.act(keys+"/new", "act", "make", "rights", "read", "ends", "1"), http.StatusBadRequest},
			"a name that is too long":  {dev.act(keys+"/new", "act", "make", "rights", "read", "name", strings.Repeat("x", 101)), http.StatusBadRequest},
			"a key of another account": {out.get("/w/" + out.workspace() + "/keys/" + keysOf(t, o, local)[0].ID.String()), http.StatusNotFound},
			"an id that is none":       {alice.get(keys + "/x"), http.StatusNotFound},
		} {
			if of.got.status != of.want {
				t.Errorf("%s: %d, want %d\n%s", what, of.got.status, of.want, mainPart.FindString(of.got.body))
			}
		}
		if n := len(keysOf(t, o, local)); n != made {
			t.Errorf("%d keys were made", n-made)
		}
		if nav := session.get("/w/" + w).body; strings.Contains(nav, keys+`"`) || strings.Contains(nav, `/members"`) {
			t.Error("the navigation of the session of a key leads to keys or members")
		}
		o.ahead.Add(int64(11 * time.Minute))
		if res := dev.get(keys + "/new"); !strings.Contains(res.body, "Confirm that it is you") {
			t.Errorf("an old proof is taken:\n%s", mainPart.FindString(res.body))
		}
	})
}
