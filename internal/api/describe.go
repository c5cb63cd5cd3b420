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

// abouts say what the summary of an operation leaves open, by operation id.
var abouts = map[string]string{
	"readInfo":             "Clients read here which environment, network, contracts and rails the service has.",
	"verify":               "With `hold` true the credits are set aside until settle, release or the end of the hold, so that requests at the same time cannot spend them twice. A refusal is an answer 200 with `isValid` false and a reason; nothing is stored for it.",
	"settle":               "The agent settles after it has the answer to the request and before it sends that answer. A repeat with the same request id returns the first outcome and burns nothing.",
	"release":              "The agent releases a hold when the request failed. A request that is settled stays settled.",
	"renew":                "The agent renews the hold of a long answer at half of its life. The credits stay set aside until holdSecs from now, at most for 24 hours since the hold began; no credits of other holds are taken, and a repeat is harmless. A hold that is settled, released or lapsed cannot be renewed.",
	"orderPlan":            "A free plan is granted at once. A plan that is paid on a chain is paid from the wallet of the caller or under a delegation; 202 means that the payment is not decided yet: read the order until it is.",
	"openCheckout":         "The person pays on the page at `url`. The order is made when the payment is confirmed, once for each page.",
	"openStripePayment":    "An older form of openCheckout, with the same effect.",
	"readOrder":            "The state goes from `created` to `confirmed`, and to `final` when nothing can undo the payment, or to `failed`.",
	"refundOrder":          "Credits that the refunded part bought are taken back as far as they are not spent.",
	"takeBackCredits":      "Only credits that were minted by hand or came with a free order are taken. Credits of a paid order leave by a refund. The holder and the owner both get an event.",
	"mintCredits":          "Nobody pays for credits that are granted in this way. They end as an order of the plan would.",
	"mintExpirableCredits": "Like mintCredits, with an end that the caller chooses.",
	"createPermission":     "An access token names one plan and the limits of what may be spent with it. It is sent with each paid request in place of an API key, which no agent must see.",
	"revokePermission":     "It counts in every process within a second.",
	"createDelegation":     "Requests that find too few credits buy the plan again under it, up to the limit and for as long as it lasts.",
	"signDelegation":       "Needed where the service has no key of the account: the delegation is `Pending` until then.",
	"registerPlan":         "A plan has a price, which an order pays, and the credits or the time that an order buys. Neither changes later.",
	"registerAgent":        "An agent has endpoints, for which requests are paid, and plans, of which credits pay them.",
	"updatePlan":           "Existing balances stay as they are.",
	"setPlanListed":        "Balances of an unlisted plan can still be spent.",
	"listUsage":            "Counts follow the settlements within seconds and equal the entries of the ledger. As seller the caller sees settlements of its own plans, with `role=buyer` what it used of any plan.",
	"listRevenue":          "Sums are in base units of each currency, and never added over currencies. What went back is counted beside what was paid.",
	"listRefusals":         "Counters are written every ten seconds. Requests that an agent refuses itself do not reach the service.",
	"listHoldings":         "Time plans and credits alike, with what is available, on hold and used.",
	"listOrders":           "Newest first. Filters and sorting are those that an index serves; docs/LISTS.md names them.",
	"search":               "At most 20 records of each kind; `more` says that there are further ones.",
	"createWebhook":        "Deliveries carry a signature over id, time and body. A url on a private network is refused.",
	"listEvents":           "`after` continues behind a sequence number, so that a reader misses nothing and reads nothing twice.",
	"followEvents":         "A quiet stream has a heartbeat every 15 seconds. The caller reconnects with Last-Event-ID.",
	"createKey":            "The new key has at most the rights of the caller, and ends no later.",
	"rotateKey":            "Both keys work until the overlap is over.",
	"revokeKey":            "With `keep=true` what the key made stays, under the key of the caller, if that has its rights.",
	"signUp":               "The person becomes owner of a new workspace. With the link of an invitation they also join the workspace of it.",
	"signIn":               "An unknown login name and a wrong password get the same answer in the same time.",
	"acceptInvitation":     "The membership has the role of the invitation. An invitation of somebody who has left, or may not give that role any more, is refused.",
	"removeMember":         "With `keep=true` their keys and consents go to the person who removes them.",
	"recordSubTask":        "Sub-tasks show what was done for a settled request, and by whom.",
	"exportWallet":         "Whoever has the key can move the money of the wallet. The service keeps its copy.",
	"buyPlan":              "The wallet signs an authorization of the token (EIP-3009). A repeat of the same payment returns the first order.",
	"signInToPlan":         "The signature is one of EIP-4361. Addresses whose key the service holds cannot sign in.",
	"supported":            "The kinds are those of the x402 standard, for each scheme and network.",
	"signOffers":           "A client can check with the key of did.json that an offer was made by this service.",
	"readProof":            "The proof leads from the burn to a root in the contract on the chain, and can be checked without this service.",
	"startSimulation":      "It says what verify would answer, for a request that nobody makes.",
	"advanceClock":         "Holds, tokens and plans end by this clock. It never goes back.",
	"useFaucet":            "Only a service on its embedded chain has a faucet.",
	"readReady":            "Load balancers ask this. During a shutdown it answers 503 before connections are closed.",
	"readHealth":           "It asks no database and no chain.",
	"readJWKS":             "Keys that were rotated stay here until what they signed has ended.",
	"listAuditLog":         "Each entry holds the hash of the one before it, which `toll audit` checks.",
	"proveSession":         "Deleting, inviting and making keys ask for such a proof.",
	"deleteWorkspace":      "What was recorded stays: the ledger, orders, receipts and the audit log. It is refused while somebody has credits of a plan with a price, and while an order is not decided or disputed. The money of its wallet stays there: export the key before.",
	"setRole":              "What is left out stays. A spending limit counts the orders that the member has the wallet pay in a calendar month (UTC), and each delegation that the member makes, whole until it ends. It ends with the role developer.",
	"readWorkspace":        "Members and API keys with the right to read can call it. Other workspaces get 404.",
	"renameWorkspace":      "The name need not be unique, and pages show it in place of the address. Calls name a workspace by its `id`.",
	"listOrganizations":    "The `id` of a workspace goes into `X-Current-Org-Id`.",
}

// accessTexts say whose records an operation is about.
var accessTexts = map[access]string{
	open:   "Anybody may call it, without a key.",
	keyed:  "It is about the account of the caller.",
	owners: "The caller must own the plan or the agent; others get 403.",
	self:   "The record must belong to the caller; for others it does not exist (404).",
	ends:   "The caller must own the plan or be the subscriber; for others the record does not exist (404).",
	person: "It takes the session of a person. While a workspace has no people, an API key that the operator made stands in for one.",
}

// description says of an operation what it does beyond its summary, who may call it, and what makes a call safe to repeat.
func (r *route) description() string {
	say := []string{abouts[r.op], accessTexts[r.auth]}
	add := func(when bool, text string) {
		if when {
			say = append(say, text)
		}
	}
	add(r.retired, "It is retired: the answer is always an error, which says what takes its place.")
	add(r.right == own && r.auth != open, "It needs no right, because it is about the person alone.")
	add(r.right != own && r.right != public, "It needs the right `"+string(r.right)+"`.")
	add(r.ownKey, "An API key may do this to itself without that right.")
	add(r.ownUser, "A person may do this to themself without the right and the proof.")
	add(r.ownMail, "A member may do this to mails to an address of their own without that right.")
	add(r.session && r.auth != person, "The session of a person may stand in place of an API key.")
	add(r.fresh, "A person must have proved a credential within the last ten minutes.")
	add(r.action.once, "With an `Idempotency-Key` it is safe to repeat.")
	add(r.ifMatch, "With `If-Match` it changes nothing when the record has changed since it was read.")
	add(r.export != "", "`format=csv` or `format=ndjson` returns the whole list as a file.")
	add(r.export != "" && r.export != toll.RightRead, "That takes the right `"+string(r.export)+"` as well.")
	add(r.sandbox, "Only a sandbox has it.")
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
