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
	return group("payouts", "Payouts to builders for card payments",
		`Payouts to builders for plans that were paid by card. All card payments go to the operator's account. These
commands only read and record payouts in the database; they do not move money.`, payoutsList(con), payoutsMark(con))
}

func payoutsList(con *console) *cobra.Command {
	var month string
	c := storeCommand("list", "List the amounts owed for a month, by builder and currency", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		owed, err := admin.Owed(cmd.Context(), cfg, month)
		if err != nil {
			return err
		}
		if len(owed) == 0 {
			con.say("note", "no card payments or payouts in %s", cmp.Or(month, "this month"))
		}
		return con.showPage(owed, list.Local("", list.ID("builder"), list.Text("month"), list.State("currency"), list.Count("orders"), list.Cents("charged"), list.Cents("refunded"),
			list.Cents("disputed"), list.Cents("fees"), list.Cents("paidOut"), list.Cents("due")))
	})
	c.Flags().StringVar(&month, "month", "", "month in UTC, YYYY-MM; default this month")
	c.Long = `List the amounts owed for a month, by builder and currency. Tables show whole units, JSON contains cents, and csv contains both. Each payment, refund, and
dispute counts in the month in which it happened, so that a month does not change after it was paid out. FEES are the fees of the card processor.`
	c.Example = "toll payouts list --month 2026-11 --data ./toll-data -o csv"
	return c
}

func payoutsMark(con *console) *cobra.Command {
	var builder, cents string
	p := rails.Payout{}
	c := storeCommand("mark", "Record a payout to a builder", func(cmd *cobra.Command, _ []string, cfg server.Config) (err error) {
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
			return fmt.Errorf("%w; nothing was recorded: add --yes to record it anyway", err)
		}
		if err != nil {
			return fmt.Errorf("%w; nothing was recorded", err)
		}
		return con.made(made, "payoutId")
	})
	f := c.Flags()
	f.StringVar(&builder, "builder", "", "address of the builder")
	f.StringVar(&p.Month, "month", "", "month of the payout in UTC, YYYY-MM")
	f.StringVar(&p.Currency, "currency", "", "currency as in toll payouts list, such as usd")
	f.StringVar(&cents, "amount-cents", "", "amount paid, in cents; a negative amount corrects earlier records")
	f.StringVar(&p.Note, "note", "", "text that identifies the payout, such as a bank reference")
	f.StringVar(&p.ID, "id", "", "UUID that identifies this payout if you repeat the command; default a new UUID")
	require(c, "builder", "month", "currency", "amount-cents")
	c.Long = `Record a payout to a builder that you made by other means. The command does not move money. An amount above the amount owed needs --yes.

Records cannot be changed. To correct them, record another payout with a negative amount and a --note. The correction can be at most the
amount already recorded for the builder, month, and currency.`
	c.Example = "toll payouts mark --builder 0x… --month 2026-11 --currency usd --amount-cents 1250 --note 'SEPA 4711'\n" +
		"toll payouts mark --builder 0x… --month 2026-11 --currency usd --amount-cents -1250 --note 'SEPA 4711 was typed twice'"
	return c
}
