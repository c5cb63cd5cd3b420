package server_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestT117_RefreshReuse: refresh tokens rotate; one that comes again, or from another client, ends the family. A renewal never
// gives more than the person agreed to.
func TestT117_RefreshReuse(t *testing.T) {
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
	if a, b := answers[0], answers[1]; a.Error != "invalid_grant" && b.Error != "invalid_grant" || (a.status == 200) == (b.status == 200) {
		t.Errorf("two at once: %+v %+v", a, b)
	}
	for _, a := range answers {
		if a.status == 200 {
			dead("after two at once", a)
		}
	}

	// What the person ends by hand is not renewed either.
	one = start()
	for record, err := range p.subscriber.Permissions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Status == toll.StatusActive && strings.Contains(string(record.Metadata), p.id) {
			if err := p.subscriber.RevokePermission(t.Context(), record.PermissionHash); err != nil {
				t.Fatal(err)
			}
		}
	}
	dead("after the person revoked it", one)

	// A family that was to end when the process died neither renews nor, after a sweep, pays.
	one = start()
	id, err := toll.ParseHash(claimsOf(t, one.Access)["jti"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.s.RevokeFamily(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if a := p.refresh(one.Refresh); a.Error != "invalid_grant" {
		t.Errorf("a family that is to end: %+v", a)
	}
	p.ahead.Add(int64(time.Minute + time.Second)) // in which the call itself may end it
	for dueJobs := 1; dueJobs > 0; {
		if dueJobs, err = p.s.RunDueJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
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
