package cli

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
)

// Settings of a profile: the session of a person, and the workspace in which they call.
const (
	settingSession   = "session"
	settingWorkspace = "workspace"
)

// usePerson has the following calls carry the session of a person, when there is one: TOLL_SESSION, else that of the profile.
func (a *app) usePerson() error {
	c, err := a.readConfig()
	if err != nil {
		return err
	}
	p := c.profiles[a.active(c)]
	if session := cmp.Or(strings.TrimSpace(a.getenv("TOLL_SESSION")), p.text(settingSession)); session != "" {
		a.set.key = session
		a.set.workspace = cmp.Or(a.getenv("TOLL_WORKSPACE"), p.text(settingWorkspace))
	}
	return nil
}

// person makes the command of a call that takes the session of a person.
func (a *app) person(r call) *cobra.Command {
	c := a.resource(r)
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.usePerson(); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return c
}

func sessionCommand(a *app) *cobra.Command {
	return group("session", "Sign in as a person", `Sign in as a person to manage members, sessions, and credentials, which is not possible with API keys.

The session is stored in the active profile for 12 hours. TOLL_SESSION and TOLL_WORKSPACE override it.`,
		sessionStart(a),
		sessionSignUp(a),
		a.person(call{use: "show", short: "Show the signed-in person and their workspaces", path: "/session"}),
		a.person(call{use: "list", short: "List your sessions", list: list.Sessions}),
		a.person(call{use: "revoke ID", short: "Revoke one of your sessions", method: http.MethodDelete, path: "/sessions/ID"}),
		sessionUse(a),
		a.person(call{
			use: "rename-workspace WORKSPACE", short: "Rename the current workspace", method: http.MethodPatch, path: "/workspaces/WORKSPACE",
			long:    "Rename the current workspace. Members see the name instead of the address; nothing else depends on it.",
			example: `toll session rename-workspace 0x5fbdb2315678afecb367f032d93f642f64180aa3 --name "Bob's agents"`,
			flags:   []flag{{"name", "name", word, "name of the workspace; empty removes it"}}, require: []string{"name"},
		}),
		a.person(call{
			use: "delete-workspace WORKSPACE", short: "Delete the current workspace", method: http.MethodDelete, path: "/workspaces/WORKSPACE",
			long: `Delete the current workspace: its members, invitations, API keys, access tokens, consents, and webhooks are removed, and its plans and
agents are no longer listed. Only an owner who has just confirmed their identity (toll session prove) can do this. WORKSPACE must be the full address.

The ledger, orders, receipts, and the audit log stay. The command fails while a subscriber has credits of a paid plan, and while an order
is open or disputed. The money in the workspace's wallet stays there: export the key first (toll wallet export).`,
			example: "toll session delete-workspace 0x5fbdb2315678afecb367f032d93f642f64180aa3",
		}),
		a.person(call{
			use: "prove", short: "Confirm your password", method: http.MethodPost, path: "/session/proof",
			long:  "Confirm your password. For ten minutes, the session can then make changes that affect access.",
			flags: []flag{passwordFlag}, change: passwordOf, example: "toll session prove --password @password.txt",
		}),
		sessionEnd(a),
	)
}

// passwordFlag reads a password from stdin or a file, because other users can see command-line arguments.
var passwordFlag = flag{"password", "password", kind{name: "text", read: func(a *app, _ string, given []string) (any, error) {
	from := given[len(given)-1]
	if from != "-" && !strings.HasPrefix(from, "@") {
		return nil, usagef("--password must be - for stdin or @path for a file, because other users can see command-line arguments")
	}
	return a.textArgument(from)
}}, "the password: - reads it from stdin, @path from a file (required)"}

// passwordOf refuses a call without a password.
func passwordOf(_ *cobra.Command, r *request) error {
	if value[string](r.in, "password") == "" {
		return usagef("--password is required: use --password - or --password @path")
	}
	return nil
}

func sessionStart(a *app) *cobra.Command {
	return beginSession(a, "start LOGIN", "Sign in with a password", "Sign in with a login name and a password.", nil,
		func(ctx context.Context, login string, in body) (*toll.SignedIn, error) {
			return a.client().SignInPerson(ctx, login, value[string](in, "password"))
		})
}

func sessionSignUp(a *app) *cobra.Command {
	return beginSession(a, "sign-up LOGIN", "Sign up with a password", "Sign up with a login name and a password, and get a workspace.", []flag{
		{"name", "name", word, "display name; default the login name"},
		{"workspace", "workspace", word, "name of your new workspace"},
		{"link", "link", word, "link from the operator, or invitation link; required if registration is not open"},
	}, func(ctx context.Context, login string, in body) (*toll.SignedIn, error) {
		return a.client().SignUp(ctx, client.SignUpParams{
			Login: login, Password: value[string](in, "password"), Name: value[string](in, "name"),
			Workspace: value[string](in, "workspace"), Link: value[string](in, "link"),
		})
	})
}

// begins makes a command that begins a session of a person, and keeps it.
func beginSession(
	a *app,
	use, short, long string, flags []flag, begin func(ctx context.Context, login string, in body) (*toll.SignedIn, error),
) *cobra.Command {
	c := command(use, short, nil)
	c.Annotations = withoutProfile // the profile may not be there yet
	c.Long = long + " The session is stored in the active profile, with your first workspace."
	c.Example = "toll session " + strings.Replace(use, "LOGIN", "alice", 1) + " --password @password.txt"
	inputs := a.inputs(c, append(flags, passwordFlag))
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := inputs()
		if err == nil {
			err = passwordOf(cmd, &request{in: in})
		}
		if err != nil {
			return err
		}
		config, err := a.openConfig()
		if err != nil {
			return err
		}
		a.set.url = cmp.Or(a.flags.url, a.getenv("TOLL_URL"), config.profiles[a.active(config)].text(settingURL))
		got, err := begin(cmd.Context(), args[0], in)
		if err != nil {
			return err
		}
		workspace := ""
		if len(got.Organizations) > 0 {
			workspace = got.Organizations[0].ID
		}
		if err := keepSession(a, got.Token, workspace); err != nil {
			return err
		}
		got.Token = ""
		return a.show(got)
	}
	return c
}

// keepSession writes the session of a person to the active profile; an empty one is taken away.
func keepSession(a *app, session, workspace string) error {
	c, err := a.openConfig()
	if err != nil {
		return err
	}
	p := c.profile(a.active(c))
	p.set(settingSession, session)
	p.set(settingWorkspace, workspace)
	if session != "" {
		p.set(settingURL, cmp.Or(p.text(settingURL), a.client().URL()))
	}
	return c.save()
}

func sessionUse(a *app) *cobra.Command {
	return command("use WORKSPACE", "Select the workspace for your commands", func(cmd *cobra.Command, args []string) error {
		if err := a.usePerson(); err != nil {
			return err
		}
		for o, err := range a.client().Organizations(cmd.Context()) {
			if err != nil {
				return err
			}
			if strings.EqualFold(o.ID, args[0]) || o.Name != "" && strings.EqualFold(o.Name, args[0]) {
				if err := keepSession(a, a.set.key, o.ID); err != nil {
					return err
				}
				return a.show(o)
			}
		}
		return toll.NewError(toll.CodeWrongWorkspace)
	})
}

func sessionEnd(a *app) *cobra.Command {
	return command("end", "Sign out and remove the stored session", func(cmd *cobra.Command, _ []string) error {
		if err := a.usePerson(); err != nil {
			return err
		}
		if !strings.HasPrefix(a.set.key, "session:") {
			return toll.NewError(toll.CodePersonNeeded)
		}
		if err := a.client().SignOut(cmd.Context()); err != nil && toll.AsError(err).HTTPStatus() != http.StatusUnauthorized {
			return err
		}
		return keepSession(a, "", "")
	})
}

func membersCommand(a *app) *cobra.Command {
	role := oneOf("owner", "admin", "developer", "billing", "viewer")
	return group("members", "Members of the workspace", "Members of the workspace. You must sign in as a person: see toll session.",
		a.person(call{use: "list", short: "List the members of the workspace", list: list.Members}),
		a.person(call{
			use: "role USER", short: "Change the role of a member", method: http.MethodPatch, path: "/members/USER", require: []string{"role"},
			flags: []flag{{"role", "role", role, "new role"}},
		}),
		a.person(call{
			use: "limit USER", short: "Set the monthly spending limit of a developer", method: http.MethodPatch, path: "/members/USER",
			long: `Set how much of the workspace's money a developer can spend in a calendar month (UTC), in cents. Dollars and euros count alike.

Orders paid from the wallet count, and so does the full limit of each delegation that the developer creates, until the delegation ends. The
developer cannot use delegations of other members. Existing orders and delegations stay valid.`,
			require: []string{"cents"}, flags: []flag{{"cents", "spendLimitCents", cleared(digits), "cents per month; empty removes the limit"}},
		}),
		a.person(call{
			use: "remove USER", short: "Remove a member and revoke their access", method: http.MethodDelete, path: "/members/USER",
			long: `Remove a member. The member's API keys, access tokens, and consents are revoked, and the response counts them. Webhooks whose
address the member chose are paused, and the response lists them.

With --keep, all of these records move to your own membership and keep their rights.`,
			flags: []flag{{"keep", "keep", toggle, "move the member's API keys, access tokens, consents, and webhooks to your own membership"}},
		}),
		a.person(call{use: "sessions USER", short: "List the sessions in which a member used the workspace", list: list.MemberSessions}),
		a.person(call{use: "sign-out USER", short: "Sign a member's sessions out of the workspace", method: http.MethodDelete, path: "/members/USER/sessions"}),
		a.person(call{use: "leave", short: "Leave the workspace", method: http.MethodDelete, path: "/members/me"}),
	)
}

func invitationsCommand(a *app) *cobra.Command {
	role := oneOf("owner", "admin", "developer", "billing", "viewer")
	return group("invitations", "Links to join the workspace", "Links to join the workspace. Each link works once.",
		a.person(call{
			use: "create", short: "Create an invitation link for one person", method: http.MethodPost, path: "/invitations", made: "link", require: []string{"role"},
			flags: []flag{{"role", "role", role, "role of the invited person"}, {"note", "note", word, "note about the invited person"}},
		}),
		a.person(call{use: "list", short: "List open invitations", list: list.Invitations}),
		a.person(call{use: "accept LINK", short: "Join a workspace", method: http.MethodPost, path: "/invitations/accept", into: "link"}),
		a.person(call{use: "revoke ID", short: "Revoke an open invitation", method: http.MethodDelete, path: "/invitations/ID"}),
	)
}

func credentialsCommand(a *app) *cobra.Command {
	return group("credentials", "Your sign-in methods", "Your sign-in methods. You must sign in as a person: see toll session. Add passkeys on the page Your account.",
		a.person(call{
			use: "list", short: "List your credentials", list: list.Credentials,
		}),
		a.person(call{
			use: "remove CREDENTIAL", short: "Remove a credential", method: http.MethodDelete, path: "/credentials/CREDENTIAL",
			long: "Remove a credential. All your other sessions end. You cannot remove the last credential with which you can sign in.",
		}),
		a.person(call{
			use: "recovery-codes", short: "Replace your recovery codes with ten new codes", method: http.MethodPost, path: "/credentials/recovery-codes",
		}),
	)
}

func auditLogCommand(a *app) *cobra.Command {
	return a.person(call{
		use: "audit-log", short: "List the audit log of the workspace", list: list.AuditLog,
		long: `List the actions in the workspace, with the person and the network address. You must sign in as a person: see toll session. Network
addresses of people are deleted after 90 days. toll audit verifies that no entry was changed.`,
		example: "toll audit-log --since 7d\ntoll audit-log --act member.removed -o json",
		flags: []flag{
			{"act", "act", word, "only this action, such as member.removed"},
			{"since", "since", moment, "only from this time: a date, a time, or a duration before now"},
			{"until", "until", moment, "only before this time"},
		},
	})
}
