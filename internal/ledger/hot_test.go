package ledger_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// counterReaders are the statements that read counters of lots and permissions, which are stale in their rows while the row of
// the account names them, and why the answer is right all the same.
var counterReaders = map[string]string{
	"lotColumns":           "scanLot applies the account",
	"permissionColumns":    "scanPermission applies the account",
	"hotPermissionColumns": "scanHotPermission applies the account",

	"sqlPermission":              "scanPermission",
	"sqlPermissionNow":           "scanHotPermission",
	"sqlPermissionByHash":        "scanHotPermission",
	"sqlPermissionsOfDelegation": "scanHotPermission",
	"sqlPermissionsOfKey":        "scanHotPermission",
	"sqlLots":                    "scanLot",
	"sqlLotByRef":                "scanLot",

	"sqlPermissionFreeze": "the counters are written before",

	"auditor.auditLots":        "it adds what is hot",
	"sqlIndexes":               "scanLot",
	"auditor.auditPermissions": "it applies the account",

	"auditTakenBack": "the lot of an order that was reversed is never hot",
	"auditRefunded":  "a lot of credits that were taken out of use is never hot",
	"auditBack":      "a lot of credits that were taken out of use is never hot",
}

var (
	counter   = regexp.MustCompile(`(?i)\b(remaining|redeemed|held|open_holds|last_burn)\b`)
	countered = regexp.MustCompile(`(?i)\b(FROM|JOIN|UPDATE)\s+(lots|permissions)\b`)
	setColumn = regexp.MustCompile(`(?i)\b(remaining|redeemed|held|open_holds|last_burn)\s*=\s*(\$\d+|u\.\w+|excluded\.\w+)`)
	given     = regexp.MustCompile(`(?i)\bAS\s+u\([^)]*\)`)
)

// readsCounters reports whether a statement reads a counter out of the row of a lot or a permission.
func readsCounters(text string) bool {
	text = given.ReplaceAllString(setColumn.ReplaceAllString(comment.ReplaceAllString(text, " "), " "), " ")
	return countered.MatchString(text) && counter.MatchString(text)
}

// TestHot_Readers: nothing reads counters past the row of the account.
func TestHot_Readers(t *testing.T) {
	rooms := must.Get(filepath.Glob(filepath.Join("..", "*")))(t)
	found := map[string]bool{}
	for _, dir := range append(rooms, ".") {
		if filepath.Base(dir) == "ledger" {
			continue
		}
		for _, s := range statements(t, dir) {
			switch {
			case !readsCounters(s.text):
			case counterReaders[s.name] != "":
				found[s.name] = true
			default:
				t.Errorf("%s: %s reads counters that may be stale: use a reader of the ledger\n%s", s.where, s.name, s.text)
			}
		}
	}
	for name := range counterReaders {
		if !found[name] && !strings.HasSuffix(name, "Columns") {
			t.Errorf("%s is in the list and reads no counter", name)
		}
	}
	for text, want := range map[string]bool{
		"SELECT redeemed FROM permissions WHERE account_id = $1":                                         true,
		"SELECT 1 FROM orders o JOIN lots l ON l.ref = o.order_id WHERE l.remaining > 0":                 true,
		"UPDATE permissions SET redemption_limit = redeemed + held WHERE account_id = $1":                true,
		"UPDATE permissions SET redeemed = $2, held = $3 WHERE account_id = $1":                          false,
		"UPDATE lots l SET remaining = u.remaining FROM unnest($1::bigint[]) AS u(remaining) WHERE TRUE": false,
		"UPDATE lots l SET remaining = l.remaining + u.n FROM unnest($1::bigint[]) AS u(n) WHERE TRUE":   true,
		"SELECT held FROM accounts WHERE account_id = $1":                                                false,
	} {
		if readsCounters(text) != want {
			t.Errorf("reads counters: %v, want %v: %s", !want, want, text)
		}
	}
}

// TestHot_Leaves: an account with more lots and permissions than its row has room for, and each way out of that row.
func TestHot_Leaves(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		id := ledger.NewAccountID(plan, subscriber)
		// A lot is used in part, then one that ends sooner is bought: all of them stay open.
		const lots = 12
		perms := make([]toll.Hash, 6)
		for i := range perms {
			perms[i] = b.permission(16)
		}
		for i := range lots {
			b.mint(10, b.clock.now().Add(time.Duration(100-i)*time.Hour))
			must.Get(b.Settle(b.ctx, settleOp(perms[i%len(perms)], fmt.Sprint("use", i), 2)))(b)
		}
		got := must.Get(b.Lots(b.ctx, id))(b)
		if len(got) != lots {
			t.Fatalf("%d lots are open, want %d", len(got), lots)
		}
		for _, l := range got {
			if l.Remaining != 8 {
				t.Errorf("lot %d has %d left, want 8", l.ID, l.Remaining)
			}
		}
		each := func(want toll.Credits) {
			t.Helper()
			list := must.Get(b.Permissions(b.ctx, ledger.PermissionFilter{Subscriber: subscriber}, store.Page{}))(b)
			for _, p := range list.Items {
				one := must.Get(b.PermissionByHash(b.ctx, p.Hash))(b)
				_, under, err := b.Snapshot(b.ctx, id, p.Hash)
				must.Do(b, err)
				if p.Redeemed != want || one.Redeemed != want || under.Redeemed != want || p.Held != 0 || one.OpenHolds != 0 {
					t.Errorf("redeemed %d, %d and %d, want %d", p.Redeemed, one.Redeemed, under.Redeemed, want)
				}
			}
			audit(t, b.Ledger)
		}
		each(4)
		// Up to the limit: the list finds those that are used up.
		for i, p := range perms {
			for j := range 2 {
				_, err := b.Settle(b.ctx, settleOp(p, fmt.Sprint("more", i, j), 13))
				b.refused(err, ledger.RedemptionLimit)
				must.Get(b.Settle(b.ctx, settleOp(p, fmt.Sprint("most", i, j), 6)))(b)
			}
		}
		each(16)
		list := must.Get(b.Permissions(b.ctx, ledger.PermissionFilter{Subscriber: subscriber, Status: toll.StatusExhausted}, store.Page{}))(b)
		if len(list.Items) != len(perms) {
			t.Errorf("%d are used up, want %d", len(list.Items), len(perms))
		}
	})
}
