package gateway

import "github.com/modelcontextprotocol/go-sdk/mcp"

// For tests.
var (
	SecretPatterns = secretPatterns
	RedactLog      = redactLog
	Redact         = redact
)

// Settings returns what applies now.
func (c *Core) Settings() Config { return c.set().Config }

// CheckArguments checks params by the rows of a tool.
func CheckArguments(name, params string) (map[string]any, []string, error) {
	for _, t := range registry() {
		if t.name == name {
			return t.check([]byte(params))
		}
	}
	panic(name)
}

// MCPServer returns the tools as an MCP server.
func (c *Core) MCPServer() *mcp.Server { return c.mcp }
