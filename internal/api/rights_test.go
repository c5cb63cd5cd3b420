package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// TestRightOfEveryRoute: each row of the table names one right or is public, and a key of each kind gets past it with that right
// alone, and with no other.
// T17
func TestRightOfEveryRoute(t *testing.T) {
	s := newStack(t)
	all := toll.AllRights()
	kinds := map[toll.KeyMaker]map[toll.Right]actor{}
	for _, kind := range []toll.KeyMaker{toll.MadeLocally, toll.MadeByUser, toll.MadeByKey, toll.MadeByGrant} {
		kinds[kind] = map[toll.Right]actor{}
		for _, right := range all {
			maker := auth.Maker{Address: s.b1.address, By: kind, Rights: all}
			if kind != toll.MadeLocally {
				maker.Parent = s.b1.keyID
			}
			k, err := s.auth.CreateKey(context.Background(), maker, auth.KeyParams{Rights: toll.Rights{right}}, nil)
			if handed := kind == toll.MadeLocally || right != toll.RightExport && right != toll.RightMembers; handed != (err == nil) {
				t.Fatalf("%s with the right %s: %v", kind, right, err)
			} else if handed {
				kinds[kind][right] = actor{s.b1.address, k.Key, k.ID}
			}
		}
	}
	routes := api.Routes()
	for _, r := range routes {
		if r.Right != "public" && r.Right != "own" && !all.Has(r.Right) {
			t.Errorf("%s names no right: %q", r.Operation, r.Right)
			continue
		}
		if (r.Auth == "none") != (r.Right == "public") {
			t.Errorf("%s: auth %s and right %s", r.Operation, r.Auth, r.Right)
		}
		// The ids and the body are wrong, so that a call that gets past the check of rights changes nothing.
		path := strings.NewReplacer("{transaction}", "x", "{state}", "x", "{id}", "0x"+strings.Repeat("a", 64)).Replace(r.Path)
		for strings.Contains(path, "{") {
			path = path[:strings.Index(path, "{")] + "x" + path[strings.Index(path, "}")+1:]
		}
		method := r.Method
		if r.Operation == "followEvents" {
			method = http.MethodHead // the stream itself would not end
		}
		for kind, keys := range kinds {
			for right, who := range keys {
				if r.Operation == "exportWallet" && right == toll.RightExport {
					continue // TestWalletExport_Keys
				}
				a := s.do(who, method, path, "[]")
				refused := a.code() == string(toll.CodeRightMissing)
				if method == http.MethodHead {
					refused = a.status == http.StatusForbidden
				}
				if r.Right == "own" {
					if a.code() != string(toll.CodePersonNeeded) {
						t.Errorf("%s with a key made by %s with the right %s: %d %s", r.Operation, kind, right, a.status, a.body)
					}
					continue
				}
				if passes := r.Right == "public" || r.Right == right; passes == refused {
					t.Errorf("%s with a key made by %s with the right %s: %d %s", r.Operation, kind, right, a.status, a.body)
				} else if refused && method != http.MethodHead && (a.status != 403 || !strings.Contains(a.text(t, "params"), `"right":"`+string(r.Right)+`"`)) {
					t.Errorf("%s does not name the right that is missing: %d %s", r.Operation, a.status, a.body)
				}
			}
		}
	}
	if !slices.ContainsFunc(routes, func(r api.RouteInfo) bool { return r.Operation == "addEndpoints" && r.Right == toll.RightManage }) {
		t.Error("addEndpoints needs another right than manage")
	}
}

// rolesAllow are the rights of each role.
var rolesAllow = map[toll.Role]string{
	toll.RoleOwner: "read sell spend manage money keys members export", toll.RoleAdmin: "read sell spend manage money keys members",
	toll.RoleDeveloper: "read sell spend manage keys", toll.RoleBilling: "read spend money", toll.RoleViewer: "read",
}

// TestRightsOfRoles: a key that a person had made as an owner, a key that this key made, and one that the person let a program have
// get past each route that the present role of the person has the right for, and past no other; with no role past none. No key has
// what takes the session of a person: members and export.
// T17
func TestRightsOfRoles(t *testing.T) {
	for role, want := range rolesAllow {
		if got := role.Rights().String(); got != want {
			t.Errorf("the rights of %s are %s, want %s", role, got, want)
		}
	}
	s := newStack(t)
	ctx := context.Background()
	now := time.Now()
	user := store.User{ID: toll.NewTimeUUID(now), Name: "P", CreatedAt: now}
	m := store.Membership{Workspace: s.b1.address, UserID: user.ID, Role: toll.RoleOwner, CreatedAt: now}
	change := func(f func(tx *store.Tx) error) {
		t.Helper()
		must.Do(t, s.store.Tx(ctx, f))
	}
	change(func(tx *store.Tx) error {
		return errors.Join(store.InsertUser(ctx, tx, user), store.InsertMembership(ctx, tx, m))
	})
	become := func(role toll.Role) {
		m.Role = role
		change(func(tx *store.Tx) error { return store.UpdateMembership(ctx, tx, m) })
	}
	for _, role := range append(toll.Roles(), "") {
		become(toll.RoleOwner)
		person := auth.Caller{Address: s.b1.address, UserID: user.ID, Rights: toll.RoleOwner.Rights()}
		k, err := s.auth.CreateKey(ctx, person.Maker(), auth.KeyParams{}, nil)
		if err != nil || k.MadeBy != toll.MadeByUser || k.UserID != user.ID.String() {
			t.Fatalf("%+v %v", k, err)
		}
		kinds := map[toll.KeyMaker]actor{toll.MadeByUser: {s.b1.address, k.Key, k.ID}}
		for _, kind := range []toll.KeyMaker{toll.MadeByKey, toll.MadeByGrant} {
			maker := auth.Maker{Address: s.b1.address, By: kind, Parent: k.ID, Rights: k.Rights, UserID: user.ID}
			child := must.Get(s.auth.CreateKey(ctx, maker, auth.KeyParams{}, nil))(t)
			kinds[kind] = actor{s.b1.address, child.Key, child.ID}
		}
		become(role) // before the first use of the keys, which are read once a second
		has := role.Rights().Within(k.Rights)
		if has.Has(toll.RightMembers) || has.Has(toll.RightExport) {
			t.Errorf("a key of an owner has %s", has)
		}
		for kind, who := range kinds {
			for _, r := range api.Routes() {
				path := strings.NewReplacer("{transaction}", "x", "{state}", "x", "{id}", "0x"+strings.Repeat("a", 64)).Replace(r.Path)
				for strings.Contains(path, "{") {
					path = path[:strings.Index(path, "{")] + "x" + path[strings.Index(path, "}")+1:]
				}
				method := r.Method
				if r.Operation == "followEvents" {
					method = http.MethodHead // the stream itself would not end
				}
				a := s.do(who, method, path, "[]")
				refused := a.code() == string(toll.CodeRightMissing)
				if method == http.MethodHead {
					refused = a.status == http.StatusForbidden
				}
				if r.Right == "own" {
					if a.code() != string(toll.CodePersonNeeded) {
						t.Errorf("%s by %s as %q: %d %s", r.Operation, kind, role, a.status, a.body)
					}
					continue
				}
				if (r.Auth == "person" || r.Right == "export") && role != "" && !refused {
					if a.code() != string(toll.CodePersonNeeded) || has.Has(r.Right) != (r.Right == toll.RightRead) {
						t.Errorf("%s by %s as %q: %d %s", r.Operation, kind, role, a.status, a.body)
					}
					continue
				}
				if passes := r.Right == "public" || has.Has(r.Right); passes == refused {
					t.Errorf("%s by %s as %q: %d %s", r.Operation, kind, role, a.status, a.body)
				}
			}
		}
	}
}

// TestKeysOfKeys: a key gives at most its own rights on, never members and export, and no later end.
func TestKeysOfKeys(t *testing.T) {
	s := newStack(t)
	create := func(who actor, body string) answer { return s.do(who, "POST", base+"/api-keys", body) }
	rights := func(a answer) string {
		t.Helper()
		var k toll.APIKey
		must.Do(t, json.Unmarshal(a.body, &k))
		return k.Rights.String()
	}
	a := create(s.b1, `{}`)
	if a.status != 201 || rights(a) != "read sell spend manage money keys" || a.text(t, "madeBy") != "key" || a.text(t, "parent") != s.b1.keyID.String() {
		t.Errorf("%d %s", a.status, a.body)
	}
	if own := s.do(s.b1, "GET", base+"/api-keys/"+s.b1.keyID.String(), ""); rights(own) != toll.AllRights().String() || own.text(t, "madeBy") != "local" || own.member(t, "parent") != nil {
		t.Errorf("%s", own.body)
	}
	some := s.keyWith(s.b1, toll.RightKeys, toll.RightSell)
	if a := create(some, `{}`); a.status != 201 || rights(a) != "sell keys" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := create(some, `{"rights":["sell","sell"]}`); a.status != 201 || rights(a) != "sell" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for body, right := range map[string]string{
		`{"rights":["sell","read"]}`: "read", `{"rights":["members"]}`: "members", `{"rights":["export"]}`: "export",
	} {
		if a := create(some, body); a.status != 403 || a.code() != string(toll.CodeRightMissing) || !strings.Contains(a.text(t, "params"), right) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, body := range []string{`{"rights":["owner"]}`, `{"rights":[]}`, `{"rights":"sell"}`, `{"rights":["` + strings.Repeat("x", 1000) + `"]}`,
		`{"ends":"2090-01-01T00:00:00Z","expiresAt":"2090-01-01T00:00:00Z"}`, `{"ends":"2090-01-01T00:00:00Z","expiresInSecs":60}`} {
		if a := create(s.b1, body); a.status != 400 || len(a.body) > 1000 {
			t.Errorf("%.100s: %d %.300s", body, a.status, a.body)
		}
	}
	hour := s.clock.now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	short := create(s.b1, `{"ends":"`+hour+`"}`)
	if short.status != 201 || short.text(t, "expiresAt") != strings.TrimSuffix(hour, "Z")+".000Z" {
		t.Fatalf("%d %s", short.status, short.body)
	}
	who := actor{s.b1.address, short.text(t, "key"), toll.Hash{}}
	if a := create(who, `{}`); a.status != 201 || a.text(t, "expiresAt") != short.text(t, "expiresAt") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := create(who, `{"expiresInSecs":7200}`); a.status != 403 || a.code() != string(toll.CodeForbidden) {
		t.Errorf("a later end: %d %s", a.status, a.body)
	}
	// An access token ends no later than the key that made it.
	plan := s.plan(s.b1, freePlan)
	token := s.do(who, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","expiresInSecs":86400}`)
	if token.status != 201 || token.text(t, "expiresAt") != short.text(t, "expiresAt") {
		t.Errorf("%d %s", token.status, token.body)
	}
}

// child returns an API key that another one makes.
func (s *stack) child(of actor, body string) actor {
	s.t.Helper()
	a := s.do(of, "POST", base+"/api-keys", body)
	id := must.Get(toll.ParseHash(a.text(s.t, "id")))(s.t)
	return actor{of.address, a.text(s.t, "key"), id}
}

// TestEndOfKey_Family: with a key ends what it made, at verify and at settle; an open hold still settles. The answer counts.
func TestEndOfKey_Family(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	works := func(who actor) bool { return s.do(who, "GET", base+"/protocol/plans", "").status == 200 }
	end := func(who, key actor, query string) answer {
		return s.do(who, "DELETE", base+"/api-keys/"+key.keyID.String()+query, "")
	}
	settles := func(token, more string) bool {
		return s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, more)).status == 200
	}

	one := s.child(s.s1, `{}`)
	two, three := s.child(one, `{}`), s.child(one, `{"rights":["read"]}`)
	own, _ := s.token(s.s1, plan)
	first, _ := s.token(one, plan)
	second, _ := s.token(two, plan)
	held := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, second, `,"hold":true`)).text(t, "agentRequestId")
	if held == "" || !settles(first, "") {
		t.Fatal("the tokens do not work")
	}
	a := end(s.s1, one, "")
	if a.status != 200 || a.member(t, "ended.apiKeys").(json.Number) != "2" || a.member(t, "ended.accessTokens").(json.Number) != "2" ||
		a.member(t, "ended.grants").(json.Number) != "0" || strings.Contains(string(a.body), "kept") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if works(one) || works(two) || works(three) || !works(s.s1) {
		t.Error("the wrong keys work")
	}
	for _, token := range []string{first, second} {
		v := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, ""))
		if v.member(t, "isValid") != false || settles(token, "") {
			t.Errorf("an access token of an ended key pays: %s", v.body)
		}
	}
	if !settles(second, `,"agentRequestId":"`+held+`"`) {
		t.Error("an open hold does not settle")
	}
	if !settles(own, "") {
		t.Error("an access token of another key stopped")
	}
	if again := end(s.s1, one, ""); again.status != 404 || again.code() != string(toll.CodeKeyAlreadyRevoked) {
		t.Errorf("%d %s", again.status, again.body)
	}
	var told struct{ Events []toll.Event }
	must.Do(t, json.Unmarshal(s.do(s.s1, "GET", base+"/events?type=api_key.revoked", "").body, &told))
	if len(told.Events) != 3 {
		t.Errorf("%d keys ended by the events", len(told.Events))
	}

	// What was over before does not count.
	past := s.child(s.s1, `{}`)
	s.child(past, `{"expiresInSecs":60}`)
	s.clock.advance(time.Hour)
	if a := end(s.s1, past, ""); a.status != 200 || a.member(t, "ended.apiKeys").(json.Number) != "0" {
		t.Errorf("%d %s", a.status, a.body)
	}

	// A key ends itself, whatever its rights.
	reader := s.keyWith(s.s1, toll.RightRead)
	if a := end(reader, s.s1, ""); a.status != 403 || a.code() != string(toll.CodeRightMissing) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := end(reader, reader, ""); a.status != 200 || works(reader) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestEndOfKey_Keep: what a key made stays with the key of the call, if that has the rights.
func TestEndOfKey_Keep(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	parentOf := func(k actor) string {
		t.Helper()
		return s.do(s.s1, "GET", base+"/api-keys/"+k.keyID.String(), "").text(t, "parent")
	}
	keep := func(who, key actor) answer {
		return s.do(who, "DELETE", base+"/api-keys/"+key.keyID.String()+"?keep=true", "")
	}
	old := s.child(s.s1, `{"rights":["read","spend","money","keys"]}`)
	kid := s.child(old, `{"rights":["read","money"]}`)
	token, hash := s.token(old, plan)

	weak := s.keyWith(s.s1, toll.RightKeys, toll.RightRead, toll.RightSpend)
	if a := keep(weak, old); a.status != 403 || a.code() != string(toll.CodeRightMissing) || !strings.Contains(a.text(t, "params"), "money") {
		t.Errorf("without a right of what stays: %d %s", a.status, a.body)
	}
	if a := keep(old, old); a.status != 400 {
		t.Errorf("by itself: %d %s", a.status, a.body)
	}
	brief := s.child(s.s1, `{"expiresInSecs":3600}`)
	if a := keep(brief, old); a.status != 403 || a.code() != string(toll.CodeForbidden) {
		t.Errorf("by a key that ends earlier: %d %s", a.status, a.body)
	}
	if a := s.do(s.s1, "DELETE", base+"/api-keys/"+old.keyID.String()+"?keep=maybe", ""); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if parentOf(kid) != old.keyID.String() {
		t.Error("a refused call changed something")
	}
	a := keep(s.s1, old)
	if a.status != 200 || a.member(t, "kept.apiKeys").(json.Number) != "1" || a.member(t, "kept.accessTokens").(json.Number) != "1" ||
		a.member(t, "ended.accessTokens").(json.Number) != "0" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if parentOf(kid) != s.s1.keyID.String() {
		t.Errorf("parent %s", parentOf(kid))
	}
	if p := s.do(s.s1, "GET", base+"/x402/permissions/"+hash, ""); p.text(t, "apiKeyId") != s.s1.keyID.String() {
		t.Errorf("%s", p.body)
	}
	if v := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")); v.status != 200 {
		t.Errorf("%d %s", v.status, v.body)
	}

	// The key of the call came of the one that ends: it goes on below the parent of that.
	middle := s.child(s.s1, `{}`)
	low := s.child(middle, `{}`)
	side := s.child(middle, `{}`)
	if a := keep(low, middle); a.status != 200 || parentOf(low) != s.s1.keyID.String() || parentOf(side) != low.keyID.String() {
		t.Errorf("%d %s: %s %s", a.status, a.body, parentOf(low), parentOf(side))
	}
	if a := s.do(s.s1, "DELETE", base+"/api-keys/"+low.keyID.String(), ""); a.member(t, "ended.apiKeys").(json.Number) != "1" {
		t.Errorf("%s", a.body)
	}
}

// TestOrganizations: the workspace of a key is its one organization, and the header may name no other.
func TestOrganizations(t *testing.T) {
	s := newStack(t)
	a := s.do(s.b1, "GET", base+"/organizations", "")
	var list struct {
		Total, Page, Offset int
		Organizations       []struct{ ID, Name, Role string }
	}
	must.Do(t, json.Unmarshal(a.body, &list))
	id := s.b1.address.Lower()
	if a.status != 200 || list.Total != 1 || list.Page != 1 || list.Offset != 10 || len(list.Organizations) != 1 ||
		list.Organizations[0].ID != id || list.Organizations[0].Name != "builder one" || list.Organizations[0].Role != "owner" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do(s.b1, "GET", base+"/organizations?page=2", ""); a.status != 200 || len(a.member(t, "organizations").([]any)) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"/organizations/" + id, "/organizations/members"} {
		if a := s.do(s.b1, "GET", base+path, ""); a.status != 404 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for header, want := range map[string]int{
		id: 200, s.b1.address.String(): 200, "0x" + strings.ToUpper(id[2:]): 200, "": 200,
		s.b2.address.Lower(): 403, "org-1": 403, "*": 403,
	} {
		for _, path := range []string{"/protocol/plans", "/organizations", "/meta/versions"} {
			a := s.do(s.b1, "GET", base+path, "", "X-Current-Org-Id", header)
			if a.status != want || want == 403 && a.code() != string(toll.CodeWrongWorkspace) {
				t.Errorf("%s with %q: %d %s", path, header, a.status, a.body)
			}
		}
	}
	ignoring := api.New(s.deps(func(d *api.Deps) { d.Policy.IgnoreOrganizations = true }))
	for _, header := range []string{id, s.b2.address.Lower(), "org-1"} {
		a := s.through(ignoring, s.b1, "GET", base+"/organizations/my-memberships", "", "X-Current-Org-Id", header)
		if a.status != 200 || !strings.Contains(string(a.body), `[{"orgId":"`+id+`","orgName":`) {
			t.Errorf("unknown organizations ignored, %q: %d %s", header, a.status, a.body)
		}
	}
	if a := s.do(s.b1, "GET", base+"/protocol/plans", "", "X-Current-Org-Id", id, "X-Current-Org-Id", s.b2.address.String()); a.status != 403 {
		t.Errorf("two lines: %d", a.status)
	}
	if a := s.do(actor{}, "GET", "/health", "", "X-Current-Org-Id", "anything"); a.status != 200 {
		t.Errorf("without a key: %d", a.status)
	}
}

// TestRepeatedByAnotherKey: a call that another API key made before gives out no key, no access token and no webhook secret of
// that key, which may have more rights and a later end.
// T17
func TestRepeatedByAnotherKey(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	few := s.keyWith(s.b1, toll.RightKeys, toll.RightSpend, toll.RightManage)
	for path, c := range map[string]struct{ body, secret string }{
		base + "/api-keys":         {`{}`, "key"},
		base + "/webhooks":         {`{"url":"https://hooks.example"}`, "secret"},
		base + "/x402/permissions": {`{"planId":"` + plan + `"}`, "accessToken"},
	} {
		first := s.do(s.b1, "POST", path, c.body, "Idempotency-Key", "1")
		again := s.do(s.b1, "POST", path, c.body, "Idempotency-Key", "1")
		other := s.do(few, "POST", path, c.body, "Idempotency-Key", "1")
		if first.status != 201 || again.text(t, c.secret) != first.text(t, c.secret) {
			t.Errorf("%s: %d %s", path, first.status, again.body)
		}
		if other.status != 201 || other.text(t, c.secret) == first.text(t, c.secret) {
			t.Errorf("%s: another key got what was made for the first: %d %s", path, other.status, other.body)
		}
	}
}

// TestRotateKey: the new key is as the old one, which ends after the overlap; what the old one made moves. No key rotates itself, and none
// that came of it does.
func TestRotateKey(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		works := func(key string) bool { return s.do(actor{key: key}, "GET", base+"/protocol/plans", "").status == 200 }
		rotate := func(who, key actor, body string, headers ...string) answer {
			t.Helper()
			return s.do(who, "POST", base+"/api-keys/"+key.keyID.String()+"/rotate", body, headers...)
		}
		parentOf := func(k actor) string {
			t.Helper()
			return s.do(s.s1, "GET", base+"/api-keys/"+k.keyID.String(), "").text(t, "parent")
		}
		old := s.child(s.s1, `{"name":"ci","expiresInSecs":864000}`)
		kid := s.child(old, `{"rights":["read"]}`)
		token, hash := s.token(old, plan)
		for name, c := range map[string]struct {
			a    answer
			code toll.Code
		}{
			"by itself":           {rotate(old, old, `{}`), toll.CodeForbidden},
			"by its child":        {rotate(s.child(old, `{}`), old, `{}`), toll.CodeForbidden},
			"without a right":     {rotate(s.keyWith(s.s1, toll.RightKeys, toll.RightRead), old, `{}`), toll.CodeRightMissing},
			"without keys":        {rotate(s.keyWith(s.s1, toll.RightRead), old, `{}`), toll.CodeRightMissing},
			"by a shorter key":    {rotate(s.child(s.s1, `{"expiresInSecs":3600}`), old, `{}`), toll.CodeForbidden},
			"of somebody else":    {rotate(s.b1, old, `{}`), toll.CodeKeyNotFound},
			"a negative overlap":  {rotate(s.s1, old, `{"overlapSecs":-1}`), toll.CodeBadNumber},
			"too long an overlap": {rotate(s.s1, old, `{"overlapSecs":2592001}`), toll.CodeBadRequest},
		} {
			if c.a.code() != string(c.code) {
				t.Errorf("%s: %d %s", name, c.a.status, c.a.body)
			}
		}
		a := rotate(s.s1, old, `{"overlapSecs":3600}`, "Idempotency-Key", "1")
		if a.status != 201 || a.text(t, "name") != "ci" || a.text(t, "previousId") != old.keyID.String() || a.text(t, "madeBy") != "key" || a.text(t, "parent") != s.s1.keyID.String() ||
			a.text(t, "previousEndsAt") != s.clock.now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05")+".000Z" || a.member(t, "moved.apiKeys").(json.Number) != "2" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if again := rotate(s.s1, old, `{"overlapSecs":3600}`, "Idempotency-Key", "1"); again.text(t, "key") != a.text(t, "key") {
			t.Errorf("repeated: %d %s", again.status, again.body)
		}
		var next toll.KeyRotated
		must.Do(t, json.Unmarshal(a.body, &next))
		if was := s.do(s.s1, "GET", base+"/api-keys/"+old.keyID.String(), ""); next.Rights.String() != "read sell spend manage money keys" || was.text(t, "expiresAt") != a.text(t, "previousEndsAt") {
			t.Errorf("%s", was.body)
		}
		if !works(old.key) || !works(next.Key) || parentOf(kid) != next.ID.String() {
			t.Error("both keys work in the overlap, and the child has the new parent")
		}
		if p := s.do(s.s1, "GET", base+"/x402/permissions/"+hash, ""); p.text(t, "apiKeyId") != next.ID.String() {
			t.Errorf("%s", p.body)
		}
		s.clock.advance(2 * time.Hour)
		if works(old.key) || !works(next.Key) || !works(kid.key) {
			t.Error("after the overlap the new key works alone")
		}
		if v := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")); v.status != 200 {
			t.Errorf("%d %s", v.status, v.body)
		}
		if a := rotate(s.s1, old, `{}`); a.code() != string(toll.CodeKeyAlreadyRevoked) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(s.s1, "DELETE", base+"/api-keys/"+next.ID.String(), ""); a.member(t, "ended.apiKeys").(json.Number) != "2" || works(kid.key) {
			t.Errorf("%s", a.body)
		}
		// With no overlap the old one ends at once.
		brief := s.child(s.s1, `{}`)
		if a := rotate(s.s1, brief, `{"overlapSecs":0}`); a.status != 201 || works(brief.key) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestKeysBeyondOwnRights: a key neither changes nor ends a key with more rights than its own; an owner or admin who signed in does. A
// person who keeps what a key made has it stand under their own membership.
func TestKeysBeyondOwnRights(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		owner := s.human("owner")
		dev := owner.invites(s.human("dev"), toll.RoleDeveloper)
		root := s.keyOf(toll.MustAddress(owner.workspace), "")
		few := s.keyWith(root, toll.RightKeys, toll.RightRead)
		path := "/api-keys/" + root.keyID.String()
		for name, a := range map[string]answer{
			"a key ends":         s.do(few, "DELETE", base+path, ""),
			"a key renames":      s.do(few, "PATCH", base+path, `{"name":"x"}`),
			"a developer ends":   dev.do("DELETE", path, ""),
			"a developer rotate": dev.do("POST", path+"/rotate", `{}`),
		} {
			if a.status != 403 || a.code() != string(toll.CodeRightMissing) {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		made := dev.do("POST", "/api-keys", `{"rights":["read","keys"]}`)
		if made.status != 201 || made.text(t, "madeBy") != "user" || made.text(t, "userId") != dev.id.String() || made.member(t, "parent") != nil {
			t.Fatalf("%d %s", made.status, made.body)
		}
		if a := dev.do("POST", "/api-keys", `{"rights":["money"]}`); a.code() != string(toll.CodeRightMissing) {
			t.Errorf("%d %s", a.status, a.body)
		}
		id := must.Get(toll.ParseHash(made.text(t, "id")))(t)
		own := actor{root.address, made.text(t, "key"), id}
		kid := s.child(own, `{"rights":["read"]}`)
		if a := owner.do("DELETE", "/api-keys/"+id.String()+"?keep=true", ""); a.status != 200 || a.member(t, "kept.apiKeys").(json.Number) != "1" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		k := owner.do("GET", "/api-keys/"+kid.keyID.String(), "")
		if k.text(t, "userId") != owner.id.String() || k.member(t, "parent") != nil || s.do(kid, "GET", base+"/protocol/plans", "").status != 200 {
			t.Errorf("%d %s", k.status, k.body)
		}
		// Who rotates a key reads it, and acts for the member under whom it stands.
		of := func(p *human) string {
			return "/api-keys/" + p.do("POST", "/api-keys", `{"rights":["read"]}`).text(t, "id")
		}
		owners := of(owner)
		if a := dev.do("POST", owners+"/rotate", `{}`); a.code() != string(toll.CodeForbidden) {
			t.Errorf("a developer rotates the key of the owner: %d %s", a.status, a.body)
		}
		if a := s.do(dev.key(), "POST", base+owners+"/rotate", `{}`); a.code() != string(toll.CodeForbidden) {
			t.Errorf("a key of the developer rotates the key of the owner: %d %s", a.status, a.body)
		}
		for _, rotated := range []answer{dev.do("POST", of(dev)+"/rotate", `{}`), owner.do("POST", of(dev)+"/rotate", `{}`), owner.do("POST", path+"/rotate", `{}`)} {
			if rotated.status != 201 {
				t.Errorf("%d %s", rotated.status, rotated.body)
			}
		}
		if a := owner.do("DELETE", path, ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
