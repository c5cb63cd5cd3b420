package gateway

import "context"

// Acts of the chat commands, see [x402.Namespace.Command].
const (
	actLogin  = "login"
	actLogout = "logout"
)

// runCommand runs a chat command of this name without the slash and returns its answer. No error
// leaves it.
func (c *Core) runCommand(ctx context.Context, name, args string, caller Caller) string {
	return "Not built yet." // G4
}
