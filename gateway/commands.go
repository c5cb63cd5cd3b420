package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// Actions of the chat commands, see [x402.Namespace.Command].
const (
	actLogin  = "login"
	actLogout = "logout"
)

// maxCommand is the maximum size of a command's arguments, in bytes.
const maxCommand = 8 << 10

// runCommand runs a chat command, named without the slash, and returns its answer. The answer also describes failures. It never
// repeats an argument, which may be a key.
func (c *Core) runCommand(ctx context.Context, name, args string, caller Caller) (text string) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a command panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			text = "The command failed. See the gateway log for the cause."
		}
	}()
	// The login determines whose money is spent, so this rule does not depend on ownerOnlySpending.
	if !caller.SenderIsOwner {
		return "Only the owner of this gateway can log in or out."
	}
	args = strings.TrimSpace(args)
	switch {
	case name == c.opts.Names.Command(actLogout) && args == "":
		return c.logoutText(ctx)
	case name == c.opts.Names.Command(actLogin) && len(args) <= maxCommand:
		return c.loginText(ctx, args)
	}
	return c.usageText()
}

func (c *Core) usageText() string {
	login, logout := c.command(actLogin), c.command(actLogout)
	text := "Use " + login + " to log in with a browser, " +
		login + " sandbox or " + login + " live to choose the environment, and " + logout + " to log out."
	if c.set().keyPaste {
		text += " You can also pass a key: " + login + " sandbox:<key>. Logging in with a browser is safer."
	}
	return text
}

func (c *Core) loginText(ctx context.Context, args string) string {
	word := toll.Environment(strings.ToLower(args))
	switch {
	case word == "" || word == toll.Sandbox || word == toll.Live:
		return c.browserText(ctx, word)
	case (strings.Contains(args, ":") || strings.HasPrefix(args, "tk_")) && !strings.ContainsAny(args, " \t\r\n"):
		return c.pasteText(ctx, args)
	}
	return c.usageText()
}

func (c *Core) browserText(ctx context.Context, env toll.Environment) string {
	started, err := c.startLogin(ctx, env)
	if err != nil {
		return c.failureText("The login could not be started.", err)
	}
	return fmt.Sprintf("Open %s and check that it shows the code %s. The code is valid for %s.\n"+
		"The login is for %s at %s. Approve it on that page, then return to this chat. "+
		"The next answer names the workspace that you logged in to.",
		started.URL, started.Code, minutes(started.ExpiresIn), started.Environment, started.Service)
}

func minutes(secs int64) string {
	if n := secs / 60; n != 1 {
		return fmt.Sprintf("%d minutes", n)
	}
	return "1 minute"
}

// revokeAdvice is part of the answer whenever a user sends a well-formed key in a chat.
const revokeAdvice = "The key is now in this chat. Revoke it as soon as you can."

func (c *Core) pasteText(ctx context.Context, args string) string {
	env, key := pasted(args)
	if _, err := client.ReadKey(key); err != nil {
		return "The argument is not an API key. " + c.usageText()
	}
	c.mu.Lock()
	allowed, guards := c.settings.keyPaste, c.guards
	c.mu.Unlock()
	browser := "Use " + c.command(actLogin) + " to log in with a browser. " + revokeAdvice
	switch {
	case !allowed:
		return "This gateway does not accept keys from chats. " + browser
	case !guards.Write || !guards.Run:
		return "This gateway does not accept keys from this chat, because a key could reach the model or the transcript. " + browser
	}
	a, err := c.paste(ctx, env, key)
	var address toll.Address
	if err == nil {
		address, err = a.service.Address(ctx)
	}
	if err != nil {
		return c.failureText("The key was not stored.", err) + " " + revokeAdvice
	}
	return fmt.Sprintf("Logged in to %s as %s. %s Next time, use %s without a key.",
		a.environment, address, revokeAdvice, c.command(actLogin))
}

// pasted returns the environment that precedes a key or is its own, or "" for the configured environment, and the key.
func pasted(args string) (env toll.Environment, key string) {
	prefix, rest, _ := strings.Cut(args, ":")
	env = toll.Environment(strings.ToLower(prefix))
	if env != toll.Sandbox && env != toll.Live {
		return environmentOf(args), args
	}
	if strings.Contains(rest, ":") || environmentOf(rest) != "" { // the key has its own prefix
		return env, rest
	}
	return env, string(env) + ":" + rest
}

func (c *Core) logoutText(ctx context.Context) string {
	out, err := c.logout(ctx)
	if err != nil {
		c.log.Error("the stored login could not be deleted", "error", err)
		return "The stored key could not be deleted. See the gateway log for the cause."
	}
	text := "Logged out."
	switch {
	case out.was == nil:
	case !out.was.Browser:
		text += " The pasted key stays valid until you revoke it at the service."
	case out.revoked != nil:
		c.log.Warn("the key could not be revoked after a logout", "error", out.revoked)
		text += " The gateway could not revoke the key" + endText(out.was.ends()) + ". Revoke it at the service."
	}
	if out.other {
		text += " The gateway now uses the API key in its configuration. Only the operator can remove this key."
	}
	return text
}

func endText(ends time.Time) string {
	if ends.IsZero() {
		return ""
	}
	return ", which expires on " + ends.UTC().Format("January 2, 2006")
}

// failureText describes a failed command to the user, without secrets, and logs its cause.
func (c *Core) failureText(what string, err error) string {
	e := asError(err)
	c.log.Warn("a command failed", "error", err)
	text := what + " " + strings.TrimSuffix(e.Message, ".") + "."
	if e.Hint != "" {
		text += " " + strings.TrimSuffix(e.Hint, ".") + "."
	}
	return redact(text)
}
