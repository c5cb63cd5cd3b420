package ledger_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// The statements of the ledger and of the store have to run unchanged on tables that are spread by account over many
// machines. These are the tables that are.
var accountTables = []string{"accounts", "lots", "journal", "journal_accounts", "requests", "request_keys", "permissions", "orders", "sub_tasks"}

// fanOut are the statements that do not name the account and so ask every machine, by the constant or function that holds
// them, with the reason. They read, and never lock.
var fanOut = map[string]string{
	"sqlPermissionByHash": "an access token names its permission, and not the account",
	"sqlRequestsByID":     "an id that a caller chose does not name an account",
	"sqlAccountsOf":       "the plans of which a subscriber has credits",
	"sqlAnyAccount":       "pages show the buying side to a workspace with an account",
	"sqlAnyOrder":         "pages show the buying side to a workspace with an order",
	"sqlStale":            "the sweeper looks for accounts with something to end",
	"Ledger.Permissions":  "the list of a subscriber",
	"PendingOrders":       "a workspace that ends has orders of many accounts",
	"OrdersSince":         "a workspace that ends has orders of many accounts",
	"UnpaidPages":         "a buyer of a full plan looks for pages of others",
	"SpentBy":             "a member with a spending limit orders plans of many accounts",
	"Ledger.AuditFrom":    "the auditor goes through all accounts",
	"audit.allAccounts":   "the auditor goes through all accounts",
	"audit.unsettled":     "the auditor goes through all accounts",
	"sqlIndexes":          "the auditor goes through all accounts",
	"JournalBetween":      "the auditor reads the journal in its order",
	"sqlCardOrders":       "the auditor goes through all accounts",
	"sqlCardPaid":         "the auditor goes through all accounts",
	"auditSellers":        "the auditor goes through all accounts",
	"sqlBurnsByID":        "an id that a caller chose does not name an account",
	"sqlAccountTail":      "the rows behind the cursor of the follower",
	"sqlTail":             "settlement by transaction",
	"JournalAfter":        "followers read the journal in its order",
	"JournalAt":           "followers and their readers know positions",
	"JournalLength":       "the order of the journal is one for all accounts",
	"sqlPayers":           "a page of settlements is of several accounts",
	"OrderByID":           "an order id does not name an account",
	"auditDelegations":    "the auditor goes through all accounts",
	"auditPlaces":         "the auditor goes through all accounts",
	"auditMints":          "the auditor goes through all accounts",
	"auditTakenBack":      "the auditor goes through all accounts",
	"auditPermissions":    "the auditor goes through all accounts",
	"auditTransactions":   "the auditor goes through all accounts",
	"auditRefunded":       "the auditor goes through all accounts",
	"auditBack":           "the auditor goes through all accounts",
	"OpenDisputes":        "a delegation pays orders of several accounts",
	"sqlMirrorBurns":      "the mirror follows the journal",
	"Orders":              "the orders of a seller, a subscriber or a plan",
	"auditBurnHours":      "the auditor goes through all accounts",
	"auditBurnDays":       "the auditor goes through all accounts",
	"sqlMintsAfter":       "the auditor goes through all accounts",
	"paidOrders":          "a part of the journal mints the orders of several accounts",
	"Revenue":             "what went back of the orders of a seller",
	"Search":              "an owner looks for an order or a permission by the beginning of its id",

	"sqlEndedAscending":   "the requests of a seller or a subscriber",
	"sqlEndedDescending":  "the requests of a seller or a subscriber",
	"sqlHeldOfSubscriber": "the open holds of a subscriber",
	"sqlHeldOfSeller":     "the open holds of a seller",
	"Store.Watch":         "metrics count the open orders of all accounts",
	"Store.openStates":    "metrics count the open orders of all accounts",

	"sqlRequestKeysAfter":        "the sweeper goes through all keys",
	"sqlPermissionsEnded":        "the sweeper looks for permissions that ended",
	"sqlPermissionsOfKey":        "an API key that is revoked ends permissions of several plans",
	"sqlPermissionsOfDelegation": "a delegation that is revoked ends permissions of several plans",
}

// composed are the functions that build a statement from parts which are checked where they are written.
var composed = map[string]string{
	"Select":    "lists: see the literals of Listing",
	"partition": "partitions of a test database",

	"prepare":    "sums of usage, which are not spread by account: see the literals of sums",
	"newRecord":  "records: see recordList",
	"PutSealed":  "a column with envelopes, by its key: see SealedColumn",
	"dropOldest": "rows of tables that are not spread by account: see recordList.query",
	"ClaimJobs":  "jobs belong to no account; its subquery ends with what the engine calls SKIP LOCKED",
}

// ordered are the statements that give positions: the journal has one order for all accounts (docs/decisions/0056-journal.md).
var ordered = map[string]string{
	"SQLJournalAddMany": "it adds rows behind the last one",
}

type statement struct {
	where string // file and line
	name  string // the constant, or the function around it
	text  string
}

var (
	verb     = regexp.MustCompile(`(?is)^\s*(SELECT|INSERT\s+INTO|UPDATE|DELETE\s+FROM|WITH|CREATE|ALTER|DROP|MERGE|LOCK|TRUNCATE)\s`)
	prose    = regexp.MustCompile(`^[A-Z][a-z]`)
	dangling = regexp.MustCompile(`(?i)(\bFROM|\bINTO|^\s*UPDATE|\bJOIN)\s*$|%[sdv]`)
)

// statements returns the SQL of the constant strings in the Go files of a directory, except tests. What is put together
// at run time counts up to its first part that is not constant.
func statements(t *testing.T, dir string) []statement {
	t.Helper()
	fset := token.NewFileSet()
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(fset, name, nil, 0))(t)
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	// Imports are not resolved: constants of the package itself need none.
	conf := types.Config{Error: func(error) {}}
	_, _ = conf.Check(dir, fset, files, info)

	var found []statement
	records := records(files)
	for _, r := range records {
		found = append(found, statement{dir, r.table, r.insert()}, statement{dir, r.table, r.update()})
	}
	for _, f := range files {
		for _, decl := range f.Decls {
			outer := ""
			if fn, ok := decl.(*ast.FuncDecl); ok {
				outer = fn.Name.Name
				if fn.Recv != nil {
					outer = strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*") + "." + outer
				}
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && outer == "" {
					for i, v := range spec.Values {
						name := spec.Names[min(i, len(spec.Names)-1)].Name
						if text := records.query(t, info, v); text != "" {
							found = append(found, statement{position(fset, v), name, text})
						}
						inspect(fset, info, name, v, &found)
					}
					return false
				}
				if call, ok := n.(*ast.CallExpr); ok {
					if text := records.call(t, info, call); text != "" {
						found = append(found, statement{position(fset, call), outer, text})
					}
				}
				if e, ok := n.(ast.Expr); ok {
					return inspectExpr(fset, info, outer, e, &found)
				}
				return true
			})
		}
	}
	return found
}

// record is a record of the store: the table, and the columns that the tags of its struct name.
type record struct {
	table              string
	columns, keys, set []string
}

type recordList map[string]*record // by the names of their variables

var recordTag = regexp.MustCompile(`db:"([^"]*)"`)

func records(files []*ast.File) recordList {
	structs, list := map[string]*ast.StructType{}, recordList{}
	each := func(f func(ast.Node)) {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool { f(n); return true })
		}
	}
	each(func(n ast.Node) {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
	})
	each(func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok {
			return
		}
		made, ok := call.Fun.(*ast.IndexExpr)
		if !ok || types.ExprString(made.X) != "newRecord" {
			return
		}
		r := &record{table: strings.Trim(call.Args[0].(*ast.BasicLit).Value, `"`)}
		for _, f := range structs[strings.TrimPrefix(types.ExprString(made.Index), "*")].Fields.List {
			if f.Tag == nil {
				continue
			}
			words := strings.Split(recordTag.FindStringSubmatch(f.Tag.Value)[1], ",")
			r.columns = append(r.columns, words[0])
			if slices.Contains(words, "key") {
				r.keys = append(r.keys, words[0]+" = $1")
			}
			if slices.Contains(words, "set") {
				r.set = append(r.set, words[0]+" = $1")
			}
		}
		list[spec.Names[0].Name] = r
	})
	return list
}

func (r *record) insert() string {
	return "INSERT INTO " + r.table + " (" + strings.Join(r.columns, ", ") + ") VALUES ()"
}

// update is empty for a record that has none.
func (r *record) update() string {
	if len(r.set) == 0 {
		return ""
	}
	return "UPDATE " + r.table + " SET " + strings.Join(r.set, ", ") + " WHERE " + strings.Join(r.keys, " AND ")
}

// call returns the statement of a call of a method of a record, "" of any other call. What is put together at run time counts
// up to its first part that is not constant.
func (l recordList) call(t *testing.T, info *types.Info, call *ast.CallExpr) string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || l[types.ExprString(method.X)] == nil {
		return ""
	}
	r := l[types.ExprString(method.X)]
	before, at := "SELECT * FROM "+r.table+" ", 2
	switch method.Sel.Name {
	case "one", "all":
	case "query":
		at = 0
	case "insertOr":
		before, at = r.insert()+" ", 3
	case "adds", "puts":
		before, at = r.insert()+" ", 0
	case "list":
		return "SELECT * FROM " + r.table + " WHERE ?"
	default:
		return ""
	}
	rest := call.Args[at]
	for {
		if v := info.Types[rest].Value; v != nil && v.Kind() == constant.String {
			return before + constant.StringVal(v)
		}
		sum, ok := rest.(*ast.BinaryExpr)
		if !ok {
			return before
		}
		rest = sum.X
	}
}

// query returns the statement of a function that by, locked, listBy, adds or puts makes, "" of any other value.
func (l recordList) query(t *testing.T, info *types.Info, value ast.Expr) string {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return ""
	}
	maker, end := "", ""
	switch made := call.Fun.(type) {
	case *ast.Ident:
		maker = made.Name
	case *ast.IndexExpr:
		maker = types.ExprString(made.X)
	case *ast.IndexListExpr:
		maker = types.ExprString(made.X)
	case *ast.SelectorExpr:
		return l.call(t, info, call)
	}
	switch maker {
	case "by", "by2", "listBy", "listBy2":
	case "locked", "locked2":
		end = " FOR UPDATE"
	case "dropOldest":
		if r := l[types.ExprString(call.Args[0])]; r == nil || slices.Contains(accountTables, r.table) {
			t.Errorf("dropOldest of %s: teach this test to read it", types.ExprString(call.Args[0]))
		}
		return ""
	default:
		return ""
	}
	r, where := l[types.ExprString(call.Args[0])], info.Types[call.Args[1]].Value
	if r == nil || where == nil {
		t.Errorf("%s of %s: a function of a table is made of its record and a constant", maker, types.ExprString(call.Args[0]))
		return ""
	}
	return "SELECT * FROM " + r.table + " WHERE " + constant.StringVal(where) + end
}

func inspect(fset *token.FileSet, info *types.Info, name string, e ast.Expr, found *[]statement) {
	ast.Inspect(e, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			return inspectExpr(fset, info, name, e, found)
		}
		return true
	})
}

// inspectExpr adds the largest constant strings, and the literals of store.Listing as the statements they become.
func inspectExpr(fset *token.FileSet, info *types.Info, name string, e ast.Expr, found *[]statement) bool {
	if lit, ok := e.(*ast.CompositeLit); ok && strings.HasSuffix(types.ExprString(lit.Type), "Listing") {
		part := map[string]string{"Where": "?"}
		for _, el := range lit.Elts {
			if kv, ok := el.(*ast.KeyValueExpr); ok {
				if v := info.Types[kv.Value].Value; v != nil && v.Kind() == constant.String {
					part[types.ExprString(kv.Key)] = constant.StringVal(v)
				}
			}
		}
		*found = append(*found, statement{position(fset, lit), name, "SELECT * FROM " + part["Table"] + " WHERE " + part["Where"]})
	}
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return true // checked where it is declared
	}
	v := info.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return true
	}
	if text := constant.StringVal(v); verb.MatchString(text) && !prose.MatchString(text) {
		*found = append(*found, statement{position(fset, e), name, text})
	}
	return false
}

func position(fset *token.FileSet, n ast.Node) string {
	p := fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)
}

var forbidden = regexp.MustCompile(`(?i)\b(now\s*\(|current_(time|date|timestamp)|localtime|clock_timestamp|random\s*\(|gen_random|uuid_generate|nextval|` +
	`I?LIKE|SIMILAR|GLOB|serial|bigserial|identity|autoincrement|sequence|trigger|enum|generated|strftime|datetime\s*\(|julianday|FOR\s+SHARE|SKIP\s+LOCKED|TRUNCATE|LOCK\s+TABLE|REAL|FLOAT|DOUBLE|NUMERIC|JSONB)`)

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	space   = regexp.MustCompile(`\s+`)
	inner   = regexp.MustCompile(`(?i)\(\s*SELECT\b`)
	union   = regexp.MustCompile(`(?i)\bUNION(\s+ALL)?\b`)
	table   = regexp.MustCompile(`(?i)\b(FROM|JOIN|UPDATE|INTO)\s+(` + strings.Join(accountTables, "|") + `)\b(?:\s+(?:AS\s+)?([a-z]\w*))?`)
	equal   = regexp.MustCompile(`(?i)(?:\b(\w+)\.)?\baccount_id\s*=\s*(ANY\s*\(\s*\$\d+\s*\)|\$\d+|(\w+)\.account_id)`)
	columns = regexp.MustCompile(`(?i)\bINTO\s+\w+\s*\(([^)]*)\)`)
	clash   = regexp.MustCompile(`(?i)\bON\s+CONFLICT\s*\(([^)]*)\)`)
	inOrder = regexp.MustCompile(`(?i)\bORDER\s+BY\s+principal\s+FOR\s+UPDATE\s*$`)
	lateral = regexp.MustCompile(`(?i)\bLATERAL\b`)
	locking = regexp.MustCompile(`(?i)\bFOR\s+(NO\s+KEY\s+)?UPDATE\b`)
	writes  = regexp.MustCompile(`(?i)^\s*(?:WITH\s+\w+\s+AS\s*\(\s*)?(INSERT|UPDATE|DELETE|MERGE)\b|\b(INSERT\s+INTO|DELETE\s+FROM)\b`)
	sqlWord = regexp.MustCompile(`(?i)^(WHERE|SET|ORDER|ON|GROUP|LIMIT|JOIN|LEFT|CROSS|UNION|VALUES|FOR|USING|RETURNING|HAVING|INNER)$`)
)

// unpinned returns the tables of a statement that are read or written without naming the account.
func unpinned(text string) []string {
	text = space.ReplaceAllString(comment.ReplaceAllString(text, " "), " ")
	var faults []string
	for {
		at := inner.FindStringIndex(text)
		if at == nil {
			break
		}
		depth, end := 0, -1
		for i := at[0]; i < len(text); i++ {
			if text[i] == '(' {
				depth++
			} else if text[i] == ')' {
				if depth--; depth == 0 {
					end = i
					break
				}
			}
		}
		if end < 0 {
			return append(faults, "a parenthesis is not closed")
		}
		faults = append(faults, unpinned(text[at[0]+1:end])...)
		text = text[:at[0]] + "()" + text[end+1:]
	}
	for _, part := range union.Split(text, -1) {
		faults = append(faults, unpinnedPart(part)...)
	}
	return faults
}

// unpinnedPart checks one SELECT, INSERT, UPDATE or DELETE: the account of each table has to equal a parameter, or that of
// something outside of the tables of this part.
func unpinnedPart(part string) []string {
	var faults []string
	pinned := map[string]bool{} // by alias
	for _, m := range table.FindAllStringSubmatch(part, -1) {
		if strings.EqualFold(m[1], "INTO") {
			if c := columns.FindStringSubmatch(part); c == nil || !strings.Contains(c[1], "account_id") {
				faults = append(faults, m[2])
			}
			if c := clash.FindStringSubmatch(part); c != nil && !strings.Contains(c[1], "account_id") {
				faults = append(faults, m[2])
			}
			continue
		}
		alias := m[3]
		if alias == "" || sqlWord.MatchString(alias) {
			alias = m[2]
		}
		pinned[alias] = false
	}
	type edge struct{ a, b string }
	var edges []edge
	for _, m := range equal.FindAllStringSubmatch(part, -1) {
		left, right := m[1], m[3]
		if left == "" && len(pinned) == 1 {
			for alias := range pinned {
				left = alias
			}
		}
		edges = append(edges, edge{left, right})
	}
	anchored := func(alias string) bool {
		p, ours := pinned[alias]
		return !ours || p // a parameter (""), or a row from outside
	}
	for range edges {
		for _, e := range edges {
			if _, ours := pinned[e.a]; ours && anchored(e.b) {
				pinned[e.a] = true
			}
			if _, ours := pinned[e.b]; ours && e.a != "" && anchored(e.a) {
				pinned[e.b] = true
			}
		}
	}
	for alias, ok := range pinned {
		if !ok {
			faults = append(faults, alias)
		}
	}
	return faults
}

// judge returns what is wrong with a statement, "" when nothing is. fan is set when the statement may fan out.
func judge(text string, fan bool) string {
	if m := forbidden.FindString(text); m != "" {
		return "it uses " + m
	}
	if table.MatchString(text) && lateral.MatchString(text) {
		return "it uses LATERAL, which Citus cannot plan"
	}
	free := unpinned(text)
	switch {
	case len(free) == 0:
	case writes.MatchString(text):
		return fmt.Sprintf("it writes without naming the account of %s", strings.Join(free, ", "))
	case locking.MatchString(text):
		return fmt.Sprintf("it locks without naming the account of %s", strings.Join(free, ", "))
	case !fan:
		return fmt.Sprintf("it does not name the account of %s and is no named fan-out read", strings.Join(free, ", "))
	}
	if locking.MatchString(text) && strings.Contains(text, "ANY(") {
		if table.MatchString(text) {
			return "it locks rows of several accounts, which Citus cannot plan"
		}
		if !inOrder.MatchString(text) {
			return "it locks several rows, and not in the order of their ids"
		}
	}
	return ""
}

// Rules 1 and 3 of "Beyond one machine" for every statement: it names the account, or is a named read; nothing volatile,
// no trigger, no sequence; locks of several accounts are taken in their order.
func TestStatements(t *testing.T) {
	used, touching := map[string]bool{}, 0
	for _, dir := range []string{".", filepath.Join("..", "store")} {
		for _, s := range statements(t, dir) {
			if table.MatchString(s.text) {
				touching++
			}
			if _, ok := composed[s.name]; ok {
				used[s.name] = true
				continue
			}
			if dangling.MatchString(s.text) {
				t.Errorf("%s: %s: the statement is put together from parts that this test cannot read", s.where, s.name)
			}
			if ordered[s.name] != "" {
				used[s.name] = true
				if m := forbidden.FindString(s.text); m != "" {
					t.Errorf("%s: %s uses %s", s.where, s.name, m)
				}
				continue
			}
			_, fan := fanOut[s.name]
			if fan && len(unpinned(s.text)) > 0 {
				used[s.name] = true
			}
			if fault := judge(s.text, fan); fault != "" {
				t.Errorf("%s: %s: %s\n%s", s.where, s.name, fault, s.text)
			}
		}
	}
	if touching < 40 {
		t.Errorf("only %d statements on the tables of accounts were found: the reading of the code is broken", touching)
	}
	for _, list := range []map[string]string{fanOut, composed, ordered} {
		for name := range list {
			if !used[name] {
				t.Errorf("%s is in a list of exceptions and needs none", name)
			}
		}
	}
}

func TestStatements_Judge(t *testing.T) {
	for _, c := range []struct {
		text string
		fan  bool
		want string
	}{
		{`SELECT * FROM lots WHERE account_id = $1`, false, ""},
		{`SELECT * FROM lots WHERE lot_id = $1`, false, "does not name the account of lots"},
		{`SELECT * FROM lots WHERE lot_id = $1`, true, ""},
		{`SELECT * FROM lots l WHERE account_id > $1`, false, "account of l"},
		{`SELECT 1 FROM journal e JOIN requests r ON r.account_id = e.account_id`, false, "account of"},
		{`SELECT 1 FROM journal e JOIN requests r ON r.account_id = e.account_id WHERE e.account_id = $1`, false, ""},
		{`SELECT 1 FROM journal e JOIN requests r ON r.agent_request_id = e.ref WHERE e.account_id = $1`, false, "account of r"},
		{`SELECT r.* FROM unnest($1::bytea[]) AS u(account_id), LATERAL (SELECT * FROM requests WHERE account_id = u.account_id LIMIT 1) r`, false, "LATERAL"},
		{`SELECT r.* FROM unnest($1::bytea[]) AS u(account_id) LEFT JOIN requests r ON r.account_id = u.account_id`, false, ""},
		{`SELECT r.* FROM unnest($1::bytea[]) AS u(account_id) LEFT JOIN requests r ON r.state = u.state`, false, "account of r"},
		{`SELECT 1 FROM accounts WHERE account_id = $1 UNION SELECT 1 FROM accounts WHERE next_lot_end < $2`, false, "account of accounts"},
		{`UPDATE requests SET state = 2 WHERE agent_request_id = $1`, true, "writes without"},
		{`UPDATE requests r SET state = u.state FROM unnest($1::bytea[]) AS u(account_id, state) WHERE r.account_id = u.account_id`, false, ""},
		{`WITH saved AS (UPDATE accounts a SET seq = u.seq FROM unnest($1::bytea[]) AS u(account_id, seq) WHERE a.account_id = u.account_id
			RETURNING a.account_id) SELECT COUNT(*) FROM saved`, false, ""},
		{`WITH saved AS (UPDATE accounts SET seq = 1 WHERE version = $1 RETURNING account_id) SELECT COUNT(*) FROM saved`, true, "writes without"},
		{`DELETE FROM requests WHERE ended_at < $1`, true, "writes without"},
		{`INSERT INTO lots (lot_id, ref) VALUES ($1, $2)`, false, "writes without"},
		{`INSERT INTO lots (account_id, ref) VALUES ($1, $2) ON CONFLICT (ref) DO NOTHING`, false, "writes without"},
		{`SELECT * FROM permissions WHERE permission_hash = $1 FOR UPDATE`, true, "locks without"},
		{`SELECT * FROM accounts WHERE account_id = $1 FOR UPDATE`, false, ""},
		{`SELECT * FROM accounts WHERE account_id = ANY($1) ORDER BY account_id FOR UPDATE`, false, "several accounts"},
		{`SELECT * FROM event_streams WHERE principal = ANY($1) FOR UPDATE`, false, "not in the order"},
		{`SELECT * FROM event_streams WHERE principal = ANY($1) ORDER BY principal FOR UPDATE`, false, ""},
		{`UPDATE plans SET updated_at = now() WHERE plan_id = $1`, false, "uses now("},
		{`SELECT * FROM plans WHERE name LIKE $1`, false, "uses LIKE"},
		{`CREATE TABLE x (id BIGSERIAL)`, false, "uses BIGSERIAL"},
		{`CREATE TRIGGER x AFTER INSERT ON lots`, false, "uses TRIGGER"},
	} {
		got := judge(c.text, c.fan)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

var createTable = regexp.MustCompile(`(?is)CREATE TABLE (\w+) \((.*?)\n\)`)

// Rule 1 for the text of the migrations; TestCatalogue sees what became of it.
func TestStatements_Migrations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "store", "migrations", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatal("no migrations", err)
	}
	var tables, others []string
	for _, file := range files { // in their order
		raw := must.Get(os.ReadFile(file))(t)
		text := comment.ReplaceAllString(string(raw), "")
		if m := forbidden.FindString(text); m != "" {
			t.Errorf("%s uses %s", filepath.Base(file), m)
		}
		for _, m := range createTable.FindAllStringSubmatch(text, -1) {
			name, body := m[1], m[2]
			if strings.Contains(body, "DEFAULT") {
				t.Errorf("%s: table %s has a default: values are made in Go", filepath.Base(file), name)
			}
			if !slices.Contains(accountTables, name) {
				if regexp.MustCompile(`(?m)^\s*account_id\s`).MatchString(body) {
					others = append(others, name)
				}
				continue
			}
			tables = append(tables, name)
			if strings.Contains(body, "REFERENCES") {
				t.Errorf("%s: table %s has a foreign key", filepath.Base(file), name)
			}
			_, tail, _ := strings.Cut(text, m[0])
			if !strings.HasPrefix(tail, "{{PARTITION}}") {
				t.Errorf("%s: table %s is not partitioned in tests", filepath.Base(file), name)
			}
		}
		for _, m := range regexp.MustCompile(`DROP TABLE (\w+)`).FindAllStringSubmatch(text, -1) {
			gone := func(name string) bool { return name == m[1] }
			others = slices.DeleteFunc(others, gone)
			tables = slices.DeleteFunc(tables, gone)
		}
		for _, m := range createTable.FindAllStringSubmatch(text, -1) {
			if slices.Contains(accountTables, m[1]) && !slices.Contains(tables, m[1]) {
				tables = append(tables, m[1]) // dropped and made anew
			}
		}
	}
	if len(others) > 0 {
		t.Errorf("tables %v belong to accounts and are not in the list of this test", others)
	}
	slices.Sort(tables)
	want := slices.Sorted(slices.Values(accountTables))
	if !slices.Equal(tables, want) {
		t.Errorf("tables of accounts are %v, want %v", tables, want)
	}
}
