package gateway

import (
	"context"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
)

// loginAnswer is the result of the login tool. It contains no secret.
type loginAnswer struct {
	loginStarted
	Message string `json:"message"`
}

type logoutAnswer struct {
	Message string `json:"message"`
}

var environmentParam = param{
	name: "environment", kind: kindText, oneOf: []string{string(toll.Sandbox), string(toll.Live)},
	description: "sandbox or live. Default: the configured environment.",
}

// addLogin adds tools that replace the slash commands. They do not accept a key, because arguments appear in transcripts.
func (c *Core) addLogin(s *mcp.Server) {
	login := &tool{
		name: actLogin, title: "Log in",
		description: "Starts a login and returns a URL and a code. The user opens the URL, checks the code, and approves the login. " +
			"The other tools work after that. This tool does not accept an API key.",
		params: []param{environmentParam},
		output: loginAnswer{},
	}
	logout := &tool{
		name: actLogout, title: "Log out",
		description: "Deletes the stored login. If the user logged in with a browser, it also revokes the API key.",
		output:      logoutAnswer{},
	}
	s.AddTool(c.mcpOwn(login), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args, _, err := login.check(r.Params.Arguments)
		if err != nil {
			return mcpError(err)
		}
		started, err := c.startLogin(ctx, toll.Environment(args.text(environmentParam.name, "")))
		if err != nil {
			return mcpError(err)
		}
		return mcpResult(loginAnswer{*started, fmt.Sprintf(
			"Ask the user to open the page, check that it shows the code %s, and approve the login within %s.",
			started.Code, minutes(started.ExpiresIn))}, false)
	})
	s.AddTool(c.mcpOwn(logout), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if _, _, err := logout.check(r.Params.Arguments); err != nil {
			return mcpError(err)
		}
		return mcpResult(logoutAnswer{c.logoutText(ctx)}, false)
	})
}

// mcpOwn describes a tool that changes only the state of the core.
func (c *Core) mcpOwn(t *tool) *mcp.Tool {
	described := c.mcpTool(t)
	described.Annotations.DestructiveHint = jsonschema.Ptr(false)
	return described
}
