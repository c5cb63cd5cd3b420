//go:build nodevchain

package cli_test

import "testing"

// TestScript_NoChain runs the scripts in testdata/nochain with a program that was built without the embedded chain.
func TestScript_NoChain(t *testing.T) { run(t, "testdata/nochain") }
