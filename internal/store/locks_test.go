package store_test

import (
	"testing"

	"github.com/tollhq/toll/internal/store/storetest"
)

func TestLockOrder_Bad(t *testing.T) {
	const account = "SELECT balance FROM accounts WHERE account_id = $1 FOR UPDATE"
	for name, c := range map[string]struct {
		statements []string
		bad        bool
	}{
		"in order":                {[]string{account, "UPDATE orders SET a = 1", "UPDATE plan_orders SET a = 1", "UPDATE lots SET a = 1", "UPDATE orders SET b = 1"}, false},
		"account after order":     {[]string{"UPDATE orders SET a = 1", account}, true},
		"order after delegation":  {[]string{account, "SELECT a FROM delegations WHERE b = 1 FOR UPDATE", "UPDATE orders SET a = 1"}, true},
		"lots without an account": {[]string{"UPDATE orders SET a = 1", "UPDATE lots SET a = 1"}, true},
		"answer after events": {[]string{"INSERT INTO event_streams (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
			"INSERT INTO idempotency_keys (a) VALUES (1)"}, true},
		"reads do not lock": {[]string{"UPDATE delegations SET a = 1", "SELECT a FROM orders"}, false},
	} {
		if fault := storetest.OutOfOrder(c.statements); (fault != "") != c.bad {
			t.Errorf("%s: %q", name, fault)
		}
	}
}
