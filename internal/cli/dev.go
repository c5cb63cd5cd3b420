package cli

import "github.com/spf13/cobra"

func (a *app) devCommand() *cobra.Command {
	return command("dev", "Try everything on this machine", func(*cobra.Command, []string) error { return nil })
}
