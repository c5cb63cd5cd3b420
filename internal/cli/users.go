package cli

import (
	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/server"
)

func usersCommand(con *console) *cobra.Command {
	return group("users", "People who sign in on the pages of the service", "",
		userLink(con, "invite", "Create a sign-up link for one person",
			`Create a sign-up link for one person, for a service where registration is by invitation. The link works once, within seven days. The
person gets a separate workspace; to add a person to your workspace, invite them on its page Members.`, 0),
		userLink(con, "recover PERSON", "Create a link to choose a new password",
			`Create a link for a person who can no longer sign in. PERSON is a login name or, for a person without a login name, an id. The link
works once, within an hour: the person chooses a new password, and all their sessions and recovery codes end. Before you send the link,
verify by other means that the request comes from this person.`, 1),
		userSwitch(con, "disable PERSON", "Disable a person",
			`Disable a person. They cannot sign in until you run toll users enable. Their sessions end within a second, and the API keys,
consents, and access tokens of their memberships are revoked permanently. PERSON is a login name or an id.`, true),
		userSwitch(con, "enable PERSON", "Enable a disabled person",
			"Enable a disabled person, so that they can sign in again. PERSON is a login name or an id.", false),
		suspendCommand(con, "suspend ID", "Suspend a workspace, a plan, or an API key",
			`Suspend a workspace, a plan, or an API key until you run toll users resume. ID is the address of a workspace, or the id of a plan or an
API key. A suspended workspace or plan accepts no orders, top-ups, or holds; open holds settle, and refunds, exports, and sign-in still
work. A suspended API key is rejected. The suspension takes effect within a second.`, true),
		suspendCommand(con, "resume ID", "Resume a suspended workspace, plan, or API key", "Resume a suspended workspace, plan, or API key. ID is the same as for toll users suspend.", false),
	)
}

// userSwitch disables or enables a person directly in the database.
func userSwitch(con *console, use, short, long string, off bool) *cobra.Command {
	c := localCommand(use, short, func(cmd *cobra.Command, args []string, cfg server.Config) error {
		person, err := admin.DisablePerson(cmd.Context(), cfg, args[0], off)
		if err != nil {
			return err
		}
		return con.show(person)
	})
	c.Long, c.Args = long, cobra.ExactArgs(1)
	return c
}

// suspendCommand suspends or resumes a workspace, a plan, or an API key directly in the database.
func suspendCommand(con *console, use, short, long string, off bool) *cobra.Command {
	c := localCommand(use, short, func(cmd *cobra.Command, args []string, cfg server.Config) error {
		out, err := admin.Suspend(cmd.Context(), cfg, args[0], off)
		if err != nil {
			return err
		}
		return con.show(out)
	})
	c.Long, c.Args = long, cobra.ExactArgs(1)
	return c
}

// userLink creates a link for a person directly in the database, and prints it.
func userLink(con *console, use, short, long string, args int) *cobra.Command {
	c := localCommand(use, short, func(cmd *cobra.Command, args []string, cfg server.Config) error {
		login := ""
		if len(args) > 0 {
			login = args[0]
		}
		link, err := admin.MakeLocalLink(cmd.Context(), cfg, login)
		if err != nil {
			return err
		}
		return con.show(link)
	})
	c.Long = long
	c.Args = cobra.ExactArgs(args)
	return c
}
