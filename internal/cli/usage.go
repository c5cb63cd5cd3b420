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
		{"by", "by", oneOf(by...), "what to sum by, default day"},
		{"plan", "planId", planID, "only this plan"},
	}, rangeFlags...)
}

func usageCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "usage", short: "Show what was settled of your plans, or what you used, summed", list: list.Usage,
		long: `Show what was settled of your plans, or with --role buyer what you used of plans, summed by hour, day, plan, agent or subscriber,
in UTC. Without --since it is the last 30 days, by hour the last 24 hours. Counts follow the settlements within seconds.`,
		example: "toll usage --by hour --since 12h\ntoll usage --by subscriber --plan Basic --all -o csv",
		flags: slices.Concat([]flag{
			{"role", "role", oneOf("seller", "buyer"), "seller (default): of your plans; buyer: what you used"},
			{"agent", "agentId", agentID, "only settlements that name this agent"},
			{"subscriber", "subscriber", address, "only this subscriber; with --plan"},
		}, sumFlags("hour", "day", "plan", "agent", "subscriber")),
	})
}

func revenueCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "revenue", short: "Show what was paid for your plans, summed by currency", list: list.Revenue,
		long: `Show what was paid for orders of your plans, summed by currency and by hour, day or plan, in UTC and in base units. RETURNED is what
went back of it: refunds, payments with a dispute that is open or lost, and payments that the chain undid.`,
		example: "toll revenue --by plan --since 30d",
		flags:   sumFlags("hour", "day", "plan"),
	})
}

func refusalsCommand(a *app) *cobra.Command {
	flags := append([]flag{
		{"reason", "reason", word, "only this reason"}, {"agent", "agentId", agentID, "only requests that name this agent"},
	}, sumFlags("reason", "hour", "day", "plan", "agent")...)
	flags[2].usage = "what to sum by, default reason"
	return a.resource(call{
		use: "refusals", short: "Show how often the service refused to verify or settle for your plans", list: list.Refusals,
		flags: flags, example: "toll refusals --since 24h\ntoll refusals --by hour --reason insufficient_funds",
		long: `Show how often the service refused to verify or settle for your plans, summed by reason, hour, day, plan or agent. Counts are
written every 10 seconds; a service that is killed loses the last ones. What your own server refuses before it asks is not counted.`,
	})
}

func rollupsCommand(con *console) *cobra.Command {
	rebuild := localCommand("rebuild", "Count usage and revenue anew from the entries", "the sums are rebuilt",
		func(cmd *cobra.Command, _ []string, cfg server.Config) error {
			if err := admin.Recount(cmd.Context(), cfg); err != nil {
				return err
			}
			con.say("", "Usage and revenue are counted anew.")
			return nil
		})
	rebuild.Long = `Count usage and revenue anew from the entries, while the service runs or not. Until the command ends, both show less than there is.
A run that was interrupted is resumed by the service, or by the same command. toll audit says whether it is needed.`
	return group("rollups", "Sums of usage and revenue, for operators", "", rebuild)
}
