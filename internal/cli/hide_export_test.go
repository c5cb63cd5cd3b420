package cli

// HideProcess is what toll mcp calls before it starts a command.
func HideProcess() { hideProcess() }
