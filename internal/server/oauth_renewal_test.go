package server_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestRefreshReuse: refresh tokens rotate; one that comes again, or from another client, ends the family. A renewal never
// gives more than the person agreed to.
// T117
func TestRefreshReuse(t *testing.T) {
	for _, v := range oauthVariants {
		t.Run(string(v), func(t *testing.T) { refreshReuse(t, v) })
	}
}

func refreshReuse(t *testing.T, v storetest.Variant) {
	p := newProgram(t, v, nil)
	other := p.register(`{"client_name":"Other","redirect_uris":["` + progCallback + `"],"grant_types":["authorization_code","refresh_token"]}`)

	first := p.exchange(p.code())
	if !p.pays(first.Access, 8) {
		t.Fatal("the first access token does not pay")
	}
	second := p.refresh(first.Refresh)
	if second.status != 200 || second.Refresh == first.Refresh || second.Access == first.Access {
		t.Fatalf("%+v", second)
	}
	if p.pays(first.Access, 1) {
		t.Error("the access token before the renewal pays")
	}
	if p.pays(second.Access, 13) { // 10, and then 3 of the 2 that are left
		t.Error("more than the consent")
	}
	if !p.pays(second.Access, 2) {
		t.Error("less than the consent")
	}
	if a := p.refresh(second.Refresh); a.Error != "invalid_grant" {
		t.Errorf("nothing is left: %+v", a)
	}

	start := func() answered { return p.exchange(p.code()) }
	dead := func(what string, a answered) {
		t.Helper()
		if p.pays(a.Access, 1) {
			t.Errorf("%s: the access token pays", what)
		}
		if a := p.refresh(a.Refresh); a.Error != "invalid_grant" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	one := start()
	two := p.refresh(one.Refresh)
	p.ahead.Add(int64(31 * time.Second))
	if a := p.refresh(one.Refresh); a.Error != "invalid_grant" {
		t.Errorf("an old one: %+v", a)
	}
	dead("after an old one", two)

	one = start()
	if a := p.refresh(one.Refresh, "client_id", other); a.Error != "invalid_grant" {
		t.Errorf("another client: %+v", a)
	}
	dead("after another client", one)

	one = start()
	answers := make([]answered, 2)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = p.refresh(one.Refresh) })
	}
	wg.Wait()
	if a, b := answers[0], answers[1]; a.status != 200 || b.status != 200 || a.Refresh != b.Refresh || !p.pays(a.Access, 1) || !p.pays(b.Access, 1) {
		t.Errorf("two at once: %+v %+v", a, b)
	}
	repeats(t, p, other, dead)

	// What the person ends by hand is not renewed either.
	one = start()
	for record, err := range p.subscriber.Permissions(t.Context()) {
		must.Do(t, err)
		if record.Status == toll.StatusActive && strings.Contains(string(record.Metadata), p.id) {
			must.Do(t, p.subscriber.RevokePermission(t.Context(), record.PermissionHash))
		}
	}
	dead("after the person revoked it", one)

	// A family that was to end when the process died neither renews nor, after a sweep, pays.
	one = start()
	id := must.Get(toll.ParseHash(claimsOf(t, one.Access)["jti"].(string)))(t)
	must.Do(t, p.s.RevokeFamily(t.Context(), id))
	if a := p.refresh(one.Refresh); a.Error != "invalid_grant" {
		t.Errorf("a family that is to end: %+v", a)
	}
	p.ahead.Add(int64(time.Minute + time.Second)) // in which the call itself may end it
	for dueJobs := 1; dueJobs > 0; {
		dueJobs = must.Get(p.s.RunDueJobs(t.Context()))(t)
	}
	eventually(t, "the family has ended", func() bool { return p.s.JobsLeft(t) == 0 })
	dead("after the job", one)

	// The consent ends, however often it was renewed.
	c := p.choice(5)
	c.Lifetime = 2 * time.Hour
	one = p.exchange(p.approved(p.request(), c).Query().Get("code"))
	p.ahead.Add(int64(90 * time.Minute))
	if two = p.refresh(one.Refresh); two.status != 200 || two.Secs > 1800 {
		t.Errorf("half an hour before the end: %+v", two)
	}
	p.ahead.Add(int64(30 * time.Minute))
	if a := p.refresh(two.Refresh); a.Error != "invalid_grant" {
		t.Errorf("after the end: %+v", a)
	}
}

// repeats: for 30 s a used refresh token gets the answer of its first use again, for the same client, resource and scope.
func repeats(t *testing.T, p *program, other string, dead func(string, answered)) {
	start := func() (used, next answered) {
		t.Helper()
		used = p.exchange(p.approved(p.request("scope", "openid profile"), p.choice(20)).Query().Get("code"))
		if next = p.refresh(used.Refresh, "scope", "openid"); next.status != 200 {
			t.Fatalf("%+v", next)
		}
		return used, next
	}
	same := func(what string, a, next answered) {
		t.Helper()
		if a.status != 200 || a.Refresh != next.Refresh || a.Scope != "openid" || a.ID == "" || !p.pays(a.Access, 1) {
			t.Errorf("%s: %+v", what, a)
		}
	}
	used, next := start()
	p.ahead.Add(int64(29 * time.Second))
	same("after 29 s", p.refresh(used.Refresh, "scope", "openid"), next)
	third := p.refresh(next.Refresh, "scope", "openid")
	if third.status != 200 || third.Refresh == next.Refresh {
		t.Errorf("the successor of the successor: %+v", third)
	}
	same("after the successor was used", p.refresh(used.Refresh, "scope", "openid"), next)
	p.ahead.Add(int64(2 * time.Second))
	if a := p.refresh(used.Refresh, "scope", "openid"); a.Error != "invalid_grant" {
		t.Errorf("after 31 s: %+v", a)
	}
	dead("after 31 s", third)
	for what, change := range map[string][]string{"another scope": {"scope", "openid profile"}, "another client": {"scope", "openid", "client_id", other}} {
		used, next := start()
		if a := p.refresh(used.Refresh, change...); a.Error != "invalid_grant" {
			t.Errorf("%s: %+v", what, a)
		}
		dead(what, next)
	}
	used, next = start()
	if a := p.refresh(used.Refresh, "scope", "openid", "resource", "https://other.example.com/"); a.Error != "invalid_target" {
		t.Errorf("another resource: %+v", a)
	}
	// A consent that is over gives nothing again.
	p.revoke(next.Refresh)
	if a := p.refresh(used.Refresh, "scope", "openid"); a.Error != "invalid_grant" {
		t.Errorf("after the end: %+v", a)
	}
}
