package cli

import (
	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/server"
)

func usersCommand(con *console) *cobra.Command {
	return group("users", "People who sign in on the pages of the service", "",
		userLink(con, "invite", "Make a link with which one person signs up",
			`Make a link with which one person signs up, where registration is by invitation. It works once, within seven days. The person
gets a workspace of their own; to let somebody into yours, invite them on its page of members.`, 0),
		userLink(con, "recover PERSON", "Make a link with which a person chooses a new password",
			`Make a link for a person who lost all ways to sign in. PERSON is a login name or, for somebody who never had one, an id. The link
works once, within an hour: the person chooses a new password, and all their sessions and recovery codes end. Make sure by other
means that it is this person who asks.`, 1),
		userSwitch(con, "disable PERSON", "Keep a person out",
			`Nobody signs in as this person until toll users enable. Their sessions end within a second, and the API keys, consents and access
tokens under their memberships end for ever. PERSON is a login name, or an id.`, true),
		userSwitch(con, "enable PERSON", "Let a person in again", "Let a person who was disabled sign in again. PERSON is a login name, or an id.", false),
		suspendCommand(con, "suspend ID", "Suspend a workspace, a plan or an API key",
			`ID is the address of a workspace, or the id of a plan or an API key. A suspended workspace or plan gets no orders, top-ups and
holds; open holds settle, and refunds, exports and sign-in still work. A suspended API key is refused. It takes a second, until
toll users resume.`, true),
		suspendCommand(con, "resume ID", "Resume what was suspended", "ID is that of toll users suspend.", false),
	)
}

// userSwitch disables or enables a person, on the database itself.
func userSwitch(con *console, use, short, long string, off bool) *cobra.Command {
	c := localCommand(use, short, "the person is changed", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		person, err := admin.DisablePerson(cmd.Context(), cfg, args[0], off)
		if err != nil {
			return err
		}
		return con.show(person)
	})
	c.Long, c.Args = long, cobra.ExactArgs(1)
	return c
}

// suspendCommand suspends or resumes a seller or a key, on the database itself.
func suspendCommand(con *console, use, short, long string, off bool) *cobra.Command {
	c := localCommand(use, short, "it is changed", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		out, err := admin.Suspend(cmd.Context(), cfg, args[0], off)
		if err != nil {
			return err
		}
		return con.show(out)
	})
	c.Long, c.Args = long, cobra.ExactArgs(1)
	return c
}

// userLink prints a link for a person, which is made on the database itself.
func userLink(con *console, use, short, long string, args int) *cobra.Command {
	c := localCommand(use, short, "the link is made", func(cmd *cobra.Command, args []string, cfg server.Config) error {
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
