package server_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// town is a service whose people are in browsers, with a clock that the test moves.
type town struct {
	t       *testing.T
	s       *server.Server
	address string
	ahead   *atomic.Int64
	db      store.Config
}

// eachTown runs f on a service on each kind of database.
func eachTown(t *testing.T, f func(o *town)) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) { f(newTown(t, v, nil)) })
	}
}

func newTown(t *testing.T, v storetest.Variant, change func(*server.Config)) *town {
	return newTownOn(t, v, listenAnywhere(t), change)
}

func newTownOn(t *testing.T, v storetest.Variant, ln net.Listener, change func(*server.Config)) *town {
	db := storetest.Config(t, v)
	var ahead atomic.Int64
	cfg := server.Config{Data: db.Data, Database: db.Database, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	if change != nil {
		change(&cfg)
	}
	s, address := startOn(t, cfg, ln)
	return &town{t, s, address, &ahead, db}
}

const goodPassword = "four words are enough"

// signUp makes a person with a password, who is signed in then.
func (o *town) signUp(login, link string) *visitor {
	o.t.Helper()
	v := newVisitor(o.t, o.address)
	path := "/sign-up"
	if link != "" {
		path += "?link=" + link
	}
	res := v.submit(formOf(o.t, v.get(path)).with("name", strings.ToUpper(login)).with("login", login).with("password", goodPassword))
	if res.status != http.StatusSeeOther {
		o.t.Fatalf("sign-up of %s: %d %s", login, res.status, mainPart.FindString(res.body))
	}
	return v
}

// signIn signs a person in by password in another browser.
func (o *town) signIn(login, password string) (*visitor, shown) {
	o.t.Helper()
	v := newVisitor(o.t, o.address)
	return v, v.submit(formOf(o.t, v.get("/sign-in")).with("login", login).with("password", password).with("api_key"))
}

var (
	ticketOf    = regexp.MustCompile(`name="ticket" value="([^"]*)"`)
	workspaceIn = regexp.MustCompile(`href="/w/(0x[0-9a-fA-F]{40})/members"`)
	linkIn      = regexp.MustCompile(`/join\?link=([A-Za-z0-9_-]{43})`)
	userIn      = regexp.MustCompile(`name="user" value="([0-9a-f-]{36})"`)
)

// workspace is the first workspace of who signed in.
func (v *visitor) workspace() string {
	v.t.Helper()
	m := workspaceIn.FindStringSubmatch(v.get("/account/security").body)
	if m == nil {
		v.t.Fatal("no workspace")
	}
	return m[1]
}

// act sends a form of a page with its ticket.
func (v *visitor) act(path string, pairs ...string) shown {
	v.t.Helper()
	body := mainPart.FindString(v.get(path).body)
	m := ticketOf.FindStringSubmatch(body)
	if m == nil {
		v.t.Fatalf("no ticket on %s:\n%s", path, body)
	}
	form := url.Values{"ticket": {m[1]}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return v.post(path, form)
}

func (v *visitor) invite(workspace, role string) string {
	v.t.Helper()
	res := v.act("/w/"+workspace+"/members", "act", "invite", "role", role, "note", "For "+role)
	m := linkIn.FindStringSubmatch(res.body)
	if m == nil {
		v.t.Fatalf("no link: %d %s", res.status, mainPart.FindString(res.body))
	}
	return m[1]
}

// TestSignUp: a person signs up, gets a workspace, signs out and in again, without a shell and without scripts.
func TestSignUp(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		v := o.signUp("alice", "")
		page := v.get("/account/security").body
		if !strings.Contains(page, "Signed in as") || !strings.Contains(page, "ALICE") || !strings.Contains(page, "owner") {
			t.Errorf("after the sign-up:\n%s", page)
		}
		for what, form := range map[string]url.Values{
			"taken":    {"name": {"B"}, "login": {"Alice"}, "password": {goodPassword}},
			"short":    {"name": {"B"}, "login": {"bob"}, "password": {"short"}},
			"bad list": {"name": {"B"}, "login": {"bob"}, "password": {"Password123"}},
			"own name": {"name": {"B"}, "login": {"bobby"}, "password": {"xbobby-12345"}},
			"login":    {"name": {"B"}, "login": {"b b"}, "password": {goodPassword}},
		} {
			if res := newVisitor(t, o.address).post("/sign-up", form); res.status < 400 || res.status > 409 || len(res.header.Values("Set-Cookie")) > 0 {
				t.Errorf("%s: %d %s", what, res.status, res.header)
			}
		}
		if _, res := o.signIn("alice", "wrong words are not"); res.status != http.StatusUnauthorized {
			t.Errorf("a wrong password: %d", res.status)
		}
		again, res := o.signIn("Alice", goodPassword)
		if res.status != http.StatusSeeOther || again.workspace() != v.workspace() {
			t.Errorf("sign-in: %d", res.status)
		}
	})
}

// TestSignInByPassword: unknown people and wrong passwords get one answer, and tries are bounded by source and by name.
// T157
func TestSignInByPassword(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	o.signUp("alice", "")
	_, wrong := o.signIn("alice", "wrong words are not")
	_, unknown := o.signIn("nobody", "wrong words are not")
	text := func(s shown) string {
		return regexp.MustCompile(`id="fault" role="alert">([^<]*)<`).FindStringSubmatch(s.body)[1]
	}
	if wrong.status != unknown.status || text(wrong) != text(unknown) {
		t.Errorf("%d %q and %d %q", wrong.status, text(wrong), unknown.status, text(unknown))
	}
	// An unknown name costs a hash as well, so that the time tells nothing. A hash takes 19 MiB.
	for _, login := range []string{"alice", "nobody"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o.signIn(login, "wrong words are not")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n < 16<<20 {
			t.Errorf("a sign-in of %s takes %d bytes", login, n)
		}
	}
	limited := 0
	for range 60 {
		if _, res := o.signIn("alice", "wrong words are not"); res.status == http.StatusTooManyRequests {
			limited++
			if res.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	if limited < 15 {
		t.Errorf("%d of 60 tries were refused", limited)
	}
	if _, res := o.signIn("alice", goodPassword); res.status != http.StatusTooManyRequests {
		t.Errorf("the right password after the limit tells that it is right: %d", res.status)
	}
	// A source has a limit for all names, and a name one for all sources.
	proxied := newTown(t, storetest.SQLite, func(c *server.Config) { c.TrustedProxies = "127.0.0.1" })
	refused := func(source, login string) bool {
		t.Helper()
		v := newVisitor(t, proxied.address)
		res := v.post("/sign-in", url.Values{"login": {login}, "password": {"wrong words are not"}}, "X-Forwarded-For", source)
		return res.status == http.StatusTooManyRequests
	}
	bySource, byName := 0, 0
	for i := range 50 {
		if refused("203.0.113.1", fmt.Sprint("login", i)) {
			bySource++
		}
		if refused(fmt.Sprint("198.51.100.", i), "bob") {
			byName++
		}
	}
	if bySource < 5 || byName < 20 || refused("203.0.113.9", "carl") {
		t.Errorf("%d of 50 names of one source are refused, and %d of 50 sources of one name", bySource, byName)
	}
	if v := newVisitor(t, o.address); v.get("/sign-in?login=alice&password=four+words+are+enough").status != http.StatusOK ||
		strings.Contains(v.get("/account/security").body, "Signed in") {
		t.Error("GET signs in")
	}
}

// TestMembers: an invitation works once, roles bound what a person and their keys can do, and the last owner stays.
func TestMembers(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		members := "/w/" + w + "/members"
		link := alice.invite(w, "developer")
		// A scanner that opens the link does not use it up.
		for range 2 {
			if res := newVisitor(t, o.address).get("/sign-up?link=" + link); res.status != http.StatusOK {
				t.Fatalf("open: %d", res.status)
			}
		}
		dev := o.signUp("dev", link)
		if body := dev.get(members).body; !strings.Contains(body, "DEV") || strings.Contains(body, "Invite a person") {
			t.Errorf("the developer sees:\n%s", mainPart.FindString(body))
		}
		eve := o.signUp("eve", "")
		for what, res := range map[string]shown{
			"a stranger reads":       eve.get(members),
			"unknown workspace":      eve.get("/w/0x" + strings.Repeat("1", 40) + "/members"),
			"not a workspace":        eve.get("/w/x/members"),
			"a stranger writes":      eve.post(members, url.Values{"act": {"invite"}, "role": {"owner"}}),
			"the invitation, again":  newVisitor(t, o.address).get("/sign-up?link=" + link),
			"the invitation, second": eve.get("/join?link=" + link),
		} {
			if res.status != http.StatusNotFound {
				t.Errorf("%s: %d", what, res.status)
			}
		}
		if res := dev.act("/account/security", "act", "x"); res.status != http.StatusBadRequest {
			t.Errorf("unknown act: %d", res.status)
		}
		owner := userIn.FindStringSubmatch(alice.get(members).body)[1]
		for what, form := range map[string][]string{
			"invite":     {"act", "invite", "role", "viewer"},
			"raise self": {"act", "role", "role", "owner", "user", userOf(dev, members)},
			"remove":     {"act", "remove", "user", owner},
		} {
			if res := dev.post(members, ticketed(dev, members, form...)); res.status != http.StatusForbidden {
				t.Errorf("a developer may %s: %d", what, res.status)
			}
		}
		// The last owner.
		for what, form := range map[string][]string{
			"lower": {"act", "role", "role", "admin", "user", owner}, "leave": {"act", "remove", "user", owner},
		} {
			if res := alice.act(members, form...); res.status != http.StatusConflict {
				t.Errorf("the last owner can %s: %d", what, res.status)
			}
		}
		// An admin manages no owners.
		admin := o.signUp("adm", alice.invite(w, "admin"))
		for what, form := range map[string][]string{
			"invite an owner": {"act", "invite", "role", "owner"}, "lower an owner": {"act", "role", "role", "viewer", "user", owner},
			"become an owner": {"act", "role", "role", "owner", "user", userOf(admin, members)},
		} {
			if res := admin.act(members, form...); res.status != http.StatusForbidden {
				t.Errorf("an admin can %s: %d", what, res.status)
			}
		}
		// Who is removed is out at once, in every browser.
		if res := alice.act(members, "act", "remove", "user", userOf(dev, members)); res.status != http.StatusOK {
			t.Errorf("remove: %d", res.status)
		}
		if res := dev.get(members); res.status != http.StatusNotFound {
			t.Errorf("after the end of the membership: %d", res.status)
		}
		if faults, err := store.AuditChains(t.Context(), server.StoreOf(o.s)); err != nil || len(faults) > 0 {
			t.Errorf("audit log: %v %v", faults, err)
		}
	})
}

// userOf is the id of who signed in, of their own row.
func userOf(v *visitor, members string) string {
	v.t.Helper()
	row := regexp.MustCompile(`(?s)\(you\).*?name="user" value="([0-9a-f-]{36})"`).FindStringSubmatch(v.get(members).body)
	if row == nil {
		v.t.Fatal("no own row")
	}
	return row[1]
}

func ticketed(v *visitor, path string, pairs ...string) url.Values {
	form := url.Values{"ticket": {ticketOf.FindStringSubmatch(mainPart.FindString(v.get(path).body))[1]}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// TestInvitation_Twice: of two people who use one invitation at the same time one gets in.
func TestInvitation_Twice(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		link := alice.invite(w, "viewer")
		people := []*visitor{o.signUp("bob", ""), o.signUp("carl", ""), o.signUp("dora", "")}
		forms := make([]url.Values, len(people))
		for i, v := range people {
			forms[i] = ticketed(v, "/join?link="+link, "link", link)
		}
		in := make(chan int, len(people))
		for i, v := range people {
			go func() { in <- v.post("/join", forms[i]).status }()
		}
		got := []int{<-in, <-in, <-in}
		slices.Sort(got)
		if !slices.Equal(got, []int{303, 404, 404}) {
			t.Errorf("answers %v", got)
		}
	})
}

// TestInvitation_OfWhoLeft: an invitation of somebody who may not invite any more lets nobody in.
func TestInvitation_OfWhoLeft(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.signUp("alice", "")
	w := alice.workspace()
	admin := o.signUp("adm", alice.invite(w, "admin"))
	link := admin.invite(w, "admin")
	if res := alice.act("/w/"+w+"/members", "act", "role", "role", "viewer", "user", userOf(admin, "/w/"+w+"/members")); res.status != http.StatusOK {
		t.Fatalf("%d", res.status)
	}
	eve := o.signUp("eve", "")
	if res := eve.act("/join?link="+link, "link", link); res.status != http.StatusNotFound {
		t.Errorf("join: %d", res.status)
	}
}

// TestKeysOfMembers: a key that came of a person has at most the rights of the person's role, and ends with the membership.
func TestKeysOfMembers(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		members := "/w/" + w + "/members"
		dev := o.signUp("dev", alice.invite(w, "developer"))
		key := dev.keyOf(w)
		c := client.New(key, client.WithURL(o.address), client.WithRetries(0))
		child, err := c.CreateKey(t.Context(), client.KeyParams{Rights: toll.Rights{toll.RightSell, toll.RightRead}})
		must.Do(t, err)
		id := userOf(dev, members)
		if child.UserID != id || !strings.EqualFold(child.Address.String(), w) {
			t.Errorf("%+v", child)
		}
		if res := alice.act(members, "act", "role", "role", "viewer", "user", id); res.status != http.StatusOK {
			t.Fatalf("%d", res.status)
		}
		o.ahead.Add(int64(2 * time.Second)) // keys are looked at once a second
		_, err = c.CreateKey(t.Context(), client.KeyParams{})
		if toll.AsError(err).Code != toll.CodeRightMissing {
			t.Errorf("a key of a viewer makes keys: %v", err)
		}
		own := client.New(child.Key, client.WithURL(o.address), client.WithRetries(0))
		if res := alice.act(members, "act", "remove", "user", id); res.status != http.StatusOK {
			t.Fatalf("%d", res.status)
		}
		for _, c := range []*client.Client{c, own} {
			if _, err := c.CreateKey(t.Context(), client.KeyParams{}); toll.AsError(err).Code != toll.CodeNotAuthenticated {
				t.Errorf("a key lives on: %v", err)
			}
		}
	})
}

// keyOf lets a program on the computer of the person have a key, as toll login does.
func (v *visitor) keyOf(workspace string) string {
	v.t.Helper()
	s := client.NewSignIn(callback, "toll-cli")
	anonymous := client.New("", client.WithURL(v.url), client.WithRetries(0))
	page := v.get(strings.TrimPrefix(s.URL(anonymous), v.url) + "&workspace=" + workspace)
	res := v.submit(formOf(v.t, page).with("workspace", workspace).with("api_key"))
	u, err := url.Parse(res.header.Get("Location"))
	if err != nil || res.status != http.StatusSeeOther {
		v.t.Fatalf("%d %v\n%s", res.status, err, mainPart.FindString(res.body))
	}
	key, _, err := anonymous.ExchangeCode(v.t.Context(), s, u.Query().Get("code"))
	must.Do(v.t, err)
	return key
}

// TestTwoTabs: a form acts in the workspace in which it was shown, also after another tab went to another workspace.
func TestTwoTabs(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	alice := o.signUp("alice", "")
	shop := alice.workspace()
	bob := o.signUp("bob", "")
	own := bob.workspace()
	link := alice.invite(shop, "developer")
	if res := bob.act("/join?link="+link, "link", link); res.status != http.StatusSeeOther {
		t.Fatalf("join: %d", res.status)
	}
	s := client.NewSignIn(callback, "toll-cli")
	at := strings.TrimPrefix(s.URL(client.New("", client.WithURL(o.address))), o.address)
	first := formOf(t, bob.get(at+"&workspace="+own))   // one tab
	second := formOf(t, bob.get(at+"&workspace="+shop)) // and the other
	for what, form := range map[string]page{
		"the first form in the second workspace": first.with("workspace", shop), "without a workspace": first.with("workspace"),
		"the second form in the first workspace": second.with("workspace", own),
		"another workspace":                      first.with("workspace", "0x"+strings.Repeat("1", 40)),
	} {
		if res := bob.submit(form.with("api_key")); res.status != http.StatusForbidden && res.status != http.StatusNotFound {
			t.Errorf("%s: %d", what, res.status)
		}
	}
	for _, form := range []page{first, second} {
		res := bob.submit(form.with("api_key"))
		u, err := url.Parse(res.header.Get("Location"))
		if err != nil || res.status != http.StatusSeeOther {
			t.Fatalf("%d %v", res.status, err)
		}
		key, _, err := client.New("", client.WithURL(o.address)).ExchangeCode(t.Context(), s, u.Query().Get("code"))
		must.Do(t, err)
		for k, err := range client.New(key, client.WithURL(o.address)).Keys(t.Context()) {
			if err != nil || !strings.EqualFold(k.Address.String(), form.values.Get("workspace")) {
				t.Errorf("%v in %s: %v", k.Address, form.values.Get("workspace"), err)
			}
		}
	}
}

// TestSessionsOfPeople: sessions end with a change of the password, by their person, and at recovery; each proof is a new one.
// T153
func TestSessionsOfPeople(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		v := o.signUp("alice", "")
		old := cookieOf(v)
		other, _ := o.signIn("alice", goodPassword)
		if res := v.act("/account/security", "act", "password", "password", "other words are better"); res.status != http.StatusOK {
			t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
		}
		if cookieOf(v) == old || !strings.Contains(v.get("/account/security").body, "Signed in") {
			t.Error("the session keeps its id, or ended")
		}
		if strings.Contains(other.get("/account/security").body, "Signed in") {
			t.Error("the other session goes on after a change of the password")
		}
		other, res := o.signIn("alice", "other words are better")
		if res.status != http.StatusSeeOther {
			t.Fatalf("%d", res.status)
		}
		id := regexp.MustCompile(`name="session" value="([0-9a-f-]{36})"`).FindStringSubmatch(v.get("/account/security").body)
		if id == nil {
			t.Fatal("the other session is not listed")
		}
		if res := v.act("/account/security", "act", "end", "session", id[1]); res.status != http.StatusOK {
			t.Errorf("%d", res.status)
		}
		if strings.Contains(other.get("/account/security").body, "Signed in") {
			t.Error("an ended session goes on")
		}
		known := func(cookie string) bool {
			t.Helper()
			return strings.Contains(v.send(http.MethodGet, "/account/security", "", "Cookie", cookie).body, "Signed in")
		}
		// Who signs in where somebody else is signed in gets another session: one that was planted there is worth nothing.
		planted := o.signUp("eve", "")
		first := cookieOf(planted)
		form := formOf(t, planted.get("/sign-in?next=/device")).with("login", "alice").with("password", "other words are better").with("api_key")
		if res := planted.submit(form); res.status != http.StatusSeeOther || !strings.Contains(planted.get("/account/security").body, "ALICE") {
			t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
		}
		if cookieOf(planted) == first || known(first) {
			t.Error("the session of before goes on")
		}
		last := cookieOf(planted)
		var stored int
		_, token, _ := strings.Cut(last, "=")
		if err := server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM browser_sessions WHERE token = $1", token).Scan(&stored); err != nil || stored != 0 {
			t.Errorf("the cookie is in the database: %d %v", stored, err)
		}
		ticket := regexp.MustCompile(`action="/sign-out"[^>]*><input type="hidden" name="ticket" value="([^"]*)"`)
		planted.post("/sign-out", url.Values{"ticket": {ticket.FindStringSubmatch(planted.get("/account/security").body)[1]}})
		if known(last) {
			t.Error("a session goes on after its sign-out")
		}
		other, _ = o.signIn("alice", "other words are better")
		// A session ends after 12 hours without use, and after 7 days with use. A new proof does not extend it.
		for hour := 11; hour < 7*24; hour += 11 {
			o.ahead.Add(int64(11 * time.Hour))
			if !strings.Contains(v.get("/account/security").body, "Signed in") {
				t.Fatalf("a session that is used ended after %d hours", hour)
			}
		}
		if strings.Contains(other.get("/account/security").body, "Signed in") {
			t.Error("a session that is not used goes on")
		}
		if res := v.submit(formOf(t, v.get("/confirm")).with("password", "other words are better")); res.status != http.StatusSeeOther {
			t.Errorf("a proof: %d %s", res.status, mainPart.FindString(res.body))
		}
		o.ahead.Add(int64(11 * time.Hour))
		if strings.Contains(v.get("/account/security").body, "Signed in") {
			t.Error("a session goes on after 7 days")
		}
		// A person who is disabled is out, and is not told apart from nobody.
		v, _ = o.signIn("alice", "other words are better")
		must.Do(t, server.StoreOf(o.s).Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE users SET disabled_at = 1 WHERE name = 'ALICE'")
			return err
		}))
		if strings.Contains(v.get("/account/security").body, "Signed in") {
			t.Error("the session of a person who is disabled goes on")
		}
		if _, res := o.signIn("alice", "other words are better"); res.status != http.StatusUnauthorized || !strings.Contains(res.body, "login name or the password is wrong") {
			t.Errorf("a person who is disabled signs in: %d", res.status)
		}
	})
}

// TestStepUp: what changes who can use an account takes a proof that is at most ten minutes old, and a key in a browser never has one.
func TestStepUp(t *testing.T) {
	o := newTown(t, storetest.SQLite, nil)
	v := o.signUp("alice", "")
	w := v.workspace()
	o.ahead.Add(int64(9 * time.Minute))
	v.invite(w, "viewer")
	o.ahead.Add(int64(2 * time.Minute))
	res := v.act("/w/"+w+"/members", "act", "invite", "role", "viewer")
	if strings.Contains(res.body, "/join?link=") || !strings.Contains(res.body, "Confirm that it is you") {
		t.Fatalf("an old proof is taken: %s", mainPart.FindString(res.body))
	}
	old := cookieOf(v)
	if res := v.submit(formOf(t, res).with("password", "wrong words are not")); res.status != http.StatusUnauthorized {
		t.Errorf("%d", res.status)
	}
	if res := v.submit(formOf(t, res).with("password", goodPassword)); res.status != http.StatusSeeOther || !strings.HasSuffix(res.header.Get("Location"), "/members") {
		t.Errorf("%d %s", res.status, res.header.Get("Location"))
	}
	if cookieOf(v) == old {
		t.Error("the session keeps its id after a proof")
	}
	v.invite(w, "viewer")
	// The session of a key.
	key := v.keyOf(w)
	k := newVisitor(t, o.address)
	if res := k.submit(formOf(t, k.get("/sign-in")).with("api_key", key).with("login").with("password")); res.status != http.StatusSeeOther {
		t.Fatalf("%d", res.status)
	}
	for _, path := range []string{"/w/" + w + "/members", "/account/security"} {
		if res := k.get(path); res.status != http.StatusForbidden || strings.Contains(res.body, "<form method=\"post\" action=\""+path) {
			t.Errorf("%s in the session of a key: %d", path, res.status)
		}
	}
}

// TestRecovery: a code works once, a link of the operator once, and both end all sessions.
var recoveryCode = regexp.MustCompile(`<li><code>([a-z2-7-]{19})</code></li>`)

func TestRecovery(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		v := o.signUp("alice", "")
		res := v.act("/account/security", "act", "codes")
		codes := recoveryCode.FindAllStringSubmatch(res.body, -1)
		if len(codes) != 10 {
			t.Fatalf("%d codes:\n%s", len(codes), mainPart.FindString(res.body))
		}
		if strings.Contains(v.get("/account/security").body, codes[0][1]) {
			t.Error("the codes are shown again")
		}
		recover := func(code, password string) shown {
			n := newVisitor(t, o.address)
			return n.submit(formOf(t, n.get("/recover")).with("login", "alice").with("code", code).with("password", password))
		}
		if res := recover("aaaa-aaaa-aaaa-aaaa", "other words are better"); res.status != http.StatusUnauthorized {
			t.Errorf("a wrong code: %d", res.status)
		}
		if res := recover(strings.ToUpper(codes[0][1]), "other words are better"); res.status != http.StatusSeeOther {
			t.Errorf("a code: %d", res.status)
		}
		if res := recover(codes[0][1], "third words are better"); res.status != http.StatusUnauthorized {
			t.Errorf("a code again: %d", res.status)
		}
		if strings.Contains(v.get("/account/security").body, "Signed in") {
			t.Error("a session goes on after the recovery")
		}
		path := must.Get(o.s.RecoverLink(t.Context(), "alice"))(t)
		path = strings.TrimPrefix(path, o.s.PublicURL())
		open := func() shown {
			n := newVisitor(t, o.address)
			return n.submit(formOf(t, n.get(path)).with("password", "fourth words are best"))
		}
		if res := open(); res.status != http.StatusSeeOther {
			t.Errorf("the link: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := open(); res.status != http.StatusNotFound {
			t.Errorf("the link again: %d", res.status)
		}
		if _, res := o.signIn("alice", "fourth words are best"); res.status != http.StatusSeeOther {
			t.Errorf("sign-in: %d", res.status)
		}
		if res := recover(codes[1][1], "fifth words are better"); res.status != http.StatusUnauthorized {
			t.Errorf("a code from before the link: %d", res.status)
		}
	})
}

// TestFirstRun: the printed link makes one operator, once, and no other host and no later visitor does.
// T162
func TestFirstRun(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		old, err := o.s.FirstLink(t.Context())
		if err != nil || old == "" {
			t.Fatal(err)
		}
		link := must.Get(o.s.FirstLink(t.Context()))(t)
		secret := func(link string) string { return link[strings.Index(link, "link=")+5:] }
		form := url.Values{"name": {"Op"}, "login": {"boss"}, "password": {goodPassword}, "link": {secret(link)}}
		for what, s := range map[string]shown{
			"the link of an earlier start": newVisitor(t, o.address).post("/sign-up", url.Values{"name": {"Op"}, "login": {"boss"}, "password": {goodPassword}, "link": {secret(old)}}),
			"another host":                 onHost(t, o.address, "evil.example.com", form),
			"a guess":                      newVisitor(t, o.address).post("/sign-up", url.Values{"name": {"Op"}, "login": {"boss"}, "password": {goodPassword}, "link": {strings.Repeat("A", 43)}}),
		} {
			if s.status != http.StatusNotFound && s.status != http.StatusForbidden {
				t.Errorf("%s: %d", what, s.status)
			}
		}
		o.signUp("boss", secret(link))
		if s := newVisitor(t, o.address).post("/sign-up", form); s.status != http.StatusNotFound {
			t.Errorf("the link twice: %d", s.status)
		}
		if again, err := o.s.FirstLink(t.Context()); err != nil || again != "" {
			t.Errorf("a link after the setup: %q %v", again, err)
		}
	})
}

// TestRegistration_Invited: where sign-up is by invitation, nobody gets in without a link.
func TestRegistration_Invited(t *testing.T) {
	o := newTown(t, storetest.SQLite, func(c *server.Config) { c.Registration = "invited" })
	v := newVisitor(t, o.address)
	if res := v.get("/sign-up"); res.status != http.StatusForbidden {
		t.Errorf("the page: %d", res.status)
	}
	if res := v.post("/sign-up", url.Values{"name": {"A"}, "login": {"alice"}, "password": {goodPassword}}); res.status != http.StatusForbidden {
		t.Errorf("the form: %d", res.status)
	}
	if strings.Contains(v.get("/sign-in").body, "/sign-up") {
		t.Error("the sign-in leads there")
	}
	link := must.Get(o.s.SignUpLink(t.Context()))(t)
	secret := link[strings.Index(link, "link=")+5:]
	alice := o.signUp("alice", secret)
	if res := newVisitor(t, o.address).get("/sign-up?link=" + secret); res.status != http.StatusNotFound {
		t.Errorf("the link again: %d", res.status)
	}
	o.signUp("bob", alice.invite(alice.workspace(), "viewer"))
}

// TestAuditLog: each act is noted once, with who, what and from where, and a change of an entry is found.
// T169
func TestAuditLog(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		bob := o.signUp("bob", alice.invite(w, "developer"))
		id := userOf(bob, "/w/"+w+"/members")
		key := bob.keyOf(w)
		c := client.New(key, client.WithURL(o.address), client.WithRetries(0))
		agent, err := c.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "A"}})
		if err != nil {
			t.Fatal(err, agent)
		}
		alice.act("/w/"+w+"/members", "act", "role", "role", "viewer", "user", id)
		alice.act("/w/"+w+"/members", "act", "remove", "user", id)
		st := server.StoreOf(o.s)
		list := must.Get(store.AuditList(t.Context(), st, strings.ToLower(w), "", time.Time{}, time.Time{}, store.Page{Size: 100}))(t)
		digests := map[string]bool{}
		count := map[string]int{}
		for _, e := range list.Items {
			count[e.Act]++
			if digests[string(e.SourceHash)] || net.ParseIP(e.Source) == nil {
				t.Errorf("%s: source %q, or its digest tells that it is one that came before", e.Act, e.Source)
			}
			digests[string(e.SourceHash)] = true
			if e.Source == "" || e.ActorKind == "local" {
				t.Errorf("%s by %s from %q", e.Act, e.ActorKind, e.Source)
			}
			if e.Act == "member.role" && e.Detail != `{"before":"developer","after":"viewer"}` {
				t.Errorf("detail %s", e.Detail)
			}
		}
		for _, act := range []string{"workspace.created", "member.invited", "member.joined", "grant.created", "grant.revoked", "api_key.created", "agent.created", "member.role", "member.removed", "api_key.revoked"} {
			if count[act] != 1 {
				t.Errorf("%d × %s", count[act], act)
			}
		}
		sound := func(want bool) {
			t.Helper()
			faults, err := store.AuditChains(t.Context(), st)
			if err != nil || (len(faults) == 0) != want {
				t.Errorf("%v %v", faults, err)
			}
		}
		sound(true)
		// After 90 days the addresses go, and the chain holds.
		must.Get(store.DropAuditSources(t.Context(), st, time.Now().Add(time.Hour), 1000))(t)
		list, err = store.AuditList(t.Context(), st, strings.ToLower(w), "", time.Time{}, time.Time{}, store.Page{})
		if err != nil || list.Items[0].Source != "" || len(list.Items[0].SourceHash) != 32 {
			t.Errorf("%+v %v", list, err)
		}
		sound(true)
		edit := func(statement string) {
			t.Helper()
			must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(t.Context(), statement, strings.ToLower(w)); return err }))
		}
		edit("UPDATE audit_log SET actor = 'x' WHERE workspace = $1 AND number = 3")
		sound(false)
	})
}

// TestSpendLimit_KeySession: an API key that is pasted into the pages has the rights and the limit that its person has now.
func TestSpendLimit_KeySession(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		members := "/w/" + w + "/members"
		bob := o.signUp("bob", alice.invite(w, "developer"))
		at := members + "/" + userOf(bob, members)
		alice.act(at, "act", "limit", "limit", "0.99")
		session := newVisitor(t, o.address)
		session.signIn(session.get("/sign-in"), bob.keyOf(w))
		path := "/w/" + w + "/delegations/new"
		method := regexp.MustCompile(`value="(erc4337 [^"]*)"`).FindStringSubmatch(session.get(path).body)
		if method == nil {
			t.Fatal(mainPart.FindString(session.get(path).body))
		}
		delegate := func(limit string) shown {
			return session.act(path, "act", "make", "method", method[1], "limit", limit, "ends", "2592000")
		}
		if res := delegate("1.00"); res.status != http.StatusPaymentRequired || !strings.Contains(res.body, "spending limit") {
			t.Errorf("beyond the limit: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := delegate("0.99"); res.status != http.StatusSeeOther {
			t.Errorf("the limit: %d %s", res.status, mainPart.FindString(res.body))
		}
		if body := alice.get(at).body; !strings.Contains(body, "0.99 of 0.99") {
			t.Errorf("it does not count: %s", mainPart.FindString(body))
		}
		alice.act(at, "act", "role", "role", "viewer")
		// The record of a key is believed for a second.
		eventually(t, "the key of a viewer makes no delegation", func() bool { return session.get(path).status == http.StatusForbidden })
	})
}

// TestActsOfPeople: what people do to their credentials and to who is in is in the log of their workspace, once, with who did it and
// from where; what the operator does is in the log of the operator.
// T169
func TestActsOfPeople(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice := o.signUp("alice", "")
		w := alice.workspace()
		members := "/w/" + w + "/members"
		link := alice.invite(w, "viewer")
		bob := o.signUp("bob", link)
		at, user := members+"/"+userOf(bob, members), userOf(alice, members)
		key, _ := keys(t, o.s)
		p := newPocket(t, o.address)
		st := server.StoreOf(o.s)
		log := func(workspace string) map[string]int {
			t.Helper()
			list := must.Get(store.AuditList(t.Context(), st, strings.ToLower(workspace), "", time.Time{}, time.Time{}, store.Page{Size: 100}))(t)
			all := map[string]int{}
			for _, e := range list.Items {
				all[e.Act+" "+e.Detail]++
				if workspace == w && (e.ActorKind != "user" || e.Source == "") || workspace == w && e.Actor != user && e.Act != "member.joined" && e.Act != "sign_in" {
					t.Errorf("%s by %s %s from %q", e.Act, e.ActorKind, e.Actor, e.Source)
				}
			}
			return all
		}
		noted := func(workspace, name, detail string, do func()) {
			t.Helper()
			before := log(workspace)
			do()
			for text, n := range log(workspace) {
				want := before[text]
				if text == name+" "+detail {
					want++
				}
				if n != want {
					t.Errorf("%s: %d × %s, want %d", name, n, text, want)
				}
			}
			if log(workspace)[name+" "+detail] != before[name+" "+detail]+1 {
				t.Errorf("%s %s is not noted: %v", name, detail, log(workspace))
			}
		}
		acts := func(path string, pairs ...string) func() {
			return func() {
				if res := alice.act(path, pairs...); res.status >= 400 {
					t.Errorf("%v: %d %s", pairs, res.status, mainPart.FindString(res.body))
				}
			}
		}
		security := "/account/security"
		noted(w, "credential.added", `{"kind":"recovery"}`, acts(security, "act", "codes"))
		noted(w, "credential.added", `{"kind":"password"}`, acts(security, "act", "password", "password", "other words are better"))
		noted(w, "credential.added", `{"kind":"wallet"}`, func() {
			alice.submit(p.signsText(t, alice.act(security, "act", "wallet", "address", p.Address().String())))
		})
		id := regexp.MustCompile(`name="credential" value="([^"]*)"[^>]*><input type="hidden" name="ticket" value="[^"]*"><button type="submit" class="plain">Remove<span class="unseen"> Wallet`).
			FindStringSubmatch(alice.get(security).body)
		if id == nil {
			t.Fatal("the wallet cannot be removed")
		}
		noted(w, "credential.removed", `{"kind":"wallet"}`, acts(security, "act", "remove", "credential", id[1]))
		noted(w, "session.ended", "null", acts(at, "act", "sessions"))
		noted(w, "member.role", `{"before":"viewer","after":"billing"}`, acts(at, "act", "role", "role", "billing"))
		noted(w, "member.role", `{"before":"billing","after":"developer"}`, acts(at, "act", "role", "role", "developer"))
		noted(w, "member.limit", `{"before":null,"after":"1250"}`, acts(at, "act", "limit", "limit", "12.50"))
		noted(w, "member.limit", `{"before":"1250","after":null}`, acts(at, "act", "limit", "limit", ""))
		noted(w, "member.limit", `{"before":null,"after":"0"}`, acts(at, "act", "limit", "limit", "0"))
		if body := alice.get(at).body; !strings.Contains(body, "0.00 of 0.00") {
			t.Errorf("the limit is not shown: %s", mainPart.FindString(body))
		}
		noted(w, "member.invited", `{"after":"viewer"}`, acts(members, "act", "invite", "role", "viewer"))
		open := regexp.MustCompile(`name="invitation" value="([^"]*)"`).FindStringSubmatch(alice.get(members).body)
		noted(w, "invitation.withdrawn", "null", acts(members, "act", "withdraw", "invitation", open[1]))
		noted(key.Address.String(), "workspace.claimed", "null", acts(security, "act", "claim", "api_key", key.Key))
		noted("", "link.made", `{"login":"alice"}`, func() {
			must.Get(o.s.RecoverLink(t.Context(), "alice"))(t)
		})
		if faults, err := store.AuditChains(t.Context(), st); err != nil || len(faults) > 0 {
			t.Errorf("audit log: %v %v", faults, err)
		}
	})
}

// TestDisablePerson: a person whom the operator disables is out everywhere, also the programs that they let in, and is not told apart
// from nobody. Enabled, they sign in again; what ended stays ended.
func TestDisablePerson(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.sold("alice", "bob")
		settled := func(id string) bool {
			t.Helper()
			n := toll.Credits(1)
			r, err := s.seller.api.Settle(t.Context(), &x402.SettleRequest{
				PaymentRequired: s.required, AccessToken: s.token, AgentRequestID: id, MaxAmount: &n,
			})
			return err == nil && r.Success
		}
		if !settled("before") {
			t.Fatal("not settled")
		}
		switched := func(disabled bool) {
			t.Helper()
			if u, err := server.Disable(o.s, t.Context(), "Bob", disabled); err != nil || u.Name != "BOB" {
				t.Fatalf("%+v %v", u, err)
			}
			o.ahead.Add(int64(2 * time.Second)) // keys are looked at once a second
		}
		in := func() bool {
			_, res := o.signIn("bob", goodPassword)
			return res.status == http.StatusSeeOther
		}
		switched(true)
		if strings.Contains(s.buyer.get("/account/security").body, "Signed in") || in() {
			t.Error("a person who is disabled is in")
		}
		if _, res := o.signIn("bob", goodPassword); res.status != http.StatusUnauthorized || !strings.Contains(res.body, "login name or the password is wrong") {
			t.Errorf("a person who is disabled is told apart: %d", res.status)
		}
		if _, err := s.buyer.api.Wallet(t.Context()); toll.AsError(err).Code != toll.CodeNotAuthenticated {
			t.Errorf("the key goes on: %v", err)
		}
		eventually(t, "the access token ends", func() bool {
			must.Get(o.s.RunDueJobs(t.Context()))(t)
			o.ahead.Add(int64(2 * time.Second))
			return !settled(toll.NewUUID())
		})
		switched(false)
		if _, err := s.buyer.api.Wallet(t.Context()); !in() || err == nil {
			t.Errorf("enabled again: the key works: %v", err)
		}
		if _, err := server.Disable(o.s, t.Context(), "nobody", true); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("nobody: %v", err)
		}
		list, err := store.AuditList(t.Context(), server.StoreOf(o.s), "", "person.disabled", time.Time{}, time.Time{}, store.Page{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%+v %v", list, err)
		}
	})
}

// onHost signs up with another Host header.
func onHost(t *testing.T, address, host string, form url.Values) shown {
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/sign-up", strings.NewReader(form.Encode())))(t)
	req.Host = host
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
	defer res.Body.Close()
	return shown{status: res.StatusCode, header: res.Header}
}
