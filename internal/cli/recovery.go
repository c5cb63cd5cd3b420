package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/server"
)

func recoveryCommand(con *console) *cobra.Command {
	return group("recovery", "Recovery after a restore", "", recoveryShow(con), recoveryBegin(con), recoveryEnd(con))
}

func recoveryShow(con *console) *cobra.Command {
	c := storeCommand("show", "Show the progress of a recovery", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
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
	c := storeCommand("begin", "Mark a database as restored with other tools", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		backupAt, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return usagef("--backup-time must be a time such as 2026-11-21T03:00:00Z; got %q", at)
		}
		r, err := admin.BeginRecovery(cmd.Context(), cfg, backupAt)
		if err != nil {
			return err
		}
		return con.built(r)
	})
	c.Flags().StringVar(&at, "backup-time", "", "time of the backup, such as 2026-11-21T03:00:00Z")
	if err := c.MarkFlagRequired("backup-time"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Mark a database as restored with other tools, such as pg_restore, before you start the service. toll restore does this automatically.
While the mark is set, the service reads all payments at the card processor and on the chain since the backup, and searches wallets for
payments whose records were lost.`
	c.Example = "toll recovery begin --database postgres://… --backup-time 2026-11-21T03:00:00Z"
	return c
}

func recoveryEnd(con *console) *cobra.Command {
	c := storeCommand("end", "Remove the restore mark of a database", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		if err := admin.EndRecovery(cmd.Context(), cfg); err != nil {
			return err
		}
		con.say("", "The database is no longer marked as restored.")
		return nil
	})
	c.Long = `Remove the restore mark of a database. The command fails until the service has read all payments at the card processor and on the
chain, and every payment without an order is resolved. The error names the next step.`
	c.Example = "toll recovery end --data ./toll-data"
	return c
}

func ordersResolve(con *console) *cobra.Command {
	var in admin.Resolve
	var grant, refund bool
	var plan, subscriber string
	c := storeCommand("resolve ID", "Resolve a payment without an order", func(cmd *cobra.Command, args []string, cfg server.Config) (err error) {
		in.ID, in.How = args[0], admin.Settled
		switch {
		case grant:
			in.How = admin.Granted
		case refund:
			in.How = admin.Refunded
		}
		if plan != "" {
			if in.Plan, err = localPlan(cmd.Context(), con, cfg, plan); err != nil {
				return err
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
			con.say("", "The order is recorded. For a card payment, the service grants the credits after it has checked the payment with the processor.")
		case admin.Refunding:
			con.say("", "The service requests the refund from the card processor. toll orders unmatched lists the payment until the refund is made.")
		}
		return con.built(done)
	})
	f := c.Flags()
	f.BoolVar(&grant, "grant", false, "record the lost order and grant its credits")
	f.BoolVar(&refund, "refund", false, "refund the payment at the card processor")
	f.StringVar(&in.Note, "settled", "", "mark the payment as resolved by other means; the audit log stores this text")
	f.StringVar(&plan, "plan", "", "plan that was paid for, by its id or name, if the payment does not name it")
	f.StringVar(&subscriber, "subscriber", "", "address that receives the credits, if the payment does not name it")
	c.MarkFlagsOneRequired("grant", "refund", "settled")
	c.MarkFlagsMutuallyExclusive("grant", "refund", "settled")
	c.Long = `Resolve a payment without an order, whether the service runs or not. ID is the id from toll orders unmatched.

--grant records the lost order: the payment must match the price of the plan, and the buyer gets the credits, reduced by refunds and
disputes of the payment. --refund refunds the remaining amount at the card processor. Only the builder can return a payment on the chain:
record this with --settled. Running the command again changes nothing. The audit log of the operator records the action.`
	c.Example = "toll orders resolve pi_3Qx1 --grant\ntoll orders resolve 0x5b…:12 --grant --plan 123 --subscriber 0x52…\ntoll orders " +
		"resolve re_1Qx --settled \"paid back by bank, note 7\""
	return c
}

// maxFoundPlans bounds the plans that a name is compared with.
const maxFoundPlans = 100

// localPlan returns the id of a plan in the database, from --plan: its id, the beginning of its id, or its name. The plan may belong to any
// workspace.
func localPlan(ctx context.Context, con *console, cfg server.Config, text string) (toll.PlanID, error) {
	id := strings.TrimSuffix(text, "…")
	if !id256.MatchString(id) {
		plans, err := admin.FindPlans(ctx, cfg, id, maxFoundPlans)
		if err != nil {
			return "", err
		}
		var all []named
		for _, p := range plans {
			all = append(all, named{p.ID, p.Name})
		}
		found := fitting(all, id)
		if id, err = onlyID(found, len(all) == maxFoundPlans, id); err != nil {
			return "", flagError("plan", err)
		}
		if len(found) == 1 {
			con.say("note", "%q is plan %s, %s", text, id, cmp.Or(found[0].name, "without a name"))
		}
	}
	plan, err := toll.ParsePlanID(id)
	if err != nil {
		return "", flagError("plan", err)
	}
	return plan, nil
}
