package toll_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// A line of the log that is written while a context is at hand is written with it: the handler of the log finds the id of the
// request there. The rooms of the service are held to it.
func TestRooms_LogsHaveContext(t *testing.T) {
	seen := 0
	for _, file := range goFiles(t, ".") {
		room := filepath.ToSlash(filepath.Dir(file))
		if !strings.HasPrefix(room, "internal/") || strings.HasSuffix(file, "_test.go") || room == "internal/cli" || room == "internal/seller" ||
			room == "internal/chain/devchain" { // commands, programs of builders, and what stands for others
			continue
		}
		text := must.Get(os.ReadFile(file))(t)
		set := token.NewFileSet()
		parsed := must.Get(parser.ParseFile(set, file, text, parser.SkipObjectResolution))(t)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				seen += logsOf(f.Type, f.Body, false, func(at token.Pos) {
					t.Errorf("%s: the context is at hand: log with it, as in log.ErrorContext(ctx, …)", set.Position(at))
				})
			}
		}
	}
	if seen < 40 {
		t.Errorf("the check sees only %d lines with a context", seen)
	}
}

// logsOf reports calls of loggers without a context, in functions that have one, and counts those with it.
func logsOf(of *ast.FuncType, body ast.Node, outer bool, fault func(at token.Pos)) (with int) {
	has := outer
	for _, p := range of.Params.List {
		if s, ok := p.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" && len(p.Names) > 0 {
			has = p.Names[0].Name != "_"
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncLit); ok {
			with += logsOf(f.Type, f.Body, has, fault)
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLog(f.X) {
			return true
		}
		switch f.Sel.Name {
		case "Warn", "Error":
			if has {
				fault(call.Pos())
			}
		case "WarnContext", "ErrorContext":
			with++
		}
		return true
	})
	return with
}

// isLog reports whether an expression is a logger by its name.
func isLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "log"
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	}
	return false
}
