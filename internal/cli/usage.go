package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/server"
)

// sumFlags are the flags of sums by time, whose range has a default.
func sumFlags(by ...string) []flag {
	return append([]flag{
		{"by", "by", oneOf(by...), "group sums by; default day"},
		{"plan", "planId", planID, "only this plan"},
	}, rangeFlags...)
}

func usageCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "usage", short: "Show the settled usage of your plans, or your own usage", list: list.Usage,
		long: `Show the settled usage of your plans, or with --role buyer your own usage, summed by hour, day, plan, agent, or subscriber,
in UTC. Without --since, the range is the last 30 days, or the last 24 hours with --by hour. Counts follow settlements within seconds.`,
		example: "toll usage --by hour --since 12h\ntoll usage --by subscriber --plan Basic --all -o csv",
		flags: slices.Concat([]flag{
			{"role", "role", oneOf("seller", "buyer"), "seller (default): your plans; buyer: your own usage"},
			{"agent", "agentId", agentID, "only settlements that name this agent"},
			{"subscriber", "subscriber", address, "only this subscriber; with --plan"},
		}, sumFlags("hour", "day", "plan", "agent", "subscriber")),
	})
}

func revenueCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "revenue", short: "Show the revenue of your plans by currency", list: list.Revenue,
		long: `Show the payments for your plans, summed by currency and by hour, day, or plan, in UTC and in base units. RETURNED is
the part that went back: refunds, payments with an open or lost dispute, and payments that the chain reverted.`,
		example: "toll revenue --by plan --since 30d",
		flags:   sumFlags("hour", "day", "plan"),
	})
}

func refusalsCommand(a *app) *cobra.Command {
	flags := append([]flag{
		{"reason", "reason", word, "only this reason"}, {"agent", "agentId", agentID, "only requests that name this agent"},
	}, sumFlags("reason", "hour", "day", "plan", "agent")...)
	flags[2].usage = "group sums by; default reason"
	return a.resource(call{
		use: "refusals", short: "Show how often the service refused to verify or settle for your plans", list: list.Refusals,
		flags: flags, example: "toll refusals --since 24h\ntoll refusals --by hour --reason insufficient_funds",
		long: `Show how often the service refused to verify or settle for your plans, summed by reason, hour, day, plan, or agent. Counts are
written every 10 seconds. Requests that your own server refuses without calling the service are not counted.`,
	})
}

func rollupsCommand(con *console) *cobra.Command {
	rebuild := localCommand("rebuild", "Recompute usage and revenue from the ledger entries", "usage and revenue are recomputed",
		func(cmd *cobra.Command, _ []string, cfg server.Config) error {
			if err := admin.Recount(cmd.Context(), cfg); err != nil {
				return err
			}
			con.say("", "Usage and revenue were recomputed.")
			return nil
		})
	rebuild.Long = `Recompute usage and revenue from the ledger entries, while the service runs or is stopped. Until the command ends, both show too
little. The service or the same command resumes an interrupted run. toll audit shows whether it is needed.`
	return group("rollups", "Manage the sums of usage and revenue, for operators", "", rebuild)
}
