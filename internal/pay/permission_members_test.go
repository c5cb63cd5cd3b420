package pay_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
)

// TestUnknownMembersOfPermission: what a body of unknown members costs is reading it, a few allocations for each.
// T173
func TestUnknownMembersOfPermission(t *testing.T) {
	const members = 20_000
	var body strings.Builder
	body.WriteString(`{"planId":"1"`)
	for i := range members {
		body.WriteString(`,"delegation-confi` + strconv.Itoa(i) + `":1`)
	}
	body.WriteString(`,"DELEGATION_config":{"delegationId":"d"}}`)
	var r tokens.PermissionRequest
	allocs := testing.AllocsPerRun(1, func() {
		must.Do(t, r.UnmarshalJSON([]byte(body.String())))
		r.UnknownMembers([]byte(body.String()))
	})
	if r.Delegation == nil || r.Delegation.ID != "d" {
		t.Errorf("%+v", r.Delegation)
	}
	if allocs > 5*members {
		t.Errorf("%.1f allocations for each member", allocs/members)
	} else {
		t.Logf("%.1f allocations for each member", allocs/members)
	}
}
