package gateway

import "encoding/json"

// arguments are the checked arguments of a call, by name.
type arguments map[string]any

// text returns a text argument, or fallback when it was not given.
func (a arguments) text(name, fallback string) string {
	if s, ok := a[name].(string); ok {
		return s
	}
	return fallback
}

// integer returns an integer argument, or fallback.
func (a arguments) integer(name string, fallback int64) int64 {
	if n, ok := a[name].(int64); ok {
		return n
	}
	return fallback
}

// flag returns a flag argument; false when it was not given.
func (a arguments) flag(name string) bool { b, _ := a[name].(bool); return b }

// list returns a list argument, nil when it was not given.
func (a arguments) list(name string) []string { l, _ := a[name].([]string); return l }

// given reports whether the caller gave the argument.
func (a arguments) given(name string) bool { _, ok := a[name]; return ok }

// check reads params by the rows of a tool: types are checked and coerced as design 4 says;
// unknown arguments are left out and named in warnings. Errors are [InvalidParams].
func (t *tool) check(params json.RawMessage) (args arguments, warnings []string, err error) {
	panic("G1")
}
