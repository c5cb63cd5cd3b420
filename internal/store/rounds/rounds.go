// Package rounds decides how long the long tests run: a few rounds in make test, all of them in make test-all.
package rounds

import "os"

// All reports whether the long tests run in full: make test-all sets TOLL_TEST_ALL=1.
func All() bool { return os.Getenv("TOLL_TEST_ALL") != "" }

// Of returns the number of rounds, steps or kills of a test: all when [All] is true, else few.
func Of(few, all int) int {
	if All() {
		return all
	}
	return few
}

// Deferred reports whether a test is left to make test-all; the test then returns at once. It logs the line that
// scripts/test.sh counts, so that the summary does not call such a test passed.
func Deferred(t interface {
	Helper()
	Log(...any)
}) bool {
	t.Helper()
	if All() {
		return false
	}
	t.Log("deferred to make test-all")
	return true
}
