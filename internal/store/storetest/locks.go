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

// lockOrder is the order in which a transaction locks rows, by table. What belongs to an account is locked with its row.
var lockOrder = [][]string{
	{"accounts", "lots", "entries", "requests", "request_keys", "permissions"}, {"orders"}, {"plan_orders", "returned_places"},
	{"delegations", "delegation_transactions"}, {"authorizations", "sale_identifiers"}, {"chain_leases"}, {"chain_ops", "chain_txs"},
	{"jobs"}, {"idempotency_keys"}, {"event_streams", "event_objects", "events"},
}

var lockingStatements = []*regexp.Regexp{
	regexp.MustCompile(`(?is)^\s*UPDATE\s+(\w+)`), regexp.MustCompile(`(?is)^\s*DELETE\s+FROM\s+(\w+)`),
	regexp.MustCompile(`(?is)^\s*INSERT\s+INTO\s+(\w+).*\bON\s+CONFLICT\b`), regexp.MustCompile(`(?is)\bFROM\s+(\w+)\b.*\bFOR\s+(?:UPDATE|SHARE)\b`),
}

// written is what a statement adds or changes.
var written = regexp.MustCompile(`(?is)^\s*(?:UPDATE|DELETE\s+FROM|INSERT\s+INTO)\s+(\w+)`)

// OutOfOrder returns what the statements of one transaction do against the lock order, "" when nothing: they lock a row after one
// that comes later, change an account without its row, or write after the events.
func OutOfOrder(statements []string) string {
	events := len(lockOrder) - 1
	most, account := -1, false
	for i, s := range statements {
		if m := written.FindStringSubmatch(s); m != nil && most == events && rank(m[1]) != events {
			return fmt.Sprintf("%s is written after the events", m[1])
		}
		for _, form := range lockingStatements {
			m := form.FindStringSubmatch(s)
			if m == nil {
				continue
			}
			r := rank(m[1])
			switch {
			case r < 0 || r == 0 && account:
			case r < most && !slices.ContainsFunc(statements[:i], locks(m[1])):
				return fmt.Sprintf("%s is locked after %s", m[1], strings.Join(lockOrder[most], " or "))
			}
			most = max(most, r)
			account = account || strings.EqualFold(m[1], "accounts")
			break
		}
	}
	return ""
}

// locks returns whether a statement locks rows of a table.
func locks(table string) func(statement string) bool {
	return func(s string) bool {
		return slices.ContainsFunc(lockingStatements, func(form *regexp.Regexp) bool {
			m := form.FindStringSubmatch(s)
			return m != nil && strings.EqualFold(m[1], table)
		})
	}
}

func rank(table string) int {
	return slices.IndexFunc(lockOrder, func(tables []string) bool { return slices.Contains(tables, strings.ToLower(table)) })
}

// Transactions follows the transactions of a store.
type Transactions struct {
	mu   sync.Mutex
	open map[uint64][]string
	at   map[string]int // transactions that are open, by goroutine
}

// Follow fails the test when a transaction of the store locks out of order. It takes the trace of the store.
func Follow(t testing.TB, st *store.Store) *Transactions {
	f := &Transactions{open: map[uint64][]string{}, at: map[string]int{}}
	st.Trace(func(tx uint64, statement string) {
		if tx == 0 {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		switch statement {
		case "begin":
			f.open[tx] = []string{}
			f.at[goroutine()]++
		case "end":
			if fault := OutOfOrder(f.open[tx]); fault != "" {
				t.Errorf("a transaction locks out of order: %s: %s", fault, strings.Join(f.open[tx], ";\n"))
			}
			delete(f.open, tx)
			f.at[goroutine()]--
		default:
			f.open[tx] = append(f.open[tx], statement)
		}
	})
	t.Cleanup(func() { st.Trace(nil) })
	return f
}

// Inside reports whether the calling goroutine runs a transaction.
func (f *Transactions) Inside() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[goroutine()] > 0
}

func goroutine() string {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	return string(bytes.Fields(b)[1])
}
