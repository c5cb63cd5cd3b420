package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
)

func payoutsCommand(con *console) *cobra.Command {
	return group("payouts", "What builders are owed for plans that were paid by card", `What builders are owed for plans that were paid by card. All money of cards is in the operator's account: these
commands work on the database, and move none.`, payoutsList(con), payoutsMark(con))
}

func payoutsList(con *console) *cobra.Command {
	var month string
	c := storeCommand("list", "List what is owed of a month, by builder and currency", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		owed, err := admin.Owed(cmd.Context(), cfg, month)
		if err != nil {
			return err
		}
		if len(owed) == 0 {
			con.say("note", "nothing was paid by card or paid out in %s", cmp.Or(month, "this month"))
		}
		return con.showPage(owed, list.Local("", list.ID("builder"), list.Text("month"), list.State("currency"), list.Count("orders"), list.Cents("charged"), list.Cents("refunded"),
			list.Cents("disputed"), list.Cents("fees"), list.Cents("paidOut"), list.Cents("due")))
	})
	c.Flags().StringVar(&month, "month", "", "YYYY-MM in UTC; default this month")
	c.Long = `List what is owed of a month, by builder and currency: in whole units in a table, in cents in csv and JSON. Each payment, refund and dispute counts in the month in which it
happened, so that a month which was paid does not change. FEES are those of the card processor.`
	c.Example = "toll payouts list --month 2026-11 --data ./toll-data -o csv"
	return c
}

func payoutsMark(con *console) *cobra.Command {
	var builder, cents string
	p := rails.Payout{}
	c := storeCommand("mark", "Record what was paid to a builder by other means", func(cmd *cobra.Command, _ []string, cfg server.Config) (err error) {
		if p.Builder, err = toll.ParseAddress(builder); err != nil {
			return flagError("builder", err)
		}
		amount, negative := strings.CutPrefix(cents, "-")
		if err := p.Cents.UnmarshalJSON([]byte(`"` + amount + `"`)); err != nil {
			return flagError("amount-cents", err)
		}
		if negative {
			p.Cents = -p.Cents
		}
		if p.ID == "" {
			p.ID = toll.NewUUID()
		} else if p.ID, err = toll.ParseUUID(p.ID); err != nil {
			return flagError("id", err)
		}
		p.Currency = strings.ToLower(p.Currency)
		made, err := admin.MarkPayout(cmd.Context(), cfg, p, con.flags.yes)
		if errors.Is(err, rails.ErrNotOwed) {
			return fmt.Errorf("%w; nothing was recorded: --yes records it all the same", err)
		}
		if err != nil {
			return fmt.Errorf("%w; nothing was recorded", err)
		}
		return con.made(made, "payoutId")
	})
	f := c.Flags()
	f.StringVar(&builder, "builder", "", "address of the builder")
	f.StringVar(&p.Month, "month", "", "the month that it is for, YYYY-MM in UTC")
	f.StringVar(&p.Currency, "currency", "", "as toll payouts list shows it, such as usd")
	f.StringVar(&cents, "amount-cents", "", "what was paid, in cents; below 0 it corrects what was recorded")
	f.StringVar(&p.Note, "note", "", "anything to find it again by, such as a bank reference")
	f.StringVar(&p.ID, "id", "", "UUID under which a repeat finds this payout; default a new one")
	require(c, "builder", "month", "currency", "amount-cents")
	c.Long = `Record what was paid to a builder by other means. It moves no money. More than is owed is refused without --yes.

What was recorded stays. A wrong one is corrected by another with a negative amount and a --note, of at most what is recorded
for the builder, month and currency.`
	c.Example = "toll payouts mark --builder 0x… --month 2026-11 --currency usd --amount-cents 1250 --note 'SEPA 4711'\n" +
		"toll payouts mark --builder 0x… --month 2026-11 --currency usd --amount-cents -1250 --note 'SEPA 4711 was typed twice'"
	return c
}
