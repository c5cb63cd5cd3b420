package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// access says who may call a route. Ownership of a single record is checked by its action.
type access string

const (
	open   access = "none"   // answers without a key
	keyed  access = "key"    // any valid API key
	owners access = "owner"  // a key whose address owns the plan or agent, else 403
	self   access = "self"   // the record belongs to the address of the key, else 404
	ends   access = "ends"   // plan owner or subscriber, else 404
	person access = "person" // the session of a person; the operator's key while the workspace has no people
)

// public is the right of a row that nobody needs one for.
const public toll.Right = "public"

// route is one row of the table that drives the router, the decoder, the errors and the OpenAPI document.
type route struct {
	op         string // operation id
	method     string
	path       string
	auth       access
	right      toll.Right // that the API key must have, or [public]
	export     toll.Right // that its export takes as well; "" when it has none, see [exportQuery]
	ownKey     bool       // an API key may do this to itself without the right
	session    bool       // takes the session of a person as well
	anywhere   bool       // a person calls it without naming a workspace
	fresh      bool       // a person has to have proved a credential a short time ago
	ownUser    bool       // a person may do this to themself without the right and the proof
	ownMail    bool       // a member may do this to mails to an address of their own without the right, see [handler.ownMail]
	summary    string
	tag        string
	action     action
	status     int // of a success, 0 = 200
	further    int // another status of an answer in the shape of a success
	query      []query
	codes      []toll.Code // errors beside those that every route may give
	ifMatch    bool        // changes a record with a version, which If-Match may name
	anyVersion bool        // an unusable version header is passed over
	union      union
	unpaid     []toll.Code // errors 402, which say what the route costs; whatever status the codes have elsewhere
	retired    bool
	sandbox    bool // not on live
	unlimited  bool // at any rate
}

func (r *route) success() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

type query struct{ name, description string }

// action is what a route does, with the shapes that the document shows.
type action struct {
	in, out reflect.Type // nil: no body; no JSON
	list    *listShape   // in place of out; nil: not a list
	once    bool         // takes an Idempotency-Key
	secret  bool         // answers with a secret, which a repeat gets only with the same API key and person
	events  bool         // answers text/event-stream
	run     func(c *call) (any, error)
}

// reads makes an action of a function that takes no body.
func reads[Out any](f func(c *call) (Out, error)) action {
	return action{out: reflect.TypeFor[Out](), run: func(c *call) (any, error) { return answer(f(c)) }}
}

// answer returns no answer beside an error.
func answer[Out any](out Out, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}

// byText calls a room with the caller and a part of the path.
func byText[Out any](name string, f func(ctx context.Context, caller toll.Address, id string) (Out, error)) func(c *call) (Out, error) {
	return func(c *call) (Out, error) { return f(c.context, c.caller.Address, c.param(name)) }
}

// ofCaller lists what the caller has.
func ofCaller[T any](f func(ctx context.Context, caller toll.Address, p store.Page) (store.List[T], error)) listOf[T] {
	return func(c *call, p store.Page, _ url.Values) (store.List[T], error) {
		return f(c.context, c.caller.Address, p)
	}
}

// withBody calls a room with the caller and the body.
func withBody[In, Out any](f func(ctx context.Context, caller toll.Address, in *In) (Out, error)) func(c *call, in *In) (Out, error) {
	return func(c *call, in *In) (Out, error) { return f(c.context, c.caller.Address, in) }
}

// takes makes an action of a function that takes a JSON body.
func takes[In, Out any](f func(c *call, in *In) (Out, error)) action {
	return action{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), run: func(c *call) (any, error) {
		in := new(In)
		if err := c.decode(in); err != nil {
			return nil, err
		}
		return answer(f(c, in))
	}}
}

// creates makes an action of a function that creates something. It honours Idempotency-Key: f passes once to the room that
// owns the transaction, which stores the answer with it. once is never nil. Headers that belong to the answer (Deprecation) are
// set before. A repeated call gets what is stored, and f is not run.
func creates[In, Out any](f func(c *call, in *In, once *store.Once) (Out, error)) action {
	return createsLive[In, Out, Out](f, nil)
}

// createsLive is creates for an answer that moves on after it was stored, as that of an order: a Ref of what was created is
// kept, and again tells how it stands.
func createsLive[In, Out, Ref any](
	f func(c *call, in *In, once *store.Once) (Out, error), again func(c *call, earlier Ref) (Out, error),
) action {
	out := reflect.TypeFor[Out]()
	return action{in: reflect.TypeFor[In](), out: out, once: true, secret: holdsSecret(out), run: func(c *call) (any, error) {
		return create(c, f, again)
	}}
}

// readsAs is reads for a function that answers in the shape of Out, but not with one.
func readsAs[Out, Any any](f func(c *call) (Any, error)) action {
	a := reads(f)
	a.out = reflect.TypeFor[Out]()
	return a
}

// listOf reads a page of a list.
type listOf[T any] func(c *call, p store.Page, q url.Values) (store.List[T], error)

// listShape is the answer of a list: records of a type under its member, beside the members of rest. schema is its name in the OpenAPI document.
type listShape struct {
	schema       string
	of           list.List
	record, rest reflect.Type
}

// lists makes an action that answers a page of a list, with [Paging] beside its records.
func lists[T any](schema string, of list.List, f listOf[T]) action {
	return listsBeside(schema, of, func(c *call, p store.Page, q url.Values) (store.List[T], Paging, error) {
		page, err := f(c, p, q)
		return page, pagingOf(p, page), err
	})
}

// listsBeside is lists with other members beside the records.
func listsBeside[T, Rest any](schema string, of list.List, f func(c *call, p store.Page, q url.Values) (store.List[T], Rest, error)) action {
	return action{list: &listShape{schema, of, reflect.TypeFor[T](), reflect.TypeFor[Rest]()}, run: func(c *call) (any, error) {
		base := c.context // c.page sets the deadline of one page
		p, q, err := c.page()
		if err != nil {
			return nil, err
		}
		if c.route.export != "" && q.Has("format") {
			return served{}, export(base, c, of, p, q.Get("format"), func(ctx context.Context, p store.Page) (store.List[T], error) {
				c.context = ctx
				page, _, err := f(c, p, q)
				return page, err
			})
		}
		page, rest, err := f(c, p, q)
		if err != nil {
			return nil, err
		}
		records, err := x402.Encode(page.Items)
		if err != nil {
			return nil, err
		}
		members, err := x402.Encode(rest)
		return encoded(`{"` + of.Member + `":` + string(records) + "," + string(members[1:])), err
	}}
}

// by reads a part of the path for f.
func by[ID, Out any](name string, parse func(string) (ID, error), f func(c *call, id ID) (Out, error)) func(c *call) (Out, error) {
	return func(c *call) (out Out, err error) {
		id, err := parse(c.param(name))
		if err != nil {
			return out, err
		}
		return f(c, id)
	}
}

// maxLarge is how many answers of [large] are made at a time.
const maxLarge = 8

// readsLarge is reads for records of strangers that anybody may read and that can be long. Few such answers are made at a
// time, and each is bytes before the next one takes its turn. A call that waits longer than a body may take is answered 503.
func readsLarge[Out any](f func(c *call) (Out, error)) action { return large(reads(f)) }

func large(a action) action {
	read := a.run
	a.run = func(c *call) (any, error) {
		ctx, cancel := context.WithTimeout(c.context, c.h.BodyTimeout)
		defer cancel()
		select {
		case c.h.large <- struct{}{}:
			defer func() { <-c.h.large }()
		case <-ctx.Done():
			return nil, toll.NewError(toll.CodeUnavailable)
		}
		out, err := read(c)
		if err != nil {
			return nil, err
		}
		body, err := encode(out)
		return encoded(body), err
	}
	return a
}

func page(f func(d *documents, c *call) document) action {
	a := reads(func(c *call) (document, error) { return f(c.h.documents, c), nil })
	a.out = nil
	return a
}

// maxSkipped is how long the body of a refused request may be, in bytes, for the connection to stay open: net/http skips it, which
// costs less than another connection.
const maxSkipped = 4 << 10

// raw makes an action of a function that takes the body byte for byte, of any media type and encoding. before judges the
// head alone: nothing of a request that it refuses is looked at. limit bounds the body, in bytes.
func raw[Out any](limit int64, before func(c *call) error, f func(c *call, body []byte) (Out, error)) action {
	return action{in: reflect.TypeFor[json.RawMessage](), out: reflect.TypeFor[Out](), run: func(c *call) (any, error) {
		err := before(c)
		var body []byte
		switch {
		case err == nil:
			body, err = c.readRaw(limit)
		case c.r.ContentLength < 0 || c.r.ContentLength > maxSkipped:
			c.w.Header()["Connection"] = closing
			_ = http.NewResponseController(c.w).SetReadDeadline(time.Unix(1, 0)) // else net/http waits for the rest of the body
		}
		if err != nil {
			return nil, err
		}
		return f(c, body)
	}}
}

// paging are the parameters of a list that sorts in every way.
var paging = sortedBy(store.SortCreated, store.SortUpdated, store.SortName)

// sortedBy are the parameters of a list that sorts by these words; the first is the default.
func sortedBy(sorts ...store.Sort) []query {
	words := string(sorts[0]) + " (default)"
	for i, s := range sorts[1:] {
		if words += ", "; i == len(sorts)-2 {
			words = strings.TrimSuffix(words, ", ") + " or "
		}
		words += string(s)
	}
	return []query{
		{"page", "Page number, from 1. Defaults to 1."},
		{"pageSize", "Records per page, 1 to 100. Defaults to 10. `limit` and `offset` are other names of this parameter; pageSize takes precedence."},
		{"offset", "Records per page: an older alias of pageSize. It does not skip records."},
		{"limit", "Records per page: an alias of pageSize."},
		{"sortBy", words + "."},
		{"sortOrder", "desc (default) or asc."},
		{"cursor", "nextCursor of an earlier response, to continue in the same order; page is ignored."},
	}
}

func table(d Deps, recent *recentCalls) []route {
	now, limited := clock(d.Service.Clock), bounds{d.Policy.Quotas, d.Service.Clock}
	plans := registry{d.Store, d.Facilitator.Catalogue, d.Vault, limited, now}
	var all []route
	for _, part := range [][]route{
		service{d.Service, d.Auth, d.Rails.Chain, now}.routes(),
		plans.agentRoutes(),
		rehearsals{d.Ledger, d.Service.PublicURL}.routes(),
		plans.planRoutes(balances{d.Store, d.Checkout}),
		changes{d.Store, d.Facilitator.Catalogue, d.Vault, now}.routes(),
		orders{d.Store, d.Checkout, d.Rails.Chain, d.Policy.OrderWait}.routes(cardEvents{d.Rails.StripeEvents}),
		payments{d.Facilitator, d.Service.Namespace, d.Service.Environment.Network()}.routes(),
		sales{d.Facilitator.Purchases, d.Policy.OrderWait}.routes(),
		discovery{d.Auth, d.Facilitator.Catalogue, d.Facilitator.Purchases}.routes(),
		sums{d.Checkout}.routes(),
		requests{d.Facilitator.Requests}.routes(),
		permissions{d.Facilitator.Tokens, limited}.routes(),
		requests{d.Facilitator.Requests}.subTaskRoutes(),
		delegations{d.Checkout, d.Facilitator.Tokens, limited}.routes(),
		keys{d.Auth, limited, now, recent}.routes(),
		searchRoutes(d.Store, recent),
		workspaces{d.Store, d.Auth, d.People, d.Checkout, now}.routes(),
		members{d.Store, d.People}.routes(sessions{d.People}),
		eventLog{d.Events, d.Auth, d.Telemetry.Log}.routes(),
		webhooks{d.Events, d.People}.routes(),
		proofs{d.Rails.Proof}.routes(),
		wallets{d.Auth, d.Rails.Chain, d.Service.Environment, now, d.Telemetry.Log}.routes(),
		sandbox{d.Auth, now, d.Service.TestClock}.routes(),
		retiredRoutes(),
	} {
		all = append(all, part...)
	}
	for i := range all {
		r := &all[i]
		if r.auth == person || r.method == http.MethodGet && r.right == toll.RightRead && r.auth != open && !r.action.events {
			r.session = true
		}
		if r.export != "" {
			r.query = append(slices.Clip(r.query), exportQuery)
			r.codes = append(slices.Clip(r.codes), toll.CodeRateLimited, toll.CodeBadRequest)
			slices.Sort(r.codes)
			r.codes = slices.Compact(r.codes)
		}
		if r.flow() != "" && !slices.Contains(r.codes, toll.CodeRateLimited) {
			r.codes = append(slices.Clip(r.codes), toll.CodeRateLimited)
		}
	}
	return all
}

// closeReads returns the routes of an installation whose records are not public.
func closeReads(routes []route) []route {
	closed := slices.Clone(routes)
	for i := range closed {
		switch closed[i].op {
		case "readPlan", "listAgentsOfPlan", "readAgent", "listPlansOfAgent", "readBalanceOf", "listResources", "searchResources":
			closed[i].auth, closed[i].right = keyed, toll.RightRead
		}
	}
	return closed
}

// retiredRoutes are paths that clients of other services call. Their errors name the replacement.
func retiredRoutes() []route {
	refuses := func(code toll.Code, op, method, path, hint string) route {
		return route{
			op: op, method: method, path: Base + path, auth: open, right: public, tag: "Retired", summary: hint, retired: true, codes: []toll.Code{code},
			action: reads(func(*call) (*struct{}, error) { return nil, toll.NewError(code).WithHint(hint) }),
		}
	}
	gone := func(op, method, path, hint string) route { return refuses(toll.CodeGone, op, method, path, hint) }
	const mpp = "Use x402 payments: POST /api/v1/x402/verify and /settle."
	const settle = "Use POST /api/v1/x402/settle: only settle burns credits."
	const verify = "Use POST /api/v1/x402/verify."
	const permissions = "Use POST /api/v1/x402/permissions to create an access token."
	return []route{
		gone("retiredRedeem", "POST", "/protocol/plans/redeem", settle),
		gone("retiredBurn", "POST", "/protocol/plans/burn", settle),
		gone("retiredInitialize", "POST", "/protocol/agents/initialize/{agentId}", verify),
		gone("retiredToken", "GET", "/protocol/token/{planId}/{agentId}", permissions),
		refuses(toll.CodeMPPOff, "retiredMPP", "POST", "/mpp/{action}", mpp),
		refuses(toll.CodeMPPOff, "retiredMPPOf", "POST", "/mpp/{action}/{id}", mpp),
		gone("retiredValidate", "GET", "/protocol/token/validate/{agentId}", verify),
	}
}
