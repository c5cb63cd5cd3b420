package list_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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

// The API and the command line have no columns of their own: a list of the API is described in this package, and records that no route
// lists are described with Local.
func TestNoOtherColumns(t *testing.T) {
	var files []string
	for _, dir := range []string{"api", "cli"} {
		found := must.Get(filepath.Glob(filepath.Join("..", dir, "*.go")))(t)
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
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
		`var orders = list.List{Member: "orders"}`,
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

func is(x ast.Expr, pkg, name string) bool {
	s, ok := x.(*ast.SelectorExpr)
	return ok && s.Sel.Name == name && named(s.X) == pkg
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
