package api

import (
	_ "embed"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// abouts complete the summaries of operations, by operation id.
var abouts = map[string]string{
	"readInfo":             "Returns the environment, network, contracts, and versions of the service.",
	"verify":               "With `hold` set to true, the credits stay on hold until you settle or release the request or the hold lapses. Concurrent requests cannot spend credits on hold. If the request cannot be paid, the response has status 200, `isValid` false, and a reason, and nothing is stored.",
	"settle":               "Settle when the agent's response is ready, before you send it. Repeating a settle with the same request id returns the first outcome and burns no further credits.",
	"release":              "Release the hold if the request failed. A settled request stays settled.",
	"renew":                "If the agent needs a long time to respond, renew the hold halfway through its life. The credits then stay on hold for `holdSecs` from now, but at most until 24 hours after the hold began. A renewal holds no additional credits and is safe to repeat. A settled, released, or lapsed hold cannot be renewed.",
	"orderPlan":            "An order of a free plan is granted at once. You pay for a crypto plan from your wallet or with a delegation. Status 202 means that the payment is still pending: poll the order.",
	"openCheckout":         "The person pays on the page at `result.checkoutUrl`. The order stays `created` until then: poll it with `orderId`.",
	"openStripePayment":    "An older form of openCheckout with the same effect.",
	"readOrder":            "The status starts as `created` and changes to `confirmed` or `failed`. A confirmed order becomes `final` when its payment can no longer be reversed.",
	"refundOrder":          "The service takes back the unspent credits that the refunded amount bought.",
	"takeBackCredits":      "You can take back only credits that you minted or that came with a free order. For credits of a paid order, refund the order. Both the holder and the owner of the plan receive an event.",
	"mintCredits":          "The credits are free for the receiver. They expire like the credits of an order for the plan.",
	"mintExpirableCredits": "Like mintCredits, but you choose when the credits expire.",
	"createPermission":     "An access token belongs to one plan and limits how much can be spent with it. Send it with each paid request instead of an API key, which agents must not see.",
	"revokePermission":     "Every server process rejects the access token within a second.",
	"createDelegation":     "If a request needs more credits than are available, the service orders the plan again and pays with the delegation, up to the spending limit and until the delegation expires. For a card, send `\"provider\": \"stripe\"`, `\"currency\": \"usd\"` or `\"eur\"`, and the `id` of an active card from `GET /payment-methods` as `providerPaymentMethodId`.",
	"signDelegation":       "A signature is required if the service does not hold the key of the paying account. The delegation stays `Pending` until you submit the signature.",
	"registerPlan":         "A plan sets the price of an order and the credits or the time that an order buys. You cannot change these later.",
	"registerAgent":        "Requests to the endpoints of an agent are paid with credits of its plans.",
	"updatePlan":           "Existing balances do not change.",
	"setPlanListed":        "Credits of an unlisted plan can still be spent.",
	"listUsage":            "New settlements are counted within seconds, and the counts match the ledger. By default, you see the settlements of your plans; with `role=buyer`, you see your own use of any plan.",
	"listRevenue":          "Sums are in base units of each currency and are never added across currencies. Refunds, payments with an open or lost dispute, and payments that the chain reversed are summed separately, in `returned`.",
	"listRefusals":         "Counters are written every ten seconds. Requests that an agent rejects without calling the service are not counted.",
	"listHoldings":         "Includes time plans and credits plans, with available, held, and used credits.",
	"listOrders":           "The newest order comes first by default. The list includes unpaid checkouts (`created`). A refund changes only `refundedCents`, not the status. docs/LISTS.md describes the supported filters and sort orders.",
	"search":               "Returns at most 20 records of each kind; `more` is true if there are more.",
	"createWebhook":        "The signature of a delivery covers its id, timestamp, and body. URLs on private networks are rejected.",
	"listEvents":           "Sequence numbers have no gaps, so a client can detect and fetch missed events.",
	"followEvents":         "While there are no events, the stream sends a heartbeat every 15 seconds. If the connection ends, reconnect with Last-Event-ID.",
	"createKey":            "The new key has at most your rights and expires no later than your own key.",
	"rotateKey":            "Both keys work until the overlap ends.",
	"revokeKey":            "With `keep=true`, everything that the key created stays valid under your own key, provided that your key has the necessary rights.",
	"signUp":               "The person becomes the owner of a new workspace. With an invitation link, they also join the workspace of the invitation.",
	"signIn":               "An unknown login name and a wrong password return the same response in the same time.",
	"acceptInvitation":     "You join the workspace with the role in the invitation. The call fails if the sender of the invitation has left the workspace or is no longer allowed to grant that role.",
	"removeMember":         "With `keep=true`, the member's API keys and consents are transferred to you.",
	"recordSubTask":        "Sub-tasks document the work done for a request.",
	"exportWallet":         "Anyone with the key can move the money of the wallet. The service keeps a copy of the key.",
	"buyPlan":              "The wallet signs a token authorization (EIP-3009). Repeating the same payment returns the first order.",
	"signInToPlan":         "The signature follows EIP-4361. A workspace wallet whose key the service holds cannot sign in.",
	"supported":            "Returns one x402 payment kind for each supported scheme and network.",
	"signOffers":           "A client can use the key in did.json to check that this service made an offer.",
	"readProof":            "The Merkle proof links the burn to a root in a contract on the chain. You can verify the proof without this service.",
	"startSimulation":      "Returns the response of a verify for a simulated request.",
	"advanceClock":         "Holds, access tokens, and plans expire by this clock. The clock never goes back.",
	"useFaucet":            "Only a service with the embedded chain has a faucet.",
	"readReady":            "For load balancers. During a shutdown, the response is 503 before the service closes connections.",
	"readHealth":           "Accesses neither the database nor the chain.",
	"readJWKS":             "Rotated keys stay in this list until everything that they signed has expired.",
	"listAuditLog":         "Each entry contains the hash of the previous entry. `toll audit` checks this chain.",
	"proveSession":         "Managing members and credentials, creating API keys, exporting the wallet, and deleting the workspace require a recent confirmation.",
	"deleteWorkspace":      "The ledger, orders, receipts, and the audit log remain. The call fails while a subscriber has credits of a paid plan, or while an order is pending or disputed. Money stays in the wallet: to move it later, export the key of the wallet first.",
	"setRole":              "Values that you omit do not change. The spending limit applies to the orders that the developer pays from the wallet in a calendar month (UTC). The full amount of each delegation that the developer creates also counts until the delegation ends. A change to another role removes the limit.",
	"readWorkspace":        "Members and API keys with the right to read can call this operation. For any other workspace, the response is 404.",
	"renameWorkspace":      "The name does not have to be unique. Pages show it instead of the address; API calls identify a workspace by its `id`.",
	"listOrganizations":    "Send the `id` of a workspace in `X-Current-Org-Id`.",
}

// accessTexts describe which records an operation can access.
var accessTexts = map[access]string{
	open:   "You can call this operation without an API key.",
	keyed:  "Applies to your workspace.",
	owners: "You must own the plan or the agent; otherwise the response is 403.",
	self:   "The record must belong to your workspace; otherwise the response is 404.",
	ends:   "You must own the plan or be the subscriber; otherwise the response is 404.",
	person: "Requires the session of a person. While a workspace has no people, an API key created by the operator works too.",
}

// description returns the description of an operation: its effect beyond the summary, the required access, and how to repeat it safely.
func (r *route) description() string {
	say := []string{abouts[r.op], accessTexts[r.auth]}
	add := func(when bool, text string) {
		if when {
			say = append(say, text)
		}
	}
	add(r.retired, "This operation is retired and always returns an error that names the replacement.")
	add(r.right == own && r.auth != open, "Requires no right, because the call affects only the person of the session.")
	add(r.right != own && r.right != public, "Requires the right `"+string(r.right)+"`.")
	add(r.ownKey, "An API key can call this operation for itself without that right.")
	add(r.ownUser, "To call this operation for yourself, you need neither that right nor a recent confirmation of your identity.")
	add(r.ownMail, "A member can do this for emails to their own address without that right.")
	add(r.session && r.auth != person, "The session of a person works in place of an API key.")
	add(r.fresh, "A person must have confirmed their identity within the last ten minutes.")
	add(r.action.once, "Send an `Idempotency-Key` to make the call safe to repeat.")
	add(r.ifMatch, "With `If-Match`, the call fails if the record has changed since you read it.")
	add(r.export != "", "`format=csv` or `format=ndjson` returns the whole list as a file.")
	add(r.export != "" && r.export != toll.RightRead, "An export also requires the right `"+string(r.export)+"`.")
	add(r.sandbox, "Available only in a sandbox.")
	return strings.Join(slices.DeleteFunc(say, func(s string) bool { return s == "" }), " ")
}

// exampleFile has one exchange of each operation, as cases of the conformance files made them. The tests of the server write it:
// go test ./internal/server -run TestConformance_Brand -examples.
//
//go:embed examples.json
var exampleFile string

// example is one request and its answer. Words of the brand are placeholders in it.
type example struct {
	From    string          `json:"from"` // file and name of the case; "" for one that no file can make
	Path    string          `json:"path"` // with its query
	Request json.RawMessage `json:"request,omitempty"`
	Status  string          `json:"status"`
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// examplesFor returns the examples in the words of a brand, by operation id.
func examplesFor(ns x402.Namespace) (out map[string]example) {
	text := strings.NewReplacer("{{scheme}}", ns.Scheme, "{{Header}}", ns.Header, "{{header}}", strings.ToLower(ns.Header), "{{word}}", ns.Word).
		Replace(exampleFile)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err) // the file is part of the program
	}
	return out
}

func illustrate(r *route, op *huma.Operation, e example) {
	path, query, _ := strings.Cut(e.Path, "?")
	values := pathValues(r.path, path)
	given, _ := url.ParseQuery(query) // the tests of the file read it as well
	for _, p := range op.Parameters {
		switch {
		case p.In == "path" && values[p.Name] != "":
			p.Example = values[p.Name]
		case p.In == "query" && given.Has(p.Name):
			p.Example = given.Get(p.Name)
		}
	}
	curl := "curl"
	if r.method != "GET" {
		curl += " -X " + r.method
	}
	curl += ` "$TOLL_URL` + e.Path + `"`
	if r.auth != open {
		curl += ` -H "Authorization: Bearer $TOLL_API_KEY"`
	}
	if op.RequestBody != nil && len(e.Request) > 0 {
		curl += " -H 'Content-Type: application/json' -d @request.json"
		op.RequestBody.Content["application/json"].Example = e.Request
	}
	op.Extensions["x-codeSamples"] = []map[string]string{{"lang": "Shell", "source": curl}}
	if res := op.Responses[e.Status]; res != nil && len(e.Answer) > 0 {
		for media, content := range res.Content {
			if len(res.Content) == 1 || media == "application/json" {
				content.Example = e.Answer
			}
		}
	}
}

func pathValues(template, path string) map[string]string {
	out := map[string]string{}
	parts := strings.Split(path, "/")
	for i, part := range strings.Split(template, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok && i < len(parts) {
			out[strings.TrimSuffix(name, "}")] = parts[i]
		}
	}
	return out
}
