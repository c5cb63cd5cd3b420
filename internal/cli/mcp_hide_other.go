//go:build !linux

package cli

// hideProcess does nothing: docs/MCP.md says how to run a server as another user.
func hideProcess() {}
