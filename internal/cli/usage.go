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
		{"by", "by", oneOf(by...), "grouping of the sums; default day"},
		{"plan", "planId", planID, "only this plan"},
	}, rangeFlags...)
}

func usageCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "usage", short: "Show the settled usage of your plans, or your own usage", list: list.Usage,
		other: "this is the usage of your plans; --role buyer shows your own usage",
		long: `Show the settled usage of your plans, or with --role buyer your own usage, summed by hour, day, plan, agent, or subscriber,
in UTC. What a gate sells is also summed by route, by model, and for sellers by upstream. Without --since, the range is the last 30 days, or the last 24 hours with --by hour. New settlements appear within seconds.`,
		example: "toll usage --by hour --since 12h\ntoll usage --by subscriber --plan Basic --all -o csv\ntoll usage --role buyer --by model",
		flags: slices.Concat([]flag{
			{"role", "role", oneOf("seller", "buyer"), "seller (default): your plans; buyer: your own usage"},
			{"agent", "agentId", agentID, "only settlements that name this agent"},
			{"subscriber", "subscriber", address, "only this subscriber; requires --plan"},
		}, sumFlags("hour", "day", "plan", "agent", "subscriber", "upstream", "route", "model")),
	})
}

func revenueCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "revenue", short: "Show the revenue of your plans by currency", list: list.Revenue,
		long: `Show the payments for your plans, summed by currency and by hour, day, or plan, in UTC. RETURNED is the amount that was
returned to buyers: refunds, payments with an open or lost dispute, and payments that the chain reverted. Tables show whole units. JSON
contains base units, and csv contains both.`,
		example: "toll revenue --by plan --since 30d",
		flags:   sumFlags("hour", "day", "plan"),
	})
}

func refusalsCommand(a *app) *cobra.Command {
	flags := append([]flag{
		{"reason", "reason", word, "only this reason"}, {"agent", "agentId", agentID, "only requests that name this agent"},
	}, sumFlags("reason", "hour", "day", "plan", "agent")...)
	flags[2].usage = "grouping of the sums; default reason"
	return a.resource(call{
		use: "refusals", short: "Show how often the service refused to verify or settle a payment for your plans", list: list.Refusals,
		flags: flags, example: "toll refusals --since 24h\ntoll refusals --by hour --reason insufficient_funds",
		long: `Show how often the service refused to verify or settle a payment for your plans, summed by reason, hour, day, plan, or agent.
Counts are written every 10 seconds. Requests that your own server refuses without calling the service are not counted.`,
	})
}

func rollupsCommand(con *console) *cobra.Command {
	rebuild := localCommand("rebuild", "Recompute usage and revenue from the ledger entries",
		func(cmd *cobra.Command, _ []string, cfg server.Config) error {
			if err := admin.Recount(cmd.Context(), cfg); err != nil {
				return err
			}
			con.say("", "Usage and revenue were recomputed.")
			return nil
		})
	rebuild.Long = `Recompute usage and revenue from the ledger entries, while the service runs or is stopped. Until the command ends,
usage and revenue are too low. If the command is interrupted, the service or a second run completes it. toll audit shows
whether you need this command.`
	return group("rollups", "Manage the sums of usage and revenue, for operators", "", rebuild)
}
