package list_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/must"
)

func TestTitles(t *testing.T) {
	for path, want := range map[string]string{
		"id": "ID", "createdAt": "Created", "isListed": "Listed", "agentId": "Agent", "lastUsedAt": "Last used", "object.kind": "Kind",
		"metadata.main.price": "Price", "holderAddress": "Holder", "permissionHash": "Permission", "at": "At",
	} {
		if got := list.Text(path).Title; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := list.Time("at", "Time"); got != (list.Column{Kind: "time", Path: "at", Title: "Time"}) {
		t.Errorf("%+v", got)
	}
}

// pageTables are the functions of pages whose tables show no list of the API, or columns that no other view of the list has.
var pageTables = []string{
	"showComponents", "showAgent", "showPublicAgent", "showKey", "showWorkspace", "listPrograms", "showHolding", "showToken", "listAccounts",
	"showOperation", "showBackups", "tryTable",
}

// The API, the command line, and pages have no columns of their own: a list of the API is described in this package, records that no route
// lists are described with Local, and only pageTables build the columns of a table.
func TestNoOtherColumns(t *testing.T) {
	var files []string
	for _, pattern := range []string{"api/*.go", "cli/*.go", "web/*.go", "web/*/*.go"} {
		found := must.Get(filepath.Glob(filepath.Join("..", pattern)))(t)
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || filepath.Dir(name) == filepath.Join("..", "web", "page") {
			continue
		}
		text := must.Get(os.ReadFile(name))(t)
		for _, fault := range otherColumns(t, name, text) {
			t.Error(fault)
		}
	}
	for _, bad := range []string{
		`var columns = []column{{"ORDER", "orderId"}}`, `var columns = []struct{ title, path string }{{"ORDER", "orderId"}}`,
		`var columns = []list.Column{list.ID("orderId")}`, `var orders = list.Of[toll.Order]("/protocol/orders", "orders")`,
		`var orders = list.List{Member: "orders"}`, `func listOrders() { t := page.Table{Head: []page.Column{{Text: "Order"}}} }`,
		`func listOrders() { var head []page.Column; t := page.Table{Head: head} }`,
		`func listOrders() { of := list.Orders.And(list.ID("orderId", "Order")) }`, `func listOrders() { of := list.Orders.Show("orderid") }`,
		`func listOrders() { of := list.Orders.And(list.Time("seen")).Show("orderId", "sen") }`,
	} {
		if otherColumns(t, "bad.go", []byte("package bad\n"+bad)) == nil {
			t.Errorf("no fault in %s", bad)
		}
	}
}

// otherColumns returns the places where a file describes a list by itself.
func otherColumns(t *testing.T, name string, text []byte) (faults []string) {
	t.Helper()
	fset := token.NewFileSet()
	f := must.Get(parser.ParseFile(fset, name, text, parser.SkipObjectResolution))(t)
	add := func(n ast.Node, what string) { faults = append(faults, fset.Position(n.Pos()).String()+": "+what) }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !slices.Contains(pageTables, n.Name.Name)
		case *ast.KeyValueExpr:
			if named(n.Key) == "Head" {
				add(n, "columns of a table, which page.TableOf takes from package list")
			}
		case *ast.CallExpr:
			if said := otherPaths(t, n); said != "" {
				add(n, said)
			}
		case *ast.CompositeLit:
			of := n.Type
			if array, ok := of.(*ast.ArrayType); ok {
				of = array.Elt
			}
			if is(of, "list", "Column") || is(of, "list", "List") && len(n.Elts) > 0 || named(of) == "column" || titled(of) {
				add(n, "columns that are not described by package list")
			}
		case *ast.IndexExpr:
			if is(n.X, "list", "Of") {
				add(n, "a list of the API, which package list has to describe")
			}
		}
		return true
	})
	return faults
}

// otherPaths returns the fault of a call of And that describes a described column again, or of Show that names a column that there is not.
func otherPaths(t *testing.T, call *ast.CallExpr) string {
	t.Helper()
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "And" && method.Sel.Name != "Show" {
		return ""
	}
	of, added := method.X, []ast.Expr{}
	if and, ok := of.(*ast.CallExpr); ok {
		if inner, ok := and.Fun.(*ast.SelectorExpr); ok {
			of, added = inner.X, and.Args
		}
	}
	known, ok := described(t)[selected(of, "list")]
	if !ok {
		return ""
	}
	for _, column := range added {
		known = append(known, pathOf(column))
	}
	for _, arg := range call.Args {
		path := pathOf(arg)
		switch is := slices.Contains(known, path); {
		case path != "" && is && method.Sel.Name == "And":
			return path + " is described already"
		case path != "" && !is && method.Sel.Name == "Show":
			return "no column " + path
		}
	}
	return ""
}

// pathOf returns a literal path, or that of a column; "" is another expression.
func pathOf(x ast.Expr) string {
	if call, ok := x.(*ast.CallExpr); ok {
		x = call.Args[0]
	}
	if lit, ok := x.(*ast.BasicLit); ok {
		return strings.Trim(lit.Value, `"`)
	}
	return ""
}

var (
	listLine = regexp.MustCompile(`(?m)^\t(\w+) += (?:Of\[|(\w+)\.At\().*$`)
	pathText = regexp.MustCompile(`[A-Z]\w+\("([^"/]+)"`)
)

// described returns the paths of each list of package list, by its name.
func described(t *testing.T) map[string][]string {
	t.Helper()
	text := must.Get(os.ReadFile("list.go"))(t)
	paths := map[string][]string{}
	for _, line := range listLine.FindAllStringSubmatch(string(text), -1) {
		if paths[line[1]] = slices.Clone(paths[line[2]]); line[2] != "" {
			continue
		}
		for _, column := range pathText.FindAllStringSubmatch(line[0], -1) {
			paths[line[1]] = append(paths[line[1]], column[1])
		}
	}
	if len(paths) != len(list.All) {
		t.Fatalf("%d descriptions were read, not %d", len(paths), len(list.All))
	}
	return paths
}

// selected returns the name that is selected from a package; "" is another expression.
func selected(x ast.Expr, pkg string) string {
	if s, ok := x.(*ast.SelectorExpr); ok && named(s.X) == pkg {
		return s.Sel.Name
	}
	return ""
}

func is(x ast.Expr, pkg, name string) bool {
	return selected(x, pkg) == name
}

func named(x ast.Expr) string {
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// titled reports whether a type is a struct with a title and a path.
func titled(x ast.Expr) bool {
	s, ok := x.(*ast.StructType)
	if !ok {
		return false
	}
	var names []string
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
	}
	return slices.Contains(names, "title") && slices.Contains(names, "path")
}
