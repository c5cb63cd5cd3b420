package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

// TestMemberships: deployed clients read the workspaces of a person, or of an API key, with the role of the caller in each.
func TestMemberships(t *testing.T) {
	s := newStack(t)
	boss := s.human("boss")
	row := func(workspace string, role toll.Role, admin bool) string {
		return fmt.Sprintf(`{"orgId":"%s","orgName":"","role":"%s","orgType":"workspace","isAdmin":%t}`, workspace, role, admin)
	}
	for _, role := range toll.Roles() {
		admin := slices.Contains([]toll.Role{toll.RoleOwner, toll.RoleAdmin}, role)
		member, rows := boss, []string{row(boss.workspace, role, admin)}
		if role != toll.RoleOwner {
			alone := s.human(string(role))
			member, rows = boss.invites(alone, role), append(rows, row(alone.workspace, toll.RoleOwner, true))
		}
		a := member.in("").do("GET", "/organizations/my-memberships", "")
		if got := string(a.body); a.status != 200 || len(got) != len("[]")+len(strings.Join(rows, ",")) {
			t.Errorf("%s: %d %s, want %s", role, a.status, got, rows)
		}
		for _, r := range rows {
			if !strings.Contains(string(a.body), r) {
				t.Errorf("%s: %s lacks %s", role, a.body, r)
			}
		}
		made := member.do("POST", "/api-keys", "{}")
		if made.status != 201 {
			continue // the role makes no keys
		}
		key := s.do(actor{key: made.text(t, "key")}, "GET", base+"/organizations/my-memberships", "")
		if got := string(key.body); key.status != 200 || got != "["+rows[0]+"]" {
			t.Errorf("a key of the %s: %d %s", role, key.status, got)
		}
	}
}

// TestMint_OtherNames: the amount has two names in each call, and one of them is required.
func TestMint_OtherNames(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	for _, path := range []string{"mint", "mintExpirable"} {
		for amount, want := range map[string]int{
			`"amount":"3"`: 200, `"creditsAmount":3`: 200, `"amount":3,"creditsAmount":"3"`: 200, `"amount":3,"creditsAmount":null`: 200,
			`"amount":3,"creditsAmount":4`: 400, `"amount":4,"creditsAmount":3`: 400, `"credits":3`: 400, `"amount":null`: 400,
		} {
			a := s.do(s.b1, "POST", base+"/protocol/plans/"+path, `{"planId":"`+plan+`","creditsReceiver":"`+s.s1.address.String()+`","creditsDuration":60,`+amount+`}`)
			if a.status != want || want == 400 && a.code() != "BCK.HTTP.400" {
				t.Errorf("%s with %s: %d %s", path, amount, a.status, a.body)
			}
		}
	}
	if a := s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance/"+s.s1.address.String(), ""); a.text(t, "balance") != "24" {
		t.Errorf("8 calls of 3 credits: %s", a.body)
	}
}
