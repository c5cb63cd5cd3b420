package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/x402"
)

// documents are the texts that say what the service does. They are made of the route table, the table of codes, and the guides, each when
// it is first requested.
type documents struct {
	openAPI, llms func() rendered
	pages         func() *docPages
}

// rendered is a document as it is, and compressed.
type rendered struct{ plain, gzip []byte }

func newDocuments(routes []route, ns x402.Namespace, service string, look Look) *documents {
	api := sync.OnceValue(func() *huma.OpenAPI { return describe(routes, ns) })
	if look == nil {
		look = plainLook{}
	}
	pages := sync.OnceValue(func() *docPages { return newDocPages(api(), service, look) })
	return &documents{pages: pages, llms: once(func() []byte { return pages().llms() }), openAPI: once(func() []byte {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(api()); err != nil {
			panic(err) // the document has no part that a request could reach
		}
		return text.Bytes()
	})}
}

func (d *documents) openAPIPage(*call) document { return document{jsonType, d.openAPI()} }

const parameterPrefix = "#/components/parameters/"

var parameters = regexp.MustCompile(`\{(\w+)\}`)

// describe makes the OpenAPI document of the routes. It is the same on every installation, but for the brand words.
func describe(routes []route, ns x402.Namespace) *huma.OpenAPI {
	registry := newSchemas()
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Toll", Version: apiversion.Current.String(), License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			Description: "Plans, credits, and payments for agents. Every response has the headers `" + ns.HeaderVersion() + "` and `" + ns.HeaderResolvedFrom() +
				"`. Every error has the schema Error; clients must branch only on `code` (see /docs/errors). Clients must ignore unknown members of responses. The service ignores unknown members of requests, except in a refund, which rejects them.",
		},
		Servers: []*huma.Server{{URL: "/"}},
		Tags:    []*huma.Tag{{Name: "Webhooks", Description: deliveries(ns)}},
		Paths:   map[string]*huma.PathItem{},
	}
	failure := &huma.MediaType{Schema: registry.of(errorType)}
	examples := examplesFor(ns)
	for i := range routes {
		r := &routes[i]
		op := &huma.Operation{
			OperationID: r.op, Summary: r.summary, Description: r.description(), Tags: []string{r.tag}, Deprecated: r.retired,
			Parameters: pathParameters(r), Responses: map[string]*huma.Response{},
		}
		for _, q := range r.query {
			schema := &huma.Schema{Type: huma.TypeString}
			if r.op == "listEvents" && q.name == "type" {
				schema = eventFilter(registry)
			}
			op.Parameters = append(op.Parameters, &huma.Param{Name: q.name, In: "query", Description: q.description, Schema: schema})
		}
		if strings.HasPrefix(r.path, Base) {
			op.Parameters = append(op.Parameters, &huma.Param{Ref: parameterPrefix + "Version"})
		}
		if r.action.once {
			op.Parameters = append(op.Parameters, &huma.Param{Ref: parameterPrefix + "IdempotencyKey"})
		}
		if r.ifMatch {
			op.Parameters = append(op.Parameters, &huma.Param{Ref: parameterPrefix + "IfMatch"})
		}
		op.Security = []map[string][]string{{"apiKey": {}}}
		switch {
		case r.auth == open:
			op.Security = []map[string][]string{}
		case r.auth == person:
			op.Security = []map[string][]string{{"session": {}}}
		case r.session:
			op.Security = append(op.Security, map[string][]string{"session": {}})
		}
		if r.session && r.right != own && !r.anywhere {
			op.Parameters = append(op.Parameters, &huma.Param{Ref: parameterPrefix + "Workspace"})
		}
		op.Extensions = map[string]any{"x-auth": string(r.auth), "x-right": string(r.right)}
		if r.action.in != nil {
			op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: registry.of(r.action.in)}}}
		}
		if !r.retired {
			op.Responses[strconv.Itoa(r.success())] = success(r, registry)
			if r.further != 0 {
				op.Responses[strconv.Itoa(r.further)] = success(r, registry)
				op.Responses[strconv.Itoa(r.further)].Description = http.StatusText(r.further)
			}
		}
		for status, codes := range r.failures() {
			op.Responses[strconv.Itoa(status)] = &huma.Response{
				Description: strings.Join(codes, ", "), Content: map[string]*huma.MediaType{"application/json": failure},
			}
		}
		if len(r.unpaid) > 0 {
			op.Responses["402"].Content = map[string]*huma.MediaType{"application/json": {Schema: registry.of(reflect.TypeFor[PaymentRequiredError]())}}
		}
		illustrate(r, op, examples[r.op])
		addOperation(api, r, op)
	}
	api.Components = &huma.Components{
		Schemas: registry.Registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"apiKey": {Type: "http", Scheme: "bearer", Description: "Authorization: Bearer <API key>, including the prefix of the key."},
			"session": {Type: "http", Scheme: "bearer", Description: "Authorization: Bearer <session token>, as returned by POST /api/v1/session. " +
				"Pages of the service send the session cookie of the browser instead."},
		},
		Parameters: map[string]*huma.Param{
			"IdempotencyKey": {
				Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(maxIdempotencyKey)},
				Description: "Makes the call safe to repeat for 24 hours: repeating the same key and body returns the first response, with the header `Idempotency-Replayed: true`.",
			},
			"IfMatch": {
				Name:   "If-Match",
				In:     "header",
				Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{"3", `"3"`}},
				Description: "The `version` that the record must still have, with or without quotes. Otherwise the call fails with " +
					string(toll.CodeRecordChanged) + " and changes nothing. " +
					"`*` or no header accepts any version.",
			},
			"Workspace": {
				Name: "X-Current-Org-Id", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
				Description: "The workspace of the call: an `id` from GET /api/v1/organizations. Required with the session of a person. With an API key, it is optional and must name the workspace of the key.",
			},
			"Version": {
				Name: ns.HeaderVersion(), In: "header", Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{apiversion.Current.String()}},
				Description: "API version, MAJOR.MINOR. Defaults to the version pinned by the API key, or to " + apiversion.Floor.String() + ".",
			},
		},
	}
	registry.finish()
	return api
}

// deliveries describes the signatures and retries of webhook deliveries. docs/WEBHOOKS.md has the details.
func deliveries(ns x402.Namespace) string {
	return "A delivery is a POST request with an Event as its body. The signature is valid if a value of the header `" + ns.HeaderWebhookSignature() +
		"` equals `v1=` followed by the hexadecimal HMAC-SHA256 of `id.timestamp.body` under the secret of the webhook. The id and the timestamp are the values of the headers `" + ns.HeaderWebhookID() +
		"` and `" + ns.HeaderWebhookTimestamp() + "`; the body is used byte for byte. For 24 hours after a rotation, the signature header has two values, one for each secret. Compare in constant time, and" +
		" reject a timestamp (seconds since 1970) that differs from the current time by more than 5 minutes. A 2xx response within 10 seconds is success. Any other result is retried after 5 s, 30 s," +
		" 2 min, 10 min, then hourly for up to 72 hours. An event is delivered at least once, always with the same `id`; the events of an object are delivered in order." +
		" The headers `webhook-id`, `webhook-timestamp`, and `webhook-signature` contain the same information in the Standard Webhooks format, so Standard Webhooks libraries can verify deliveries." +
		" For details and examples, see `docs/WEBHOOKS.md` in the repository of the service."
}

func success(r *route, registry schemas) *huma.Response {
	res := &huma.Response{Description: "OK"}
	switch {
	case r.action.out != nil || r.action.list != nil:
		schema := registry.answer(r.action)
		if r.action.once {
			registry.addWarnings(schema)
		}
		res.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
		if r.export != "" {
			for _, media := range exportTypes {
				res.Content[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
			}
		}
	case r.action.events:
		registry.of(reflect.TypeFor[toll.Event]())
		res.Content = map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{
			Type: huma.TypeString, Description: "Messages with id, event (the type), and data (an Event as JSON). Lines that begin with a colon are heartbeats.",
		}}}
	case r.path == "/openapi.json":
		res.Content = map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}}}
	default:
		res.Content = map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	return res
}

var keyCodes = []toll.Code{
	toll.CodeNotAuthenticated, toll.CodeBadAuthorization, toll.CodeKeyForeign, toll.CodeKeyMalformed, toll.CodeKeyWrongEnvironment,
}

// failures returns the codes that the route may give, by status. Size, method, overload and faults go without saying.
func (r *route) failures() map[int][]string {
	codes := slices.Clone(r.codes)
	if !r.anyVersion {
		codes = append(codes, toll.CodeVersionUnknown)
	}
	if r.auth != open {
		codes = append(codes, keyCodes...)
		codes = append(codes, toll.CodeWrongWorkspace)
		if r.right != own {
			codes = append(codes, toll.CodeRightMissing)
		}
	}
	if r.auth == person || r.right == toll.RightExport {
		codes = append(codes, toll.CodePersonNeeded)
	}
	if r.fresh {
		codes = append(codes, toll.CodeProofNeeded)
	}
	if r.session {
		codes = append(codes, toll.CodeForbidden)
	}
	if r.action.in != nil {
		codes = append(codes, toll.CodeBadRequest)
	}
	if r.action.once {
		codes = append(codes, toll.CodeIdempotencyMismatch, toll.CodeIdempotencyRunning)
	}
	if r.ifMatch {
		codes = append(codes, toll.CodeBadRequest, toll.CodeRecordChanged)
	}
	out := map[int][]string{}
	add := func(status int, c toll.Code) {
		if !slices.Contains(out[status], string(c)) {
			out[status] = append(out[status], string(c))
			slices.Sort(out[status])
		}
	}
	for _, c := range codes {
		add(c.Info().Status, c)
	}
	for _, c := range r.unpaid {
		add(http.StatusPaymentRequired, c)
	}
	return out
}

func pathParameters(r *route) []*huma.Param {
	var out []*huma.Param
	for _, m := range parameters.FindAllStringSubmatch(r.path, -1) {
		var schema *huma.Schema
		switch m[1] {
		case "planId":
			schema = shape[toll.PlanID]{}.Schema(nil)
		case "agentId":
			schema = shape[toll.AgentID]{}.Schema(nil)
		case "address", "workspace":
			schema = shape[toll.Address]{}.Schema(nil)
		case "hash", "id":
			schema = shape[toll.Hash]{}.Schema(nil)
		case "state":
			schema = &huma.Schema{Type: huma.TypeString, Enum: []any{"true", "false"}}
		case "userId":
			schema = &huma.Schema{Type: huma.TypeString, Description: "Id of a person (a UUID), or `me` for the person of the session."}
		case "orderId", "webhookId", "deliveryId", "sessionId", "credentialId":
			schema = &huma.Schema{Type: huma.TypeString, Format: "uuid"}
		default:
			schema = &huma.Schema{Type: huma.TypeString}
		}
		out = append(out, &huma.Param{Name: m[1], In: "path", Required: true, Schema: schema})
	}
	return out
}

func addOperation(api *huma.OpenAPI, r *route, op *huma.Operation) {
	item := api.Paths[r.path]
	if item == nil {
		item = &huma.PathItem{}
		api.Paths[r.path] = item
	}
	switch r.method {
	case http.MethodGet:
		item.Get = op
	case http.MethodPost:
		item.Post = op
	case http.MethodPut:
		item.Put = op
	case http.MethodPatch:
		item.Patch = op
	case http.MethodDelete:
		item.Delete = op
	}
}
