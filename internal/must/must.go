// Package must fails a test on an unexpected error. It imports nothing from this module, so the tests of every package may use it.
package must

// TB is the part of testing.TB that this package calls. The tests of package rapid implement it too.
type TB interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// Do ends the test if err is not nil. The message starts with about.
func Do(t TB, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(about, err)...)
	}
}

// Get takes the results of a call and returns its value, or ends the test if the call returned an error:
//
//	res := must.Get(http.Get(url))(t)
func Get[T any](v T, err error) func(TB) T {
	return func(t TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Check fails the test if err is not nil, and lets it continue. The message starts with about.
func Check(t TB, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(about, err)...)
	}
}
