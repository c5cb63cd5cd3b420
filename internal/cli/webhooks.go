package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/list"
)

func webhooksCommand(a *app) *cobra.Command {
	const path = "/webhooks/ID"
	to := flag{"to", "url", word, "https url that takes the events"}
	status := []flag{{"status", "status", word, "only those with this status"}}
	return group("webhooks", "Addresses that events are sent to", "",
		a.resource(call{
			use: "create", short: "Send events to an address",
			long:    "Send events to an address. The secret that signs them is shown this once.",
			example: "toll webhooks create --to https://example.com/toll --types order.paid,settlement.settled",
			method:  http.MethodPost, path: "/webhooks", made: "id",
			flags: []flag{
				to, {"types", "types", words, "types of events, with commas; default all"},
				{"description", "description", word, "what it is for"},
			},
			require: []string{"to"},
		}),
		a.resource(call{
			use: "list", short: "List your webhooks", list: list.Webhooks, flags: status,
		}),
		a.get("get ID", "Show a webhook", path),
		a.resource(call{
			use: "update ID", short: "Change, pause or continue a webhook",
			method: http.MethodPatch, path: path, oneOf: true,
			flags: []flag{
				to, {"types", "types", cleared(words), "types of events, with commas; empty for all"},
				{"status", "status", word, "active or paused"},
				{"description", "description", cleared(word), "what it is for"},
			},
		}),
		a.act("delete ID", "Send no more events to an address", http.MethodDelete, path),
		a.act("test ID", "Send an event for trying", http.MethodPost, path+"/test"),
		a.act("rotate ID", "Get a new secret; both are valid for a day", http.MethodPost, path+"/rotate"),
		a.resource(call{
			use: "deliveries ID", short: "List what was sent, or shall be",
			list: list.Deliveries, flags: status,
		}),
		a.act("resend ID DELIVERY", "Send an event again", http.MethodPost, path+"/deliveries/DELIVERY/resend"),
	)
}
