package ledger_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	parameters = regexp.MustCompile(`\$(\d+)(::\w+\[\])?`)
	byKey      = regexp.MustCompile(`Index Cond: .*= (\(?u\.|\$)`)
)

// Statements that the writer planned while the tables were empty, and that nobody analyzed, look rows up by their keys: none
// compares each row of a table with what it looks for.
func TestPlans_WriterThatGrew(t *testing.T) {
	st := storetest.OpenConfig(t, storetest.Config(t, storetest.Postgres))
	pipe := st.NewPipe()
	defer pipe.Close()
	run := func(q string) (plan string) {
		t.Helper()
		err := pipe.Run(t.Context(), store.Stmt{SQL: q, Row: func(scan func(...any) error) error {
			var line string
			err := scan(&line)
			plan += line + "\n"
			return err
		}})
		must.Do(t, err, q)
		return plan
	}
	checked := 0
	for _, s := range statements(t, ".") {
		many := strings.Contains(s.text, "unnest(") && strings.Contains(s.text, "u.account_id")
		if one := strings.HasPrefix(s.name, "sql") && strings.Contains(s.text, "account_id = $1"); !many && !one {
			continue
		}
		checked++
		args := make([]string, strings.Count(s.text, "$")+1)
		most := 0
		for _, m := range parameters.FindAllStringSubmatch(s.text, -1) {
			n, _ := strconv.Atoi(m[1])
			if args[n-1] == "" {
				args[n-1] = "NULL"
			}
			if most = max(most, n); m[2] != "" {
				args[n-1] = "'{}'" + m[2]
			}
		}
		if strings.HasSuffix(s.text, "LIMIT ") { // sqlLotsTo adds how many
			s.text += "32"
		}
		run("PREPARE " + s.name + " AS " + s.text)
		plan := run("EXPLAIN EXECUTE " + s.name + "(" + strings.Join(args[:most], ", ") + ")")
		if many && strings.Contains(plan, "Join Filter") || !byKey.MatchString(plan) {
			t.Errorf("%s:\n%s", s.name, plan)
		}
	}
	if checked < 15 {
		t.Errorf("only %d statements were found", checked)
	}
}
