package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/server"
)

const (
	defaultOrderWait = 2 * time.Minute
	orderPoll        = 2 * time.Second // as the service asks for with Retry-After
)

func ordersCommand(a *app) *cobra.Command {
	return group("orders", "Orders of plans", "", ordersList(a), ordersGet(a), ordersRefund(a), ordersEvidence(&a.console), ordersUnmatched(&a.console), ordersResolve(&a.console))
}

// rangeFlags are the flags of lists that filter by time.
var rangeFlags = []flag{
	{"since", "since", moment, "only from this time: a date such as 2026-11-21, an ISO 8601 time, or a duration before now such as 24h or 7d"},
	{"until", "until", moment, "only before this time, in the same formats as --since"},
}

func ordersList(a *app) *cobra.Command {
	return a.resource(call{
		use: "list", short: "List your orders, or the orders for your plans", list: list.Orders,
		other:   "these are the orders that you placed; --role seller lists the orders for your plans",
		example: "toll orders list --role seller --since 7d",
		flags: append([]flag{
			{"role", "role", oneOf("buyer", "seller"), "buyer (default): your orders; seller: orders for your plans"},
			{"plan", "planId", planID, "only orders of this plan"},
			{"subscriber", "subscriber", address, "only orders of this subscriber; requires --role seller and --plan"},
		}, rangeFlags...),
	})
}

func searchCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "search TEXT", short: "Find your records by the beginning of their id or name", path: "/protocol/search",
		long: `Find your records by the beginning of their id or name: plans, agents, orders, API keys, access tokens, delegations, and webhooks.
For orders, enter at least 13 characters of the id. The correlation id of a recent call, except verify and settle, finds the API key that
made the call: toll keys calls ID then shows its outcome.

Every command that takes PLAN, AGENT, ORDER, or another id also accepts at least four characters from the beginning of the id, or the full
name of a plan, an agent, an API key, or a payment method, if only one record matches. You can name your own records, the plans of which you
have or had credits, and their agents.`,
		example: "toll search basic --type plan",
		flags: []flag{
			{"type", "type", oneOf("plan", "agent", "order", "apiKey", "permission", "delegation", "webhook"), "only records of this type"},
		},
		change: func(_ *cobra.Command, r *request) error {
			r.path, r.in["q"] = "/protocol/search", r.args[0]
			return nil
		},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			if at(got, "more") == "true" {
				defer a.say("note", "there are more results; use a longer text to narrow them down")
			}
			return a.showPage(got, list.Local("results", list.State("type"), list.ID("id"), list.Name("name"), list.Time("createdAt")))
		},
	})
}

func subscribersCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "subscribers PLAN", short: "List the subscribers to your plan with their balances", list: list.Subscribers,
		example: "toll subscribers Basic --all -o csv",
	})
}

func holdingsCommand(a *app) *cobra.Command {
	return a.resource(call{
		use: "holdings", short: "List your balance for each plan", list: list.Holdings, example: "toll holdings",
	})
}

func ordersRefund(a *app) *cobra.Command {
	var key string
	c := a.resource(call{
		use: "refund ORDER", short: "Refund a card payment in full or in part",
		long: `Refund a card payment for your plan. The refund takes back the same share of the order's credits as of
its price, but at most the credits that the buyer has not used.

If the service does not answer, the outcome is unknown, and the command prints an idempotency key. Run the same command again with
--idempotency-key, which finds or creates the refund.

Exit code 7: the outcome is unknown, or the card processor has not accepted the refund yet.`,
		example: "toll orders refund 6fa1c0de-0000-4000-8000-000000000000 --amount-cents 250",
		method:  http.MethodPost, path: "/protocol/orders/ORDER/refund",
		flags: []flag{{"amount-cents", "amountCents", digits, "amount to refund, in cents of the order's currency; default the remaining amount"}},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			if err := showOne(&a.console, withWholeAmount(&a.console, got), "orderId", list.OneOrder); err != nil {
				return err
			}
			if at(got, "httpStatus") == "202" {
				a.say("hint", "The refund is being processed. Check it with toll orders get %s.", at(got, "orderId"))
				return printed(exitTryAgain)
			}
			return nil
		},
	})
	c.Flags().StringVar(&key, "idempotency-key", "", "key that identifies this refund if you repeat the command; default a new key")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		key := cmp.Or(key, toll.NewUUID())
		cmd.SetContext(client.WithIdempotencyKey(cmd.Context(), key))
		err := run(cmd, args)
		if isUnknown(err) {
			a.report(err)
			a.say("hint", "It is unknown whether the refund exists. Run the command again with --idempotency-key %s, which finds or creates it.", key)
			return printed(exitTryAgain)
		}
		return err
	}
	return c
}

func ordersEvidence(con *console) *cobra.Command {
	c := storeCommand("evidence ORDER", "Export evidence for a card dispute", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		story, err := admin.Evidence(cmd.Context(), cfg, args[0])
		if err != nil {
			return err
		}
		if con.flags.output == "" && con.getenv("TOLL_OUTPUT") == "" {
			con.set.output = formatJSON // a table would lose most of it
		}
		return con.show(story)
	})
	c.Long = `Export the history of an order that was paid by card, directly from the database, whether the service runs or not: the payment with its
times, refunds, and disputes, the requests answered since then with their receipts, and credits that the builder took back. The default output is JSON.`
	c.Example = "toll orders evidence 6fa1c0de-0000-4000-8000-000000000000 --data ./toll-data > evidence.json"
	return c
}

func ordersUnmatched(con *console) *cobra.Command {
	c := storeCommand("unmatched", "List payments without an order", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		found, err := admin.UnmatchedPayments(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			con.say("note", "every payment that the service has read has an order")
		}
		return con.showPage(found, list.Local("", list.State("rail"), list.ID("id"), list.ID("orderId"), list.ID("planId"), list.ID("subscriber"), list.Money("amount"), list.State("currency"),
			list.Cents("leftCents", "Left"), list.Text("token"), list.ID("receiver"), list.ID("txHash", "TX"), list.Time("seenAt"), list.State("resolution", "State"), list.Text("reason")))
	})
	c.Long = `List payments from the card processor and the chain that have no order in the database, at most 1,000 from each. After a restore,
these are payments for orders made since the backup: let the service run until toll recovery show reports that it has read both, list the
payments, and resolve each of them with toll orders resolve.`
	c.Example = "toll orders unmatched --data ./toll-data -o json"
	return c
}

func ordersGet(a *app) *cobra.Command {
	var wait time.Duration
	c := a.resource(call{
		use: "get ORDER", short: "Show an order and its outcome", path: "/protocol/orders/ORDER",
		long: "Show an order and its outcome. Exit codes: 0 the credits are available, 7 the order is being processed, 4 it failed.",
		show: func(cmd *cobra.Command, got json.RawMessage) error {
			return showOrder(cmd.Context(), a, got, wait)
		},
	})
	waitFlag(c, &wait)
	return c
}

func plansOrder(a *app) *cobra.Command {
	var delegation, key string
	var wait time.Duration
	c := command("order PLAN", "Buy a plan", nil)
	c.Aliases = []string{"order-plan"}
	c.Long = `Buy a plan. The service waits for the credits for a limited time. With --wait, the command keeps checking until the credits are
available, even if the service is temporarily unavailable.

If the service does not answer, the outcome is unknown, and the command prints an idempotency key. Run the same command again with
--idempotency-key, which finds or creates the order. Without the key, you may buy the plan twice.

Exit codes: 0 the credits are available, 7 the order is being processed or its outcome is unknown, 4 it failed.`
	c.Flags().StringVar(&delegation, "delegation-id", "", "delegation that pays for the order")
	c.Flags().StringVar(&key, "idempotency-key", "", "key that identifies this order if you repeat the command; default a new key")
	waitFlag(c, &wait)
	a.completeArgs(c, "")
	a.completeFlag(c, flag{name: "delegation-id", kind: delegationID})
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := a.resolveAll(cmd.Context(), c.Use, "", args); err != nil {
			return err
		}
		if delegation, err = a.resolve(cmd.Context(), references[refDelegation], delegation); err != nil {
			return flagError("delegation-id", err)
		}
		in := body{}
		in.text("delegationId", delegation)
		key := cmp.Or(key, toll.NewUUID())
		ctx, end := client.WithIdempotencyKey(cmd.Context(), key), time.Now().Add(wait)
		for {
			got, err := a.call(ctx, http.MethodPost, segments("protocol", "plans", args[0], "order"), nil, in)
			switch {
			case err == nil:
				return showOrder(cmd.Context(), a, got, time.Until(end))
			case !isUnknown(err):
				return err
			case time.Now().Add(orderPoll).After(end):
				a.report(err)
				a.say("hint", "It is unknown whether the order exists. Run the command again with --idempotency-key %s, which finds or creates it.", key)
				return printed(exitTryAgain)
			}
			if err := a.wait(ctx, orderPoll); err != nil {
				return err
			}
		}
	}
	return c
}

// isUnknown reports whether a call may have worked although no answer of the service came.
func isUnknown(err error) bool {
	e, ok := errors.AsType[*toll.Error](err)
	return ok && e.Code == toll.CodeUnavailable
}

func waitFlag(c *cobra.Command, wait *time.Duration) {
	c.Flags().DurationVar(wait, "wait", 0, "maximum time to wait for the credits, such as --wait=30s; --wait alone waits 2m")
	c.Flags().Lookup("wait").NoOptDefVal = defaultOrderWait.String()
}

// showOrder prints an order, after the decision or the timeout. With --quiet, it prints only the id.
func showOrder(ctx context.Context, a *app, got json.RawMessage, wait time.Duration) error {
	end := time.Now().Add(wait)
	told := ""
	for isPending(got) && time.Now().Before(end) {
		if told == "" {
			a.say("", "Order %s is being processed, waiting up to %s.", at(got, "orderId"), wait)
		}
		told = showProgress(&a.console, got, told)
		if err := a.wait(ctx, min(orderPoll, time.Until(end))); err != nil {
			return err
		}
		next, err := a.call(ctx, http.MethodGet, segments("protocol", "orders", at(got, "orderId")), nil, nil)
		switch {
		case err == nil:
			got = next
		case !isUnknown(err):
			return err
		}
	}
	if told != "" {
		showProgress(&a.console, got, told)
	}
	if err := showOne(&a.console, withWholeAmount(&a.console, got), "orderId", list.OneOrder); err != nil {
		return err
	}
	switch {
	case at(got, "status") == "failed":
		return printed(exitPayment)
	case isPending(got):
		a.say("hint", "To keep waiting, run toll orders get %s --wait.", at(got, "orderId"))
		return printed(exitTryAgain)
	}
	return nil
}

// withWholeAmount has the amount of an order in whole units, when it is for people.
func withWholeAmount(con *console, order json.RawMessage) json.RawMessage {
	members, err := membersOf(order)
	amount, unknown := toll.ParseUnits(at(order, "amount"))
	if con.set.output != formatTable || err != nil || unknown != nil {
		return order
	}
	whole, _ := json.Marshal(amountIn(at(order, "currency"), amount)) // a string always has JSON
	return objectOf(withMember(members, jsonMember{"amount", whole}))
}

// progress tells how far an order is, when that is not what was told before, and returns it.
func showProgress(con *console, order json.RawMessage, told string) string {
	now := at(order, "status")
	if tx := cmp.Or(at(order, "data.transactionUrl"), at(order, "txHash")); tx != "" {
		now += ", transaction " + tx
	}
	if now != told {
		con.say("", "%s", now)
	}
	return now
}

func isPending(order json.RawMessage) bool {
	switch at(order, "status") {
	case "created", "signed", "sent", "included":
		return true
	}
	return false
}

func requestsCommand(a *app) *cobra.Command {
	request := flag{"request-id", "agentRequestId", word, "id of the request"}
	subTasks := a.resource(call{
		use: "list", short: "List the sub-tasks of a request", list: list.SubTasks,
		flags: []flag{request},
	})
	require(subTasks, request.name)
	track := a.resource(call{
		use: "track", short: "Record a sub-task of a request, without burning credits",
		example: "toll requests track --request-id req_01ab --credits 2 --tag translation --status SUCCESS",
		method:  http.MethodPost, path: "/protocol/agent-sub-tasks", made: "subTaskId",
		flags: []flag{
			request,
			{"credits", "creditsToRedeem", digits, "cost of the sub-task in credits; default 0"},
			{"tag", "tag", word, "name of the sub-task"},
			{"description", "description", word, "description of the sub-task"},
			{"status", "status", word.offering("SUCCESS", "FAILED", "PENDING"), "SUCCESS, FAILED, or PENDING (default)"},
			{"metadata", "metadata", object, "data to store with the sub-task, as JSON"},
		},
		require: []string{request.name},
	})
	return group("requests", "Requests of your plans and their sub-tasks", "", requestsHistory(a),
		a.get("get REQUEST", "Show a request with its history and receipt", "/protocol/requests/REQUEST"), track, subTasks)
}

func requestsHistory(a *app) *cobra.Command {
	return a.resource(call{
		use: "history", short: "List requests with their outcome, most recent first",
		other: "these are the requests of your plans; --role buyer lists the requests that you paid for",
		long: `List requests of your plans that were settled or released, or whose hold lapsed, over a range of at most 90 days. With --role
buyer, list requests that you paid for. New settlements appear within seconds.`,
		example: "toll requests history --status lapsed --since 7d\ntoll requests history --plan Basic --status settled --since 2026-11-01 --until 2026-12-01 --all -o csv",
		list:    list.Requests,
		flags: []flag{
			{"role", "role", oneOf("seller", "buyer"), "seller (default): requests of your plans; buyer: requests that you paid for"},
			{"plan", "planId", planID, "only requests of this plan"},
			{"agent", "agentId", agentID, "only requests that name this agent"},
			{"subscriber", "subscriber", address, "only requests of this subscriber; requires --plan"},
			{"status", "status", oneOf("settled", "released", "lapsed", "held"), "only requests with this outcome; held lists open holds"},
			{"since", "since", moment, "only requests that ended at or after this time: a date, a time, or a duration before now such as 7d"},
			{"until", "until", moment, "only requests that ended before this time"},
		},
	})
}
