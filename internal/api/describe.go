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
	"verify":               "With `hold` set to true, the credits stay on hold until settle, release, or the end of the hold, so that concurrent requests cannot spend them twice. A refusal has status 200, with `isValid` false and a reason; nothing is stored for it.",
	"settle":               "Settle after the agent has its response to the request and before it sends that response. Repeating a settle with the same request id returns the first outcome and burns nothing.",
	"release":              "Release the hold if the request failed. A settled request stays settled.",
	"renew":                "If a response takes long, renew its hold halfway through the life of the hold. The credits then stay on hold for holdSecs from now, but at most 24 hours after the hold began. A renewal takes no credits from other holds and is safe to repeat. A hold that is settled, released, or lapsed cannot be renewed.",
	"orderPlan":            "A free plan is granted at once. A plan that is paid on a chain is paid from your wallet or under a delegation. Status 202 means that the payment is still pending: poll the order.",
	"openCheckout":         "The person pays on the page at `url`. The order is created when the payment is confirmed, once for each page.",
	"openStripePayment":    "An older form of openCheckout with the same effect.",
	"readOrder":            "The status changes from `created` to `confirmed`, and to `final` when the payment can no longer be undone, or to `failed`.",
	"refundOrder":          "Unspent credits that the refunded amount bought are taken back.",
	"takeBackCredits":      "Only credits that were minted by hand or came with a free order can be taken back. For credits of a paid order, refund the order. Both the holder and the owner of the plan receive an event.",
	"mintCredits":          "The credits are free for the receiver. They expire like the credits of an order for the plan.",
	"mintExpirableCredits": "Like mintCredits, but you choose when the credits expire.",
	"createPermission":     "An access token belongs to one plan and limits how much can be spent with it. Send it with each paid request instead of an API key, which agents must not see.",
	"revokePermission":     "Every process rejects the access token within a second.",
	"createDelegation":     "If a request needs more credits than are available, the plan is ordered again under the delegation, up to its limit and until it expires.",
	"signDelegation":       "Required if the service does not hold the key of the account. The delegation is `Pending` until it is signed.",
	"registerPlan":         "A plan has a price, which is paid per order, and the credits or the time that an order buys. Neither can be changed later.",
	"registerAgent":        "An agent has endpoints, whose requests are paid, and plans, whose credits pay for them.",
	"updatePlan":           "Existing balances do not change.",
	"setPlanListed":        "Credits of an unlisted plan can still be spent.",
	"listUsage":            "Counts follow settlements within seconds and match the ledger. As a seller, you see the settlements of your plans; with `role=buyer`, your own use of any plan.",
	"listRevenue":          "Sums are in base units of each currency and are never added across currencies. Returned money is counted separately from paid money.",
	"listRefusals":         "Counters are written every ten seconds. Requests that an agent refuses itself do not reach the service and are not counted.",
	"listHoldings":         "Includes time plans and credits plans, with available, held, and used credits.",
	"listOrders":           "The newest order comes first by default. docs/LISTS.md describes the supported filters and sort orders.",
	"search":               "Returns at most 20 records of each kind; `more` is true if there are more.",
	"createWebhook":        "Deliveries are signed over id, time, and body. URLs on private networks are rejected.",
	"listEvents":           "Sequence numbers have no gaps, so a reader can notice and fetch missed events.",
	"followEvents":         "A quiet stream sends a heartbeat every 15 seconds. If the connection ends, reconnect with Last-Event-ID.",
	"createKey":            "The new key has at most your rights and expires no later than your own key.",
	"rotateKey":            "Both keys work until the overlap ends.",
	"revokeKey":            "With `keep=true`, everything that the key created stays valid under your own key, provided that your key has the necessary rights.",
	"signUp":               "The person becomes the owner of a new workspace. With an invitation link, they also join the workspace of the invitation.",
	"signIn":               "An unknown login name and a wrong password return the same response in the same time.",
	"acceptInvitation":     "The membership gets the role of the invitation. An invitation is refused if its sender has left the workspace or is no longer allowed to grant that role.",
	"removeMember":         "With `keep=true`, their API keys and consents are transferred to you.",
	"recordSubTask":        "Sub-tasks document the work done for a settled request.",
	"exportWallet":         "Anyone with the key can move the money of the wallet. The service keeps its own copy.",
	"buyPlan":              "The wallet signs a token authorization (EIP-3009). Repeating the same payment returns the first order.",
	"signInToPlan":         "The signature follows EIP-4361. Addresses whose key the service holds cannot sign in.",
	"supported":            "Lists the kinds of the x402 standard for each scheme and network.",
	"signOffers":           "A client can use the key in did.json to check that this service made an offer.",
	"readProof":            "The proof leads from the burn to a root in the contract on the chain. It can be checked without this service.",
	"startSimulation":      "Returns the response of a verify for a simulated request.",
	"advanceClock":         "Holds, access tokens, and plans expire by this clock. It never goes back.",
	"useFaucet":            "Only a service with the embedded chain has a faucet.",
	"readReady":            "For load balancers. During a shutdown, it returns 503 before connections are closed.",
	"readHealth":           "Accesses neither the database nor the chain.",
	"readJWKS":             "Rotated keys stay in this list until everything that they signed has expired.",
	"listAuditLog":         "Each entry contains the hash of the previous entry. `toll audit` checks this chain.",
	"proveSession":         "Managing members and credentials, creating API keys, exporting the wallet, and deleting the workspace require a recent confirmation.",
	"deleteWorkspace":      "The ledger, orders, receipts, and the audit log remain. The call is refused while a subscriber has credits of a paid plan, or while an order is pending or disputed. The money of the wallet stays there: export its key first.",
	"setRole":              "Omitted members keep their values. A spending limit counts the orders that the member pays from the wallet in a calendar month (UTC), and the full amount of each delegation that the member creates, until the delegation ends. The limit ends when the member is no longer a developer.",
	"readWorkspace":        "Members and API keys with the right to read can call it. For any other workspace, the response is 404.",
	"renameWorkspace":      "The name does not have to be unique. Pages show it instead of the address; API calls identify a workspace by its `id`.",
	"listOrganizations":    "Send the `id` of a workspace in `X-Current-Org-Id`.",
}

// accessTexts describe which records an operation can access.
var accessTexts = map[access]string{
	open:   "It can be called without an API key.",
	keyed:  "It applies to your workspace.",
	owners: "You must own the plan or the agent; otherwise the response is 403.",
	self:   "The record must belong to your workspace; otherwise the response is 404.",
	ends:   "You must own the plan or be the subscriber; otherwise the response is 404.",
	person: "It requires the session of a person. While a workspace has no people, an API key created by the operator works too.",
}

// description returns the description of an operation: its effect beyond the summary, the required access, and how to repeat it safely.
func (r *route) description() string {
	say := []string{abouts[r.op], accessTexts[r.auth]}
	add := func(when bool, text string) {
		if when {
			say = append(say, text)
		}
	}
	add(r.retired, "It is retired and always returns an error that names its replacement.")
	add(r.right == own && r.auth != open, "It requires no right, because it affects only the person of the session.")
	add(r.right != own && r.right != public, "It requires the right `"+string(r.right)+"`.")
	add(r.ownKey, "An API key can do this to itself without that right.")
	add(r.ownUser, "You can do this to yourself without that right and without a recent confirmation of your identity.")
	add(r.ownMail, "A member can do this for emails to their own address without that right.")
	add(r.session && r.auth != person, "The session of a person works in place of an API key.")
	add(r.fresh, "A person must have confirmed their identity within the last ten minutes.")
	add(r.action.once, "An `Idempotency-Key` makes it safe to repeat.")
	add(r.ifMatch, "With `If-Match`, it changes nothing if the record has changed since you read it.")
	add(r.export != "", "`format=csv` or `format=ndjson` returns the whole list as a file.")
	add(r.export != "" && r.export != toll.RightRead, "An export also requires the right `"+string(r.export)+"`.")
	add(r.sandbox, "It is available only in a sandbox.")
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
