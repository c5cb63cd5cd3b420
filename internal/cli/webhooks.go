package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/list"
)

func webhooksCommand(a *app) *cobra.Command {
	const path = "/webhooks/ID"
	to := flag{"to", "url", word, "https URL that receives the events"}
	status := []flag{{"status", "status", word, "only this status"}}
	return group("webhooks", "URLs that receive events", "URLs that receive events. To receive events on your machine, use toll listen.",
		a.resource(call{
			use: "create", short: "Create a webhook",
			long:    "Create a webhook, which sends events to a URL. The secret that signs the events is shown only once.",
			example: "toll webhooks create --to https://example.com/toll --types order.paid,settlement.settled",
			method:  http.MethodPost, path: "/webhooks", made: "id",
			flags: []flag{
				to, {"types", "types", words, "event types, separated by commas; default all"},
				{"description", "description", word, "description of the webhook"},
			},
			require: []string{"to"},
		}),
		a.resource(call{
			use: "list", short: "List your webhooks", list: list.Webhooks, flags: status,
		}),
		a.get("get ID", "Show a webhook", path),
		a.resource(call{
			use: "update ID", short: "Change, pause, or resume a webhook",
			method: http.MethodPatch, path: path, oneOf: true,
			flags: []flag{
				to, {"types", "types", cleared(words), "event types, separated by commas; empty for all"},
				{"status", "status", word.offering("active", "paused"), "active or paused"},
				{"description", "description", cleared(word), "description of the webhook"},
			},
		}),
		a.act("delete ID", "Delete a webhook", http.MethodDelete, path),
		a.act("test ID", "Send a test event", http.MethodPost, path+"/test"),
		a.act("rotate ID", "Rotate the signing secret; the old secret stays valid for a day", http.MethodPost, path+"/rotate"),
		a.resource(call{
			use: "deliveries ID", short: "List sent and pending deliveries",
			list: list.Deliveries, flags: status,
		}),
		a.act("resend ID DELIVERY", "Send an event again", http.MethodPost, path+"/deliveries/DELIVERY/resend"),
	)
}
