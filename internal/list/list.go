// Package list describes each list of the API once: its route, the member that holds its records, and the columns that people see.
// The API exports by it, and the command line and the pages render it, each kind of value in its own way.
package list

import (
	"bytes"
	"encoding"
	"encoding/json"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// Kind says what a value is.
type Kind string

// Kinds of columns.
const (
	KindID      Kind = "id"
	KindName    Kind = "name"
	KindText    Kind = "text"
	KindState   Kind = "state"
	KindFlag    Kind = "flag"
	KindCredits Kind = "credits"
	KindMoney   Kind = "money"
	KindCents   Kind = "cents"
	KindCount   Kind = "count"
	KindMicros  Kind = "micros"
	KindTime    Kind = "time"
)

// Column is a value of each record: the member that holds it, dotted from the record, and the title for people.
type Column struct {
	Kind        Kind
	Path, Title string
}

// List describes a list.
type List struct {
	Path    string       // of its route below the base of the API, "" when no route has it
	Member  string       // of the answer, that holds the records; "" when the answer is the records
	Record  reflect.Type // as on the wire; nil without a route
	Columns []Column
}

// All are the lists of the API.
var All []List

// Of describes the list of a route whose records are T.
func Of[T any](path, member string, columns ...Column) List {
	l := List{path, member, reflect.TypeFor[T](), columns}
	All = append(All, l)
	return l
}

// Local describes records that no route lists.
func Local(member string, columns ...Column) List { return List{Member: member, Columns: columns} }

// At describes another list of the same records.
func (l List) At(path string) List {
	l.Path = path
	All = append(All, l)
	return l
}

// And returns the list with columns that a page fills, or of members that the description leaves out.
func (l List) And(columns ...Column) List {
	l.Columns = slices.Concat(l.Columns, columns)
	return l
}

// Show returns the list with the columns of these paths, in their order.
func (l List) Show(paths ...string) List {
	all := l.Columns
	l.Columns = make([]Column, len(paths))
	for i, path := range paths {
		l.Columns[i] = all[slices.IndexFunc(all, func(c Column) bool { return c.Path == path })]
	}
	return l
}

// Record has the members of a record in JSON.
type Record map[string]json.RawMessage

// At returns a member, dotted from the record, and nil when the record has none.
func (r Record) At(path string) json.RawMessage {
	name, rest, isInner := strings.Cut(path, ".")
	if !isInner {
		return r[name]
	}
	var members Record
	if json.Unmarshal(r[name], &members) != nil {
		return nil
	}
	return members.At(rest)
}

// TextOf returns a value for people: strings without quotes, null as nothing, and other values as compact JSON.
func TextOf(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	var s *string
	if json.Unmarshal(value, &s) == nil {
		if s == nil {
			return ""
		}
		return *s
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

var parameter = regexp.MustCompile(`\{\w+\}`)

// Under returns the list with values in place of the parameters of its route, in their order.
func (l List) Under(values ...string) List {
	l.Path = parameter.ReplaceAllStringFunc(l.Path, func(string) (value string) {
		value, values = url.PathEscape(values[0]), values[1:]
		return value
	})
	return l
}

// column makes the columns of a kind. Without a title, the last member of the path is the title.
func column(k Kind) func(path string, title ...string) Column {
	return func(path string, title ...string) Column {
		if len(title) > 0 {
			return Column{k, path, title[0]}
		}
		return Column{k, path, titleOf(path)}
	}
}

var camel = regexp.MustCompile(`[A-Z][a-z]*`)

// titleOf returns a member as a title: createdAt is Created, isListed is Listed, agentId is Agent, lastUsedAt is Last used.
func titleOf(path string) string {
	member := path[strings.LastIndexByte(path, '.')+1:]
	if member == "id" {
		return "ID"
	}
	for _, suffix := range []string{"Id", "At", "Address", "Hash"} {
		member = strings.TrimSuffix(member, suffix)
	}
	member = camel.ReplaceAllStringFunc(strings.TrimPrefix(member, "is"), func(word string) string { return " " + strings.ToLower(word) })
	member = strings.TrimSpace(member)
	return strings.ToUpper(member[:1]) + member[1:]
}

// Columns. Money is in base units of the currency of its record, Cents are shown in whole units, Micros as a time with its unit, and State is
// one of a few words.
var (
	ID      = column(KindID)
	Name    = column(KindName)
	Text    = column(KindText)
	State   = column(KindState)
	Flag    = column(KindFlag)
	Credits = column(KindCredits)
	Money   = column(KindMoney)
	Cents   = column(KindCents)
	Count   = column(KindCount)
	Micros  = column(KindMicros)
	Time    = column(KindTime)
)

// Lists of the API.
var (
	Agents                 = Of[toll.Agent]("/protocol/agents", "agents", ID("agentId", "ID"), Name("name"), Flag("isListed"), Time("metadata.main.dateCreated", "Created"))
	Plans                  = Of[toll.Plan]("/protocol/plans", "plans", ID("planId", "ID"), Name("name"), State("accessLimit", "Limit"), Money("metadata.main.price"), State("metadata.plan.currency"), Credits("registry.credits.amount", "Credits"), Flag("isListed"))
	AgentsOfPlan           = Agents.At("/protocol/plans/{planId}/agents")
	PlansOfAgent           = Plans.At("/protocol/agents/{agentId}/plans")
	Orders                 = Of[toll.Order]("/protocol/orders", "orders", ID("orderId"), State("status"), ID("planId"), ID("subscriberAddress"), Credits("creditsGranted", "Credits"), Money("amount"), State("currency"), Time("createdAt"))
	Subscribers            = Of[toll.Balance]("/protocol/plans/{planId}/subscribers", "subscribers", ID("holderAddress", "Subscriber"), Credits("balance"), Credits("held"), Credits("used"), Flag("isSubscriber", "Subscribed"), Time("expiresAt", "Expires"))
	Holdings               = Of[toll.Balance]("/protocol/holdings", "holdings", ID("planId"), Name("planName", "Name"), Credits("balance"), Credits("held"), Credits("used"), Flag("isSubscriber", "Subscribed"), Time("expiresAt", "Expires"))
	Requests               = Of[toll.Settlement]("/protocol/requests", "requests", ID("agentRequestId", "Request"), State("status"), ID("planId"), ID("agentId"), ID("payer", "Subscriber"), Credits("creditsRedeemed", "Credits"), Credits("heldAmount", "Held"), Time("endedAt"))
	SubTasks               = Of[toll.SubTask]("/protocol/agent-sub-tasks", "subTasks", ID("subTaskId", "ID"), Text("tag"), State("status"), Credits("creditsToRedeem", "Credits"), Text("description"), Time("createdAt"))
	Usage                  = Of[toll.Usage]("/protocol/usage", "usage", Time("start"), ID("planId"), ID("agentId"), ID("subscriberAddress"), Text("upstream"), Text("route"), Text("model"), Count("settled", "Requests"), Credits("credits"), Time("lastSettledAt", "Last settled"))
	Revenue                = Of[toll.Revenue]("/protocol/revenue", "revenue", Time("start"), ID("planId"), State("currency"), Count("orders"), Money("amount"), Money("returned"))
	Refusals               = Of[toll.Refusals]("/protocol/refusals", "refusals", State("reason"), Time("start"), ID("planId"), ID("agentId"), Count("refused"))
	Permissions            = Of[toll.Permission]("/x402/permissions", "permissions", ID("permissionHash", "Token"), ID("planId"), State("status"), Credits("usedCredits", "Used"), Credits("maxCredits", "Limit"), Time("expiresAt"))
	Delegations            = Of[toll.Delegation]("/delegation", "delegations", ID("delegationId"), State("provider", "Pays from"), State("status"), Cents("spendingLimitCents", "Limit"), Cents("amountSpentCents", "Spent"), Cents("remainingBudgetCents", "Left"), State("currency"), Time("expiresAt"), ID("providerPaymentMethodId", "Paid by"))
	DelegationTransactions = Of[toll.DelegationTransaction]("/delegation/{delegationId}/transactions", "transactions", ID("id"), Cents("amountCents", "Amount"), State("currency"), State("status"), ID("orderId"), Time("createdAt"))
	PaymentMethods         = Of[toll.PaymentMethod]("/payment-methods", "", ID("id"), State("type"), State("brand"), Text("last4", "Last 4"), Name("alias", "Name"), State("provider"), State("status"))
	Events                 = Of[toll.Event]("/events", "events", Count("sequence"), State("type"), State("object.kind"), ID("object.id", "Object"), Time("createdAt"), ID("id"))
	Webhooks               = Of[toll.Webhook]("/webhooks", "webhooks", ID("id"), Text("url", "URL"), State("status"), Text("types", "Events"), Text("description"), Time("createdAt"))
	Deliveries             = Of[toll.WebhookDelivery]("/webhooks/{webhookId}/deliveries", "deliveries", ID("id"), ID("eventId"), State("type"), State("status"), Count("attempts"), Text("lastStatus", "Response"), Text("lastError", "Error"), Time("nextAttemptAt", "Next attempt"), Time("createdAt"))
	Keys                   = Of[toll.APIKey]("/api-keys", "apiKeys", ID("id"), Name("name"), Text("prefix", "Key"), Text("tail"), Text("version"), State("status"), State("madeBy"), Text("rights"), Time("lastUsedAt"), Time("expiresAt"))
	RecentCalls            = Of[toll.RecentCall]("/api-keys/{id}/calls", "calls", Time("at", "Time"), State("operation"), State("status"), State("code"), Micros("durationMicros", "Duration"), ID("correlationId", "Correlation ID"))
	Organizations          = Of[toll.Organization]("/organizations", "organizations", ID("id"), Name("name"), State("role"))
	Sessions               = Of[toll.Session]("/sessions", "sessions", ID("id"), Name("agent", "Browser or app"), Time("since", "Signed in"), Time("usedAt", "Last used"), Time("endsAt", "Expires"), Flag("current"))
	MemberSessions         = Sessions.At("/members/{userId}/sessions")
	Credentials            = Of[toll.Credential]("/credentials", "credentials", ID("id"), State("kind"), Name("name"), Time("createdAt"), Time("usedAt", "Last used"))
	Members                = Of[toll.Member]("/members", "members", ID("userId"), Name("name"), State("role"), Cents("spentCents", "Spent"), Cents("spendLimitCents", "Limit"), Time("since", "Member since"))
	Invitations            = Of[toll.Invitation]("/invitations", "invitations", ID("id"), State("role"), Text("note"), Time("createdAt"), Time("endsAt", "Expires"))
	AuditLog               = Of[toll.Act]("/audit-log", "acts", Count("number"), Time("at", "Time"), State("actorKind", "Kind"), ID("actor", "By"), State("act", "Action"), ID("object"), ID("source", "From"))
)

// Members returns all members of a record in the order of its type, for a file of a list. A value that writes its own JSON, and a list
// or map without fixed members, is one of them.
func (l List) Members() []string {
	record := l.Record
	if m, ok := reflect.PointerTo(record).MethodByName("Record"); ok && m.Type.NumIn() == 1 && m.Type.NumOut() == 1 {
		record = m.Type.Out(0) // plans and agents make theirs
	}
	return MembersOf(record, "")
}

// MembersOf returns the members of a type, each after the prefix.
func MembersOf(t reflect.Type, prefix string) (members []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			members = append(members, MembersOf(inner, prefix)...)
		case inner.Kind() == reflect.Struct && !reflect.PointerTo(inner).Implements(reflect.TypeFor[json.Marshaler]()) &&
			!reflect.PointerTo(inner).Implements(asText):
			members = append(members, MembersOf(inner, prefix+name+".")...)
		default:
			members = append(members, prefix+name)
		}
	}
	return members
}

var asText = reflect.TypeFor[encoding.TextMarshaler]()
