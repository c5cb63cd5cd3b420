package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

// askEURC makes the address of the configured service the default token, so that a price for a sandbox is in its EURC.
func (a *app) askEURC(c *cobra.Command) {
	c.Long = `A price in EURC. Without --eurc-address the token is the EURC of the service that is configured: it is asked when a url is
set; else the environment that is set decides; else it is that of Base, as live has it.`
	build := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("eurc-address") {
			return build(cmd, args)
		}
		if err := a.loadProfile(); err != nil {
			return err
		}
		if token := a.eurc(cmd.Context()); token != "" {
			if err := cmd.Flags().Set("eurc-address", token); err != nil {
				return err
			}
		}
		return build(cmd, args)
	}
}

// eurc is the address of EURC in the environment that is set, "" when none is.
func (a *app) eurc(ctx context.Context) string {
	if a.set.url == "" && a.set.environment == "" {
		return ""
	}
	token, err := a.tokenOfService(ctx, toll.CurrencyEURC, toll.Environment.EURC)
	if err != nil {
		a.say("note", "%s does not tell its EURC: give --eurc-address to be sure", a.client().URL())
		return ""
	}
	return token.String()
}
