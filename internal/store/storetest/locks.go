package storetest

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/store"
)

// lockOrder is the order in which a transaction locks rows, by table. What belongs to an account is locked with its row. What the room
// of events keeps for itself comes with the events: its cursors move, and its webhooks begin, where a stream ends.
var lockOrder = [][]string{
	{"accounts", "lots", "requests", "request_keys", "permissions"}, {"orders"}, {"memberships"}, {"plan_orders", "returned_places"},
	{"delegations", "delegation_transactions"}, {"authorizations", "sale_identifiers"}, {"chain_leases"},
	{"chain_ops", "chain_txs", "card_payments", "card_calls", "card_customers", "card_setups", "card_methods", "card_refunds", "card_disputes",
		"card_moves", "card_events", "card_orphans", "chain_orphans"},
	{"card_refund_fees"},
	{"jobs"}, {"idempotency_keys"},
	{"journal_cursors", "journal_commitments", "journal_accounts", "usage_kept", "usage_hours", "usage_days",
		"usage_labels", "usage_buyer_labels", "revenue_hours", "refusal_hours"},
	{"event_streams", "event_objects", "events", "event_runs", "webhooks", "webhook_deliveries"},
	{"audit_heads", "audit_log"},
	{"journal"},
}

var lockingStatements = []*regexp.Regexp{
	regexp.MustCompile(`(?is)^\s*(?:WITH \w+ AS \()?UPDATE\s+(\w+)`), regexp.MustCompile(`(?is)^\s*DELETE\s+FROM\s+(\w+)`),
	regexp.MustCompile(`(?is)^\s*INSERT\s+INTO\s+(\w+).*\bON\s+CONFLICT\b`), regexp.MustCompile(`(?is)\bFROM\s+(\w+)\b.*\bFOR\s+(?:UPDATE|SHARE)\b`),
	regexp.MustCompile(`(?is)\bFROM\s+(accounts)\s+WHERE\s+account_id = \$1\s*$`), // SQLite has no FOR UPDATE
}

// written is what a statement adds or changes.
var written = regexp.MustCompile(`(?is)^\s*(?:WITH \w+ AS \()?(?:UPDATE|DELETE\s+FROM|INSERT\s+INTO)\s+(\w+)`)

// access is what a statement does to which table, "" for none.
type access struct{ locks, writes string }

var accesses sync.Map // of statements, which are many times the same

func accessOf(statement string) access {
	if a, ok := accesses.Load(statement); ok {
		return a.(access)
	}
	var a access
	if m := written.FindStringSubmatch(statement); m != nil {
		a.writes = strings.ToLower(m[1])
	}
	for _, form := range lockingStatements {
		if m := form.FindStringSubmatch(statement); m != nil {
			a.locks = strings.ToLower(m[1])
			break
		}
	}
	accesses.Store(statement, a)
	return a
}

// OutOfOrder returns what the statements of one transaction do against the lock order, "" when nothing: they lock a row after one
// that comes later, change an account without its row, write after the events, or have every writer wait for more than a commit.
func OutOfOrder(statements []string) string {
	events := len(lockOrder) - 3 // the audit log and the journal come after them
	most, account, positions := -1, false, false
	for i, s := range statements {
		a := accessOf(s)
		if positions && a.writes != "journal" {
			return "a statement comes between the lock of the journal and the commit"
		}
		positions = positions || s == store.JournalLock.SQL
		if a.writes != "" && most >= events && rank(a.writes) < events {
			return fmt.Sprintf("%s is written after the events", a.writes)
		}
		if a.locks == "" {
			continue
		}
		r := rank(a.locks)
		if r < most && r >= 0 && !(r == 0 && account) &&
			!slices.ContainsFunc(statements[:i], func(s string) bool { return accessOf(s).locks == a.locks }) {
			return fmt.Sprintf("%s is locked after %s", a.locks, strings.Join(lockOrder[most], " or "))
		}
		most = max(most, r)
		account = account || a.locks == "accounts"
	}
	return ""
}

func rank(table string) int {
	return slices.IndexFunc(lockOrder, func(tables []string) bool { return slices.Contains(tables, table) })
}

// running has the goroutines that run a transaction of a followed store, with its number.
var running sync.Map

// Follow fails the test when a transaction of the store locks out of order. It takes the trace of the store. The stores that this
// package opens are followed, except those of benchmarks.
func Follow(t testing.TB, st *store.Store) {
	var mu sync.Mutex
	open := map[uint64][]string{}
	st.Trace(func(tx uint64, statement string) {
		if tx == 0 {
			return
		}
		switch statement {
		case "begin":
			running.Store(goroutine(), tx)
			mu.Lock()
			open[tx] = []string{}
			mu.Unlock()
		case "end":
			mu.Lock()
			statements := open[tx]
			delete(open, tx)
			mu.Unlock()
			running.Delete(goroutine())
			if fault := OutOfOrder(statements); fault != "" {
				t.Errorf("a transaction locks out of order: %s: %s", fault, strings.Join(statements, ";\n"))
			}
		default:
			mu.Lock()
			open[tx] = append(open[tx], statement)
			mu.Unlock()
		}
	})
}

// InTransaction reports whether the calling goroutine runs a transaction of a followed store, so that it must not wait for the network.
func InTransaction() bool {
	_, ok := running.Load(goroutine())
	return ok
}

func goroutine() string {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	return string(bytes.Fields(b)[1])
}
