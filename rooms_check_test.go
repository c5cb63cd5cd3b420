package toll_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// house is a module with its rooms, as the checker sees it.
type house struct {
	module        string
	rooms         map[string]room
	testLibraries []string
	composer      string // the room that puts the others together
	longest       int    // lines of its longest file
}

func newHouse(module string, rooms map[string]room) *house {
	return &house{module, rooms, testLibraries, "internal/server", 300}
}

type fault struct {
	file string
	line int
	text string
}

func (f fault) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// goFiles returns all Go files of the module in dir, for every system, as slash paths.
func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != dir && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(p, "go.mod")); d.IsDir() && p != dir && err == nil {
			return filepath.SkipDir // another module
		}
		if !d.IsDir() && strings.HasSuffix(name, ".go") {
			rel, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	must.Do(t, err)
	return files
}

// check returns what breaks the rules in the Go files below dir.
func (h *house) check(t *testing.T, dir string) []fault {
	t.Helper()
	var faults []fault
	seen := map[string]bool{}
	for _, name := range goFiles(t, dir) {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			faults = append(faults, fault{name, 0, err.Error()})
			continue
		}
		in := path.Dir(name)
		if in == "." {
			in = "toll"
		}
		seen[in] = true
		if long := fset.File(f.FileStart).LineCount(); in == h.composer && long > h.longest && !strings.HasSuffix(name, "_test.go") {
			faults = append(faults, fault{name, 0, fmt.Sprintf("%d lines, and %d are the most of a file here", long, h.longest)})
		}
		c := &checking{h: h, fset: fset, name: name, in: in, test: strings.HasSuffix(name, "_test.go")}
		c.file(f)
		faults = append(faults, c.faults...)
	}
	for name, r := range h.rooms {
		if !seen[name] {
			faults = append(faults, fault{name, 0, "no such room: strike it from the table"})
		}
		if !slices.Contains(layers, r.layer) {
			faults = append(faults, fault{name, 0, "a room without a layer"})
		}
	}
	return faults
}

// checking is the check of one file.
type checking struct {
	h        *house
	fset     *token.FileSet
	name, in string
	test     bool
	imports  map[string]string // path by name
	faults   []fault
}

func (c *checking) fault(n ast.Node, format string, args ...any) {
	c.faults = append(c.faults, fault{c.name, c.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)})
}

// badNames say nothing about what a package is for.
var badNames = []string{"util", "utils", "common", "helper", "helpers", "types", "model", "models", "shared", "pkg", "misc"}

func (c *checking) file(f *ast.File) {
	r, known := c.h.rooms[c.in]
	if !known {
		c.fault(f.Name, "a directory that is no room: add it to the table")
	}
	for _, part := range append(strings.Split(c.in, "/"), strings.TrimSuffix(f.Name.Name, "_test")) {
		if slices.Contains(badNames, part) {
			c.fault(f.Name, "a package is not called %s", part)
			break
		}
	}
	// A file that opens the inside of a package to its external tests has to be in the package.
	if c.test && isPublic(c.in) && !strings.HasSuffix(f.Name.Name, "_test") && !strings.HasSuffix(c.name, "export_test.go") {
		c.fault(f.Name, "tests of a public room are in package %s_test", f.Name.Name)
	}
	c.imports = map[string]string{}
	if known {
		for _, i := range f.Imports {
			c.importSpec(r, i)
		}
	}
	ast.Inspect(f, c.node)
}

// within says whether a package is the given one or below it.
func within(pkg, of string) bool { return pkg == of || strings.HasPrefix(pkg, of+"/") }

func (c *checking) importSpec(r room, i *ast.ImportSpec) {
	p, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		return
	}
	name := path.Base(p)
	if i.Name != nil {
		name = i.Name.Name
	}
	c.imports[name] = p
	first, _, _ := strings.Cut(p, "/")
	switch {
	case within(p, c.h.module):
		to := strings.TrimPrefix(strings.TrimPrefix(p, c.h.module), "/")
		if to == "" {
			to = "toll"
		}
		if !c.test && to != c.in && !slices.Contains(strings.Fields(r.ours), to) {
			c.fault(i, "%s must not import %s", c.in, to)
		}
		if !c.test && c.in == c.h.composer && (strings.HasPrefix(to, "internal/chain/") || strings.HasPrefix(to, "internal/card/")) {
			c.fault(i, "the room that composes leaves the rooms of a rail to the rail")
		}
	case !c.test && c.in == c.h.composer && (p == "encoding/json" || within(p, "github.com/go-json-experiment/json")):
		c.fault(i, "the room that composes has no JSON document")
	case strings.Contains(first, "."):
		allowed := r.third
		if c.test {
			allowed = slices.Concat(r.third, r.tests, c.h.testLibraries)
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return within(p, a) }) {
			c.fault(i, "%s must not import %s", c.in, p)
		}
	case p == "testing" && !c.test && !slices.Contains(testRooms, c.in):
		c.fault(i, "a helper of tests in a production file")
	case p == "database/sql" && !c.test && c.in != "internal/store" && c.in != "bench":
		c.fault(i, "SQL outside of store and ledger")
	case p == "log":
		c.fault(i, "log is a global: take a *slog.Logger")
	}
}

var (
	brandText = regexp.MustCompile(`(?i:svc)|Service-[A-Z]|X-Service|service_`)
	// Statements, and the ends of statements. Prose begins with a capital, statements are in one case.
	sqlText = regexp.MustCompile(`(?s)^\s*(SELECT\s.*\sFROM\s|select\s.*\sfrom\s|(?i:insert\s+into\s|update\s+\w+(\s+\w+)?\s+set\s|delete\s+from\s|` +
		`create\s+(unique\s+)?(table|index)\s|alter\s+table\s|drop\s+(table|index|database)\s|truncate\s+table|pragma\s))|(?i:\swhere\s+[\w.]+\s*[=<>]+\s*\$\d)`)
)

func (c *checking) node(n ast.Node) bool {
	rules := slices.Contains(rulesRooms, c.in) && !c.test
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv == nil && n.Name.Name == "init" {
			c.fault(n, "a function init: what happens at start is called by name")
		}
	case *ast.BasicLit:
		switch n.Kind {
		case token.FLOAT:
			if rules {
				c.fault(n, "a float near money")
			}
		case token.STRING:
			c.text(n)
		}
	case *ast.Ident:
		if rules && (n.Name == "float64" || n.Name == "float32") {
			c.fault(n, "a float near money")
		}
	case *ast.SelectorExpr:
		c.selector(n, rules)
	case *ast.GoStmt:
		c.background(n)
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Go" || c.is(s, "time", "NewTicker", "Tick", "AfterFunc")) {
			c.background(n)
		}
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && rules && c.is(s, "time", "Now", "Since", "Until") {
			c.fault(n, "time.%s in a room of rules: take a clock", s.Sel.Name)
		}
	}
	return true
}

// background takes what starts something that goes on by itself for a fault, unless the file may.
func (c *checking) background(n ast.Node) {
	if c.test || c.in == "internal/jobs" || c.in == "bench" || slices.Contains(testRooms, c.in) || goroutines[c.name] != "" {
		return
	}
	c.fault(n, "work in the background is a jobs.Loop: see goroutines")
}

func (c *checking) text(n *ast.BasicLit) {
	s, err := strconv.Unquote(n.Value)
	if err != nil || c.test {
		return
	}
	// service_tier is a member of model APIs.
	if brandText.MatchString(strings.ReplaceAll(s, "service_tier", "")) && c.name != "x402/namespace.go" {
		c.fault(n, "a brand word outside of x402/namespace.go")
	}
	if sqlText.MatchString(s) && !slices.Contains(sqlRooms, c.in) {
		c.fault(n, "SQL outside of store and ledger")
	}
}

func (c *checking) selector(n *ast.SelectorExpr, rules bool) {
	name := n.Sel.Name
	switch {
	case name == "Skip" || name == "Skipf" || name == "SkipNow":
		x, ok := n.X.(*ast.Ident)
		if _, allowed := skips[c.name]; ok && !allowed && (x.Name == "t" || x.Name == "b" || x.Name == "f" || x.Name == "tb") {
			c.fault(n, "a test that can be skipped")
		}
	case (name == "Do" || name == "DoNew") && !c.test && isLedger(n.X) && !slices.Contains(handleRooms, c.in):
		c.fault(n, "ledger.%s is not for this room: see handleRooms", name)
	case rules && (name == "ParseFloat" || c.is(n, "math/big", "Float", "Rat")):
		c.fault(n, "a float near money")
	case c.test:
	case slices.Contains(strictRooms, c.in) && c.is(n, "encoding/json", "Unmarshal", "NewDecoder"):
		c.fault(n, "messages are read by x402.Decode")
	case c.is(n, "log/slog", "Debug", "Info", "Warn", "Error", "Log", "Default", "SetDefault", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"):
		c.fault(n, "slog.%s is a global: take a *slog.Logger", name)
	case c.is(n, "fmt", "Print", "Printf", "Println") || c.is(n, "os", "Stdout", "Stderr"):
		// The default log of the middleware: without it a builder does not learn why the service refuses the agent's key.
		defaultLog := c.name == "internal/seller/sale.go" && name == "Stderr"
		if !defaultLog && !slices.Contains(speakingRooms, c.in) && !slices.Contains(testRooms, c.in) {
			c.fault(n, "this room does not write to the terminal")
		}
	}
}

// isLedger reports whether an expression is called ledger, as fields and variables of *ledger.Ledger are.
func isLedger(x ast.Expr) bool {
	if s, ok := x.(*ast.SelectorExpr); ok {
		x = s.Sel
	}
	id, ok := x.(*ast.Ident)
	return ok && strings.EqualFold(id.Name, "ledger")
}

// is says whether n is one of the names of the imported package.
func (c *checking) is(n *ast.SelectorExpr, pkg string, names ...string) bool {
	x, ok := n.X.(*ast.Ident)
	return ok && c.imports[x.Name] == pkg && slices.Contains(names, n.Sel.Name)
}
