package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// schemaOf makes a schema, a new one at each call.
type schemaOf func(huma.Registry) *huma.Schema

// shape is a type of the wire that reflection cannot see through. Its schema is that of [shapes].
type shape[T any] struct{}

func (shape[T]) Schema(r huma.Registry) *huma.Schema {
	at := slices.IndexFunc(shapes, func(s shaped) bool { return s.of == reflect.TypeFor[T]() })
	return shapes[at].schema(r)
}

type shaped struct {
	of, as reflect.Type // as is the [shape] of the type
	schema schemaOf
}

func as[T any](schema schemaOf) shaped {
	return shaped{reflect.TypeFor[T](), reflect.TypeFor[shape[T]](), schema}
}

// shapes have what a member may be in a request beyond its schema in their descriptions.
var shapes = []shaped{
	as[toll.Credits](text(`^(0|[1-9][0-9]{0,18})$`, "Credits, 0 to 2^63-1. Requests can also send a JSON integer.")),
	as[toll.Units](text(`^(0|[1-9][0-9]{0,77})$`, "Token base units or seconds, 0 to 2^256-1. Requests can also send a JSON integer.")),
	as[toll.Sum](text(`^(0|[1-9][0-9]*)$`, "A sum of credits or of token base units. It can exceed 2^256-1.")),
	as[toll.Cents](text(`^(0|[1-9][0-9]{0,12})$`, "Cents, up to 10^12. Requests can also send a JSON integer.")),
	as[toll.ExactInt](one(huma.Schema{
		Type: huma.TypeInteger, Description: "An integer of up to 78 digits. Read it without loss of precision.",
	})),
	as[toll.Int](one(huma.Schema{
		Type: huma.TypeInteger, Minimum: new(0.0), Description: "Requests can also send a decimal string.",
	})),
	as[toll.Bool](one(huma.Schema{
		Type: huma.TypeBoolean, Description: `Requests can also send "true" or "false".`,
	})),
	as[toll.PlanID](text(`^[1-9][0-9]{0,77}$`, "Id of a plan: a decimal uint256 above zero.")),
	as[toll.AgentID](text(`^[1-9][0-9]{0,77}$`, "Id of an agent: a decimal uint256 above zero.")),
	as[toll.Address](text(`^0x[0-9a-fA-F]{40}$`, "Address with EIP-55 checksum case. Requests can use any case.")),
	as[toll.Hash](text(`^0x[0-9a-f]{64}$`, "32 bytes in lowercase hexadecimal. Requests can use any case.")),
	as[toll.Time](one(huma.Schema{
		Type: huma.TypeString, Format: "date-time", Description: "ISO 8601. Responses are in UTC with milliseconds.",
	})),
	as[json.RawMessage](one(huma.Schema{})),
	as[toll.RawInput](one(huma.Schema{})),
	as[map[string]any](one(huma.Schema{Type: huma.TypeObject, AdditionalProperties: true})),
	as[toll.LimitInput](oneOf("A string is the access limit; a number is maxOrders.",
		&huma.Schema{Type: huma.TypeString, Enum: store.Mapped(toll.AccessLimits(), func(l string) any { return l })}, &huma.Schema{Type: huma.TypeInteger})),
	as[toll.RedemptionInput](oneOf("Stored without effect, except that fixed and dynamic also set isRedemptionAmountFixed.",
		&huma.Schema{Type: huma.TypeInteger, Enum: []any{0, 1, 2, 4}}, &huma.Schema{Type: huma.TypeString})),
	as[toll.EndpointList](one(huma.Schema{
		Type: huma.TypeArray, Description: `One object per verb, {"POST": "https://..."}. Requests can also send {"verb": "POST", "url": "https://..."}.`,
		Items: &huma.Schema{
			Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString},
			Extensions: map[string]any{"x-property-names": map[string]any{"enum": slices.Concat(toll.Verbs, []string{"verb", "url"})}},
		},
	})),
	as[toll.PlanIDs](func(r huma.Registry) *huma.Schema {
		return oneOf("An array, or one comma-separated string.",
			&huma.Schema{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[toll.PlanID](), true, "")}, &huma.Schema{Type: huma.TypeString})(r)
	}),
	// The type of what is received: a webhook gets its test as well.
	as[toll.EventType](func(r huma.Registry) *huma.Schema {
		return enumeration(r, "EventType", "Type of the event. Later releases can add types. webhook.test occurs only in the test delivery of a webhook.",
			append(toll.EventTypes(), toll.EventWebhookTest))
	}),
	as[toll.OrderFailure](func(r huma.Registry) *huma.Schema {
		return enumeration(r, "OrderFailure", "Why the order failed. Absent unless status is failed. Later releases can add causes.", toll.OrderFailures())
	}),
	as[x402.Margin](one(huma.Schema{
		Type: huma.TypeNumber, Minimum: new(0.0), Maximum: new(10.0), Description: "Percent, with at most 4 decimals.",
	})),
	as[toll.Warning](oneOf(
		"A string or an object. A string is the path of an unknown request member that the service ignored. An object describes another problem, such as a deprecated form.",
		&huma.Schema{Type: huma.TypeString},
		&huma.Schema{
			Type: huma.TypeObject, Required: []string{"code", "message"},
			Properties: map[string]*huma.Schema{"code": {Type: huma.TypeString}, "message": {Type: huma.TypeString}},
		})),
	// The two bodies of verify, settle and release.
	as[x402.VerifyRequest](stockOr[verifyShape]),
	as[x402.SettleRequest](stockOr[settleShape]),
	as[x402.ReleaseRequest](stockOr[releaseShape]),
	as[x402.RenewRequest](func(r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[renewShape](), true, "") }),
}

// one is a schema that stands for itself.
func one(s huma.Schema) schemaOf {
	return func(huma.Registry) *huma.Schema { return new(s) }
}

func text(pattern, description string) schemaOf {
	return one(huma.Schema{Type: huma.TypeString, Pattern: pattern, Description: description})
}

func oneOf(description string, of ...*huma.Schema) schemaOf {
	return one(huma.Schema{OneOf: of, Description: description})
}

// stockOr is the body T or that of standard x402 software.
func stockOr[T any](r huma.Registry) *huma.Schema {
	return oneOf("", r.Schema(reflect.TypeFor[T](), true, ""), r.Schema(reflect.TypeFor[stockShape](), true, ""))(r)
}

// nullable is a member of an update.
type nullable[T any] struct{}

func (nullable[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), true, "")
	s.Nullable = s.Type != ""
	return &s
}

// eventFilter is a type that can be asked for.
func eventFilter(r huma.Registry) *huma.Schema {
	return enumeration(r, "EventFilter", "Type of an event: any type except webhook.test, which is never in a stream. Case does not matter.", toll.EventTypes())
}

// enumeration makes a component, and returns a reference to it.
func enumeration[T ~string](r huma.Registry, name, description string, words []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Description: description}
	for _, w := range words {
		s.Enum = append(s.Enum, string(w))
	}
	r.Map()[name] = s
	return &huma.Schema{Ref: schemaPrefix + name}
}

// stockShape is the body of standard x402 software.
type stockShape struct {
	X402Version         *toll.Int              `json:"x402Version,omitempty" doc:"Must be 2."`
	PaymentPayload      map[string]any         `json:"paymentPayload" doc:"The PaymentPayload of the client, or a string with an access token in any of its forms."`
	PaymentRequirements stockRequirementsShape `json:"paymentRequirements" doc:"The requirements of the server."`
}

// stockRequirementsShape is x402.Requirements, whose members standard software does not all send.
type stockRequirementsShape struct {
	Scheme            string                 `json:"scheme"`
	Network           string                 `json:"network"`
	Amount            string                 `json:"amount,omitempty" doc:"Credits to hold or burn, within the bounds of the plan. Defaults to the maximum of the plan in verify, and to the held amount in settle."`
	Asset             string                 `json:"asset,omitempty"`
	PayTo             string                 `json:"payTo,omitempty"`
	MaxTimeoutSeconds *toll.Int              `json:"maxTimeoutSeconds,omitempty" doc:"Life of the hold in seconds; 15 seconds are added. Defaults to 60, at most 900."`
	PlanID            string                 `json:"planId,omitempty" doc:"Id of the plan. Required, here or in extra."`
	Extra             x402.RequirementsExtra `json:"extra"`
}

type releaseShape struct {
	AgentRequestID string `json:"agentRequestId"`
}

type renewShape struct {
	AgentRequestID string    `json:"agentRequestId" doc:"Id of the request with the open hold."`
	HoldSecs       *toll.Int `json:"holdSecs,omitempty" minimum:"1" maximum:"900" doc:"Life of the hold in seconds from now. Defaults to 60."`
}

// verifyShape and settleShape are the bodies that their decoders take.
type verifyShape struct {
	PaymentRequired x402.PaymentRequired `json:"paymentRequired" doc:"A PaymentRequired object, or a string with its JSON, plain or in base64."`
	AccessToken     string               `json:"x402AccessToken" doc:"The access token in any of its three forms, or a PaymentPayload object."`
	MaxAmount       *toll.Credits        `json:"maxAmount,omitempty" doc:"Credits to check: 0, or at least the minimum of the plan. Defaults to the maximum of the plan."`
	Hold            *toll.Bool           `json:"hold,omitempty" doc:"True to hold the credits."`
	HoldSecs        *toll.Int            `json:"holdSecs,omitempty" minimum:"1" maximum:"900" doc:"Life of the hold in seconds. Defaults to 60."`
	AgentRequestID  string               `json:"agentRequestId,omitempty" minLength:"1" maxLength:"128" doc:"Id of the request, chosen by the caller."`
}

type settleShape struct {
	PaymentRequired x402.PaymentRequired `json:"paymentRequired" doc:"A PaymentRequired object, or a string with its JSON, plain or in base64."`
	AccessToken     string               `json:"x402AccessToken" doc:"The access token in any of its three forms, or a PaymentPayload object."`
	MaxAmount       *toll.Credits        `json:"maxAmount,omitempty" doc:"Maximum number of credits to burn: 0, or at least the minimum of the plan. Defaults to the held amount, else to the maximum of the plan. 0 burns nothing and releases the hold."`
	AgentRequestID  string               `json:"agentRequestId,omitempty" minLength:"1" maxLength:"128" doc:"Idempotency id. Without it, each call is a new request, unless the payload identifies the request."`
	MarginPercent   *x402.Margin         `json:"marginPercent,omitempty" doc:"Instead of maxAmount: burns the credits of the recorded sub-tasks plus this percentage, rounded up. Only for dynamic plans."`
	Batch           *toll.Bool           `json:"batch,omitempty" doc:"Stored, but has no effect."`
	Labels          *toll.UsageLabels    `json:"labels,omitempty" doc:"What the request used, for usage by upstream, route, or model. Each is at most 64 bytes of UTF-8 without control characters. A plan counts at most 100 combinations per day; others count as other."`
}

var errorType = reflect.TypeFor[verdict]()

// aliases maps a type to what its schema is made of, beside [shapes].
func aliases() map[reflect.Type]reflect.Type {
	return map[reflect.Type]reflect.Type{
		reflect.TypeFor[toll.Plan]():  reflect.TypeFor[toll.PlanRecord](),
		reflect.TypeFor[toll.Agent](): reflect.TypeFor[toll.AgentRecord](),

		reflect.TypeFor[toll.Change[string]]():            reflect.TypeFor[nullable[string]](),
		reflect.TypeFor[toll.Change[[]string]]():          reflect.TypeFor[nullable[[]string]](),
		reflect.TypeFor[toll.Change[toll.Int]]():          reflect.TypeFor[nullable[toll.Int]](),
		reflect.TypeFor[toll.Change[toll.Cents]]():        reflect.TypeFor[nullable[toll.Cents]](),
		reflect.TypeFor[toll.Change[toll.Bool]]():         reflect.TypeFor[nullable[toll.Bool]](),
		reflect.TypeFor[toll.Change[toll.Time]]():         reflect.TypeFor[nullable[toll.Time]](),
		reflect.TypeFor[toll.Change[toll.EndpointList]](): reflect.TypeFor[nullable[toll.EndpointList]](),
		reflect.TypeFor[toll.Change[json.RawMessage]]():   reflect.TypeFor[nullable[map[string]any]](),
		reflect.TypeFor[toll.Change[map[string]string]](): reflect.TypeFor[nullable[map[string]string]](),

		reflect.TypeFor[tokens.PermissionRequest](): reflect.TypeFor[tokens.PermissionBody](),
		reflect.TypeFor[tokens.DelegationBody]():    reflect.TypeFor[delegationShape](),
		reflect.TypeFor[tokens.AcceptedBody]():      reflect.TypeFor[acceptedShape](),
	}
}

// schemas makes the schemas of types, as components with one name each.
type schemas struct{ huma.Registry }

const schemaPrefix = "#/components/schemas/"

func newSchemas() schemas {
	names := map[string]string{"verifyShape": "VerifyRequest", "settleShape": "SettleRequest", "stockShape": "StockRequest", "stockRequirementsShape": "StockRequirements", "requirementsShape": "StockRequirements", "releaseShape": "ReleaseRequest", "renewShape": "RenewRequest",
		"PermissionBody": "PermissionRequest",
		"acceptedShape":  "Accepted", "delegationShape": "DelegationConfig", "acceptedExtraShape": "AcceptedExtra", "verdict": "Error", "PlanRecord": "Plan", "AgentRecord": "Agent"}
	r := huma.NewMapRegistry(schemaPrefix, func(t reflect.Type, hint string) string {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if name, ok := names[t.Name()]; ok {
			return name
		}
		return huma.DefaultSchemaNamer(t, hint)
	})
	for _, s := range shapes {
		r.RegisterTypeAlias(s.of, s.as)
	}
	for t, alias := range aliases() {
		r.RegisterTypeAlias(t, alias)
	}
	return schemas{r}
}

func (s schemas) addWarnings(answer *huma.Schema) {
	object := s.Map()[strings.TrimPrefix(answer.Ref, schemaPrefix)]
	object.Properties["warnings"] = &huma.Schema{
		Type: huma.TypeArray, Items: s.of(reflect.TypeFor[toll.Warning]()),
		Description: "Present only if there are warnings. Names at most 16 unknown members.",
	}
}

func (s schemas) of(t reflect.Type) *huma.Schema { return s.Schema(t, true, "") }

func (s schemas) answer(a action) *huma.Schema {
	if a.list == nil {
		return s.of(a.out)
	}
	object := huma.SchemaFromType(s, a.list.rest)
	markNulls(object, a.list.rest)
	object.Properties[a.list.of.Member] = s.of(reflect.SliceOf(a.list.record))
	object.Required = append([]string{a.list.of.Member}, object.Required...)
	s.Map()[a.list.schema] = object
	return &huma.Schema{Ref: schemaPrefix + a.list.schema}
}

// finish corrects the schemas made by reflection. Later releases may add members, and a member without omitempty that is a
// pointer or the list of agents may be null. Names for Go that would clash get an x-go-name, which oapi-codegen reads.
func (s schemas) finish() map[string]*huma.Schema {
	for _, name := range []string{"Webhook", "WebhookSecret", "WebhookInput", "WebhookChange"} {
		s.Map()[name].Properties["types"].Items = eventFilter(s)
	}
	for name, schema := range s.Map() {
		schema.AdditionalProperties = nil
		for member, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
			if camel := camelCase(member); camel != member && schema.Properties[camel] != nil {
				p.Extensions = map[string]any{"x-go-name": strings.ToUpper(camel[:1]) + camel[1:] + "Snake"}
			}
		}
		// oapi-codegen calls the answer of an operation OPERATIONResponse.
		if operation, ok := strings.CutSuffix(name, "Response"); ok {
			schema.Extensions = map[string]any{"x-go-name": operation + "Answer"}
		}
		if t := s.TypeFromRef(schemaPrefix + name); t != nil && t.Kind() == reflect.Struct {
			markNulls(schema, t)
		}
	}
	s.enumerate()
	return s.Map()
}

func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

func markNulls(schema *huma.Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			markNulls(schema, f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := schema.Properties[name]
		switch {
		case p == nil || f.Type.Kind() != reflect.Pointer && f.Type != reflect.TypeFor[toll.AgentIDs]():
			continue
		case strings.Contains(options, "omit"):
			p.Nullable = false
			continue
		}
		if p.Ref != "" {
			schema.Properties[name] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}, Description: p.Description}
		} else if p.Type != "" {
			p.Nullable = true
		}
	}
}
