package cli

import (
	"net/http"

	"github.com/spf13/cobra"
)

var webhookColumns = []column{
	{"ID", "id"}, {"URL", "url"}, {"STATUS", "status"}, {"TYPES", "types"}, {"DESCRIPTION", "description"}, {"CREATED", "createdAt"},
}

func (a *app) webhooksCommand() *cobra.Command {
	deliveries := a.listCommand("deliveries ID", "List what was sent, or shall be", "deliveries", []column{
		{"ID", "id"}, {"EVENT", "eventId"}, {"TYPE", "type"}, {"STATUS", "status"}, {"ATTEMPTS", "attempts"}, {"ANSWER", "lastStatus"},
		{"ERROR", "lastError"}, {"NEXT", "nextAttemptAt"}, {"CREATED", "createdAt"},
	}, func(args []string) string { return segments("webhooks", args[0], "deliveries") }, "status", "status")
	return group("webhooks", "Addresses that events are sent to", "",
		a.webhooksCreate(),
		a.listCommand("list", "List your webhooks", "webhooks", webhookColumns, func([]string) string { return "/webhooks" }, "status", "status"),
		command("get ID", "Show a webhook", func(cmd *cobra.Command, args []string) error {
			return a.get(cmd.Context(), segments("webhooks", args[0]), nil)
		}),
		a.webhooksUpdate(),
		command("delete ID", "Send no more events to an address", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodDelete, segments("webhooks", args[0]), nil)
		}),
		command("test ID", "Send an event for trying", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodPost, segments("webhooks", args[0], "test"), nil)
		}),
		command("rotate ID", "Get a new secret; both are valid for a day", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodPost, segments("webhooks", args[0], "rotate"), nil)
		}),
		deliveries,
		command("resend ID DELIVERY", "Send an event again", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodPost, segments("webhooks", args[0], "deliveries", args[1], "resend"), nil)
		}),
	)
}

func (a *app) webhooksCreate() *cobra.Command {
	var address, description string
	var types []string
	c := command("create", "Send events to an address", nil)
	c.Long = "Send events to an address. The secret that signs them is shown this once."
	c.Example = "toll webhooks create --to https://example.com/toll --types order.paid,settlement.settled"
	c.Flags().StringVar(&address, "to", "", "https url that takes the events")
	c.Flags().StringSliceVar(&types, "types", nil, "types of events, with commas; default all")
	c.Flags().StringVar(&description, "description", "", "what it is for")
	require(c, "to")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in := body{"url": address}
		in.text("description", description)
		if len(types) > 0 {
			in["types"] = types
		}
		return a.make(cmd.Context(), "/webhooks", in, "id")
	}
	return c
}

func (a *app) webhooksUpdate() *cobra.Command {
	var address, status, description string
	var types []string
	c := command("update ID", "Change, pause or continue a webhook", nil)
	c.Flags().StringVar(&address, "to", "", "https url that takes the events")
	c.Flags().StringSliceVar(&types, "types", nil, "types of events, with commas; empty for all")
	c.Flags().StringVar(&status, "status", "", "active or paused")
	c.Flags().StringVar(&description, "description", "", "what it is for")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{}
		in.text("url", address)
		in.text("status", status)
		if cmd.Flags().Changed("description") {
			in["description"] = nil
			in.text("description", description)
		}
		if cmd.Flags().Changed("types") {
			in["types"] = nil
			if len(types) > 0 {
				in["types"] = types
			}
		}
		if len(in) == 0 {
			return usagef("toll webhooks update needs --to, --types, --status or --description")
		}
		return a.send(cmd.Context(), http.MethodPatch, segments("webhooks", args[0]), in)
	}
	return c
}
