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
	return group("session", "Sign in as a person", `Sign in as a person, who manages members, sessions and credentials: API keys do not.

The session is kept in the active profile for 12 hours. TOLL_SESSION and TOLL_WORKSPACE win over it.`,
		sessionStart(a),
		sessionSignUp(a),
		a.person(call{use: "show", short: "Show who signed in, and their workspaces", path: "/session"}),
		a.person(call{use: "list", short: "List where you are signed in", list: list.Sessions}),
		a.person(call{use: "revoke ID", short: "End a session of yours", method: http.MethodDelete, path: "/sessions/ID"}),
		sessionUse(a),
		a.person(call{
			use: "rename-workspace WORKSPACE", short: "Name the workspace in which you call", method: http.MethodPatch, path: "/workspaces/WORKSPACE",
			long:    "Name the workspace in which you call. Its members see the name in place of its address; nothing else depends on it.",
			example: `toll session rename-workspace 0x5fbdb2315678afecb367f032d93f642f64180aa3 --name "Bob's agents"`,
			flags:   []flag{{"name", "name", word, "name of the workspace; empty for none"}}, require: []string{"name"},
		}),
		a.person(call{
			use: "delete-workspace WORKSPACE", short: "Delete the workspace in which you call", method: http.MethodDelete, path: "/workspaces/WORKSPACE",
			long: `Delete the workspace in which you call: its members, invitations, API keys, access tokens, consents and webhooks end, and its plans and
agents are not listed any more. It takes an owner, and a fresh proof (toll session prove). WORKSPACE is its whole address.

What was recorded stays: the ledger, orders, receipts and the audit log. It is refused while somebody has credits of a plan with a price, and
while an order is not decided or disputed. The money of its wallet stays there: export the key before (toll wallet export).`,
			example: "toll session delete-workspace 0x5fbdb2315678afecb367f032d93f642f64180aa3",
		}),
		a.person(call{
			use: "prove", short: "Prove the password once more", method: http.MethodPost, path: "/session/proof",
			long:  "Prove the password once more. For ten minutes the session may do what changes who has access.",
			flags: []flag{passwordFlag}, change: passwordOf, example: "toll session prove --password @password.txt",
		}),
		sessionEnd(a),
	)
}

// passwordFlag reads a password from stdin or a file, as others can see arguments.
var passwordFlag = flag{"password", "password", kind{name: "text", read: func(a *app, _ string, given []string) (any, error) {
	from := given[len(given)-1]
	if from != "-" && !strings.HasPrefix(from, "@") {
		return nil, usagef("--password takes - for stdin or @path for a file, as others can see arguments")
	}
	return a.textArgument(from)
}}, "the password: - reads it from stdin, @path from a file (required)"}

// passwordOf refuses a call without a password.
func passwordOf(_ *cobra.Command, r *request) error {
	if value[string](r.in, "password") == "" {
		return usagef("give the password with --password - or --password @path")
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
		{"name", "name", word, "name that others see; default the login name"},
		{"link", "link", word, "link of the operator, or an invitation, where registration is not open"},
	}, func(ctx context.Context, login string, in body) (*toll.SignedIn, error) {
		return a.client().SignUp(ctx, client.SignUpParams{
			Login: login, Password: value[string](in, "password"), Name: value[string](in, "name"), Link: value[string](in, "link"),
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
	c.Long = long + " The session is kept in the active profile, with the first workspace of the person."
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
	return command("use WORKSPACE", "Choose the workspace in which you call", func(cmd *cobra.Command, args []string) error {
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
	return command("end", "Sign out, and forget the session", func(cmd *cobra.Command, _ []string) error {
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
	return group("members", "People of the workspace", "People of the workspace: see toll session for how to sign in as a person.",
		a.person(call{use: "list", short: "List the people of the workspace", list: list.Members}),
		a.person(call{
			use: "role USER", short: "Give a member another role", method: http.MethodPatch, path: "/members/USER", require: []string{"role"},
			flags: []flag{{"role", "role", role, "the role"}},
		}),
		a.person(call{
			use: "limit USER", short: "Set what a developer may have the workspace pay in a month", method: http.MethodPatch, path: "/members/USER",
			long: `Set what a developer may have the workspace pay in a calendar month (UTC), in cents of dollars and euros alike.

Orders that the wallet pays count, and the whole limit of each delegation that the developer makes, until it ends. The developer uses no
delegations of others. What was made before goes on.`,
			require: []string{"cents"}, flags: []flag{{"cents", "spendLimitCents", cleared(digits), "cents in a month; empty takes the limit away"}},
		}),
		a.person(call{
			use: "remove USER", short: "Remove a member, and end what they made", method: http.MethodDelete, path: "/members/USER",
			long: `Remove a member. API keys, access tokens and consents under the membership end, and the answer counts them.
Webhooks whose address the member chose are paused, and the answer names them.

With --keep they stand under your own membership from then on, with the rights that they had.`,
			flags: []flag{{"keep", "keep", toggle, "keep what stands under the membership"}},
		}),
		a.person(call{use: "sessions USER", short: "List the sessions in which a member used the workspace", list: list.MemberSessions}),
		a.person(call{use: "sign-out USER", short: "End the access of a member's sessions to the workspace", method: http.MethodDelete, path: "/members/USER/sessions"}),
		a.person(call{use: "leave", short: "Leave the workspace", method: http.MethodDelete, path: "/members/me"}),
	)
}

func invitationsCommand(a *app) *cobra.Command {
	role := oneOf("owner", "admin", "developer", "billing", "viewer")
	return group("invitations", "Links with which people join the workspace", "Links with which people join the workspace. Each works once.",
		a.person(call{
			use: "create", short: "Make a link for one person", method: http.MethodPost, path: "/invitations", made: "link", require: []string{"role"},
			flags: []flag{{"role", "role", role, "role of the person"}, {"note", "note", word, "for whom it is"}},
		}),
		a.person(call{use: "list", short: "List open invitations", list: list.Invitations}),
		a.person(call{use: "accept LINK", short: "Join a workspace", method: http.MethodPost, path: "/invitations/accept", into: "link"}),
		a.person(call{use: "revoke ID", short: "End an open invitation", method: http.MethodDelete, path: "/invitations/ID"}),
	)
}

func credentialsCommand(a *app) *cobra.Command {
	return group("credentials", "How you sign in", "How you sign in: see toll session for how to sign in as a person. Passkeys are added on the page Your account.",
		a.person(call{
			use: "list", short: "List your credentials", list: list.Credentials,
		}),
		a.person(call{
			use: "remove CREDENTIAL", short: "Remove a credential", method: http.MethodDelete, path: "/credentials/CREDENTIAL",
			long: "Remove a credential. All your other sessions end. The last one that signs in by itself stays.",
		}),
		a.person(call{
			use: "recovery-codes", short: "Make ten recovery codes in place of those from before", method: http.MethodPost, path: "/credentials/recovery-codes",
		}),
	)
}

func auditLogCommand(a *app) *cobra.Command {
	return a.person(call{
		use: "audit-log", short: "List what was done in the workspace", list: list.AuditLog,
		long: `List what was done in the workspace, by whom and from where: see toll session for how to sign in as a person. Addresses of people go
after 90 days. toll audit proves that no entry was changed.`,
		example: "toll audit-log --since 7d\ntoll audit-log --act member.removed -o json",
		flags: []flag{
			{"act", "act", word, "only this act, such as member.removed"},
			{"since", "since", moment, "only from then on: a day, a time, or a span before now"},
			{"until", "until", moment, "only before then"},
		},
	})
}
