package ledger_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// referenceTables are copied to every node of a cluster, so that tables spread by account may be joined with them.
var referenceTables = []string{"plans", "agents", "agent_plans"}

// unplanned are the statements that Citus does not plan yet, by the constant or function that holds them. They go
// through all accounts, or decide a dispute; holds, settlements, events and sweeps have none (TestStatements_Citus).
var unplanned = map[string]string{
	"sqlIndexes":        "the audit",
	"auditDelegations":  "the audit",
	"auditPlaces":       "the audit",
	"auditTransactions": "the audit",
	"OpenDisputes":      "a dispute is decided",
}

var (
	anyTable = regexp.MustCompile(`(?i)\b(?:FROM|JOIN|UPDATE|INTO|USING)\s+([a-z]\w*)\b`)
	madeFrom = regexp.MustCompile(`(?i)\bCREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	oneOf    = regexp.MustCompile(`(?i)\baccount_id\s*=\s*\$\d+`)
)

// tables returns the names of all tables of the migrations.
func tables(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "store", "migrations", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatal("no migrations", err)
	}
	var names []string
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for _, m := range madeFrom.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// planned returns what Citus 13 does not plan in a statement, "" when there is nothing: forms that were tried on a coordinator and two
// workers with the tables of accounts spread by account_id.
func planned(text string, all []string) string {
	text = space.ReplaceAllString(comment.ReplaceAllString(text, " "), " ")
	var spread, plain []string
	for _, m := range anyTable.FindAllStringSubmatch(text, -1) {
		switch name := strings.ToLower(m[1]); {
		case slices.Contains(accountTables, name):
			spread = append(spread, name)
		case slices.Contains(all, name) && !slices.Contains(referenceTables, name):
			plain = append(plain, name)
		}
	}
	switch {
	case len(spread) == 0:
		return ""
	case lateral.MatchString(text):
		return "it uses LATERAL"
	case locking.MatchString(text) && !oneOf.MatchString(text):
		return "it locks rows of several accounts: use UPDATE … FROM unnest(…) … RETURNING"
	case len(plain) > 0:
		return "it joins " + spread[0] + " with " + plain[0] + ", which is on the coordinator alone: read one of them first"
	}
	return ""
}

// Statements of ledger, events and store are of forms that a cluster plans, but for those of a list that only shrinks.
func TestStatements_Citus(t *testing.T) {
	all, used, read := tables(t), map[string]bool{}, 0
	for _, dir := range []string{".", filepath.Join("..", "store"), filepath.Join("..", "events")} {
		for _, s := range statements(t, dir) {
			if _, ok := composed[s.name]; ok {
				continue
			}
			read++
			fault := planned(s.text, all)
			if fault == "" {
				continue
			}
			if used[s.name] = true; unplanned[s.name] == "" {
				t.Errorf("%s: %s: %s\n%s", s.where, s.name, fault, s.text)
			}
		}
	}
	for name := range unplanned {
		if !used[name] {
			t.Errorf("%s is planned now: take it out of the list", name)
		}
	}
	if read < 200 {
		t.Errorf("only %d statements were read", read)
	}
}

func TestStatements_CitusJudge(t *testing.T) {
	all := tables(t)
	for text, want := range map[string]string{
		`SELECT 1 FROM accounts WHERE account_id = $1 FOR UPDATE`:                                                       "",
		`SELECT 1 FROM accounts WHERE account_id = ANY($1) ORDER BY account_id FOR UPDATE`:                              "locks rows of several",
		`SELECT r.* FROM unnest($1::bytea[]) u(id), LATERAL (SELECT * FROM requests WHERE account_id = u.id LIMIT 1) r`: "LATERAL",
		`SELECT 1 FROM unnest($1::bytea[]) u(id) LEFT JOIN journal j ON j.account_id = u.id`:                            "",
		`SELECT 1 FROM journal j JOIN plans p ON p.plan_id = $1`:                                                        "",
		`SELECT 1 FROM journal j JOIN journal_cursors c ON c.pos < j.pos`:                                               "joins journal with journal_cursors",
		`DELETE FROM requests r USING event_streams s WHERE r.account_id = $1`:                                          "joins requests with event_streams",
		`SELECT 1 FROM events e, LATERAL (SELECT 1) x`:                                                                  "",
		`UPDATE journal j SET body = u.body FROM unnest($1::bytea[]) u(id, body) WHERE j.account_id = u.id`:             "",
	} {
		if got := planned(text, all); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
