package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/server"
)

func recoveryCommand(con *console) *cobra.Command {
	return group("recovery", "What is left to do after a restore", "", recoveryShow(con), recoveryBegin(con), recoveryEnd(con))
}

func recoveryShow(con *console) *cobra.Command {
	c := storeCommand("show", "Show how far a restored database is", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		r, err := admin.ShowRecovery(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return con.built(r)
	})
	c.Example = "toll recovery show --data ./toll-data -o json"
	return c
}

func recoveryBegin(con *console) *cobra.Command {
	var at string
	c := storeCommand("begin", "Mark a database that was restored with other tools", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		backupAt, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return usagef("--backup-time is a time such as 2026-11-21T03:00:00Z; got %q", at)
		}
		r, err := admin.BeginRecovery(cmd.Context(), cfg, backupAt)
		if err != nil {
			return err
		}
		return con.built(r)
	})
	c.Flags().StringVar(&at, "backup-time", "", "moment of the backup, such as 2026-11-21T03:00:00Z")
	if err := c.MarkFlagRequired("backup-time"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Mark a database that was restored with other tools, such as pg_restore, before the service starts. toll restore does it by
itself. While the mark is there, the rails are read from the moment of the backup on, and wallets are searched for payments whose
records were lost.`
	c.Example = "toll recovery begin --database postgres://… --backup-time 2026-11-21T03:00:00Z"
	return c
}

func recoveryEnd(con *console) *cobra.Command {
	c := storeCommand("end", "Remove the mark of a restored database", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		if err := admin.EndRecovery(cmd.Context(), cfg); err != nil {
			return err
		}
		con.say("", "The database is not marked as restored.")
		return nil
	})
	c.Long = `Remove the mark of a restored database. It is refused until the rails have been read and every payment without an order was
dealt with; the answer says what is left.`
	c.Example = "toll recovery end --data ./toll-data"
	return c
}

func ordersResolve(con *console) *cobra.Command {
	var in admin.Resolve
	var grant, refund bool
	var plan, subscriber string
	c := storeCommand("resolve ID", "Deal with a payment that no order explains", func(cmd *cobra.Command, args []string, cfg server.Config) (err error) {
		in.ID, in.How = args[0], admin.Settled
		switch {
		case grant:
			in.How = admin.Granted
		case refund:
			in.How = admin.Refunded
		}
		if in.Plan = toll.PlanID(plan); plan != "" {
			if in.Plan, err = toll.ParsePlanID(plan); err != nil {
				return usagef("--plan: %s", err)
			}
		}
		if subscriber != "" {
			if in.Subscriber, err = toll.ParseAddress(subscriber); err != nil {
				return usagef("--subscriber: %s", err)
			}
		}
		done, err := admin.ResolvePayment(cmd.Context(), cfg, in)
		if err != nil {
			return err
		}
		switch done.Resolution {
		case admin.Granted:
			con.say("", "The order is recorded. Credits of a card payment come when the service has asked the processor.")
		case admin.Refunding:
			con.say("", "The service asks the processor for the refund; toll orders unmatched lists the payment until it is made.")
		}
		return con.built(done)
	})
	f := c.Flags()
	f.BoolVar(&grant, "grant", false, "record the lost order, with its credits")
	f.BoolVar(&refund, "refund", false, "have the card processor give the money back")
	f.StringVar(&in.Note, "settled", "", "it was dealt with by other means, which this text names for the audit log")
	f.StringVar(&plan, "plan", "", "plan that was paid, if the payment does not say it")
	f.StringVar(&subscriber, "subscriber", "", "address that gets the credits, if the payment does not say it")
	c.MarkFlagsOneRequired("grant", "refund", "settled")
	c.MarkFlagsMutuallyExclusive("grant", "refund", "settled")
	c.Long = `Deal with a payment that no order explains, beside a running service or not. ID is that of toll orders unmatched.

--grant records the lost order: the payment must be the price of the plan, and the buyer gets the credits, less what refunds and
disputes took of the payment. --refund has the card processor give back what is left. A builder who was paid on the chain has to pay back: note that with --settled. A repeat changes
nothing. The audit log of the operator has what was done.`
	c.Example = "toll orders resolve pi_3Qx1 --grant\n" +
		"toll orders resolve 0x5b…:12 --grant --plan 123 --subscriber 0x52…\n" +
		"toll orders resolve re_1Qx --settled \"paid back by bank, note 7\""
	return c
}
