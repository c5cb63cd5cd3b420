package tokens

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	formatJWT  = x402.RenderingJWT
	formatX402 = x402.RenderingX402

	minTokenSecs     = 1
	maxTokenSecs     = 365 * toll.DaySecs
	defaultTokenSecs = toll.DaySecs

	maxMetadata      = 16 << 10 // bytes
	maxAllowedAgents = 64
	maxResource      = 2048 // characters
)

// PermissionRequest asks for a permission and its access token (wire contract, section 13).
type PermissionRequest struct {
	PlanID          toll.PlanID
	AgentID         toll.AgentID   // "": not bound to one agent
	AllowedAgents   []toll.AgentID // at most 64
	RedemptionLimit *toll.Credits  // nil: no limit
	OrderLimit      *int64         // nil: no limit of its own
	ExpiresInSecs   *int64         // 1 to 365 days; nil: see ExpiresAt
	ExpiresAt       time.Time      // zero: a day from now
	Metadata        json.RawMessage
	Scheme          string // "": that of the plan
	Network         string // "": that of the plan
	Delegation      *DelegationConfig
	TokenFormat     string // "jwt", "x402", or "": the default
	Resource        string // further audience, "" for none
	// Issue is what the authorization server records with the permission; nil: it is not made of a grant.
	Issue  *store.OAuthIssue
	Nested bool // asked in dialect B, whose clients decode base64 JSON
}

// DelegationConfig says what pays when credits are short.
type DelegationConfig struct {
	ID       string     // delegationId, or the signed reference to it; "" with New
	APIKeyID *toll.Hash // that is to use it; nil: the key of the call
	// New makes a delegation on the fly. It works, and is deprecated.
	New *toll.DelegationInput
}

// DelegationBody is delegationConfig: a name of a delegation, or the members that make one.
type DelegationBody struct {
	DelegationID         *string `json:"delegationId"`
	DelegationIDSnake    *string `json:"delegation_id"`
	DelegationToken      *string `json:"delegationToken"`
	DelegationTokenSnake *string `json:"delegation_token"`
	CardID               *string `json:"cardId"`
	CardIDSnake          *string `json:"card_id"`
	toll.DelegationInput
}

// config returns what the body says, nil when it names no delegation and makes none.
func (b *DelegationBody) config(bad func(path, message string)) *DelegationConfig {
	at := func(path, message string) { bad("delegationConfig."+path, message) }
	c := &DelegationConfig{}
	var token, card string
	set(&c.ID, b.DelegationID, "delegationId", at)
	set(&c.ID, b.DelegationIDSnake, "delegation_id", at)
	set(&token, b.DelegationToken, "delegationToken", at)
	set(&token, b.DelegationTokenSnake, "delegation_token", at)
	set(&card, b.CardID, "cardId", at)
	set(&card, b.CardIDSnake, "card_id", at)
	in, faults := b.DelegationInput.Merge()
	for _, f := range faults {
		at(f.Path, f.Message)
	}
	c.APIKeyID = in.APIKeyID
	c.ID = cmp.Or(c.ID, token)
	if c.ID != "" {
		return c
	}
	if card != "" {
		set(&card, in.ProviderPaymentMethodID, "providerPaymentMethodId", at)
		in.ProviderPaymentMethodID = &card
	}
	if in.SpendingLimitCents == nil && in.DurationSecs == nil && in.Currency == nil && in.ProviderPaymentMethodID == nil &&
		in.MaxTransactions == nil && in.PlanID == nil && in.MerchantAccountID == nil {
		return nil
	}
	c.New = &in
	return c
}

// errNoDelegation is the answer to a delegationConfig that names none and makes none.
var errNoDelegation = toll.Errorf(toll.CodePaymentRequired, "delegationConfig does not name a delegation.").
	WithHint("Create a delegation with POST /api/v1/delegation/create and send its delegationId, or omit delegationConfig to spend existing credits only.")

// PermissionBody is the body that creates a permission, with the members of both dialects. Docs are for the OpenAPI document.
type PermissionBody struct {
	PlanID          *toll.PlanID    `json:"planId,omitempty" doc:"Plan of the access token. Required here or in accepted."`
	AgentID         *toll.AgentID   `json:"agentId,omitempty" doc:"Agent to which the access token is limited."`
	AllowedAgents   []toll.AgentID  `json:"allowedAgents,omitempty" maxItems:"64" doc:"Agents to which the access token is limited."`
	RedemptionLimit *toll.Credits   `json:"redemptionLimit,omitempty" doc:"Maximum credits that the access token can burn in total, including holds."`
	MaxCredits      *toll.Credits   `json:"maxCredits,omitempty" doc:"Alias of redemptionLimit."`
	OrderLimit      *toll.Int       `json:"orderLimit,omitempty" doc:"Maximum number of top-up orders of the access token. If the request has a delegation and a redemption limit, and the credits of the plan do not expire, defaults to the number of orders that the redemption limit requires."`
	Expiration      *toll.Int       `json:"expiration,omitempty" doc:"Lifetime in seconds, from 1 second to 365 days. Default: 1 day."`
	ExpiresInSecs   *toll.Int       `json:"expiresInSecs,omitempty" doc:"Alias of expiration."`
	ExpiresAt       *toll.Time      `json:"expiresAt,omitempty" doc:"Expiry time, in place of expiration."`
	Metadata        json.RawMessage `json:"metadata,omitempty" doc:"Object of at most 16 KiB that the service returns but does not interpret."`
	Scheme          *string         `json:"scheme,omitempty" doc:"Must be the scheme of the plan. Defaults to the scheme of the plan."`
	Network         *string         `json:"network,omitempty" doc:"Must be the network of the plan. Defaults to the network of the plan."`
	TokenFormat     *string         `json:"tokenFormat,omitempty" enum:"jwt,x402" doc:"Format of the access token. Default: x402 with accepted, otherwise jwt."`
	Resource        *string         `json:"resource,omitempty" format:"uri" doc:"Resource URL that is added to the audience of the access token."`
	Delegation      *DelegationBody `json:"delegationConfig,omitempty" doc:"Delegation that pays for orders when the balance has too few credits. If omitted or empty, the access token spends only existing credits and free plans. If the delegation cannot pay for the plan, the response has a warning, and requests that need an order are rejected."`
	Accepted        *AcceptedBody   `json:"accepted,omitempty" doc:"The same members, in the nested form of x402 clients."`
}

// AcceptedBody is an entry of a 402, in which the nested dialect names the plan.
type AcceptedBody struct {
	Scheme  *string      `json:"scheme"`
	Network *string      `json:"network"`
	PlanID  *toll.PlanID `json:"planId"`
	Extra   *struct {
		PlanID  *toll.PlanID  `json:"planId"`
		AgentID *toll.AgentID `json:"agentId"`
	} `json:"extra"`
}

// UnmarshalJSON reads both dialects; the members of accepted must not contradict those beside it. All faults are named at once.
func (r *PermissionRequest) UnmarshalJSON(data []byte) error {
	var b PermissionBody
	if err := x402.Decode(data, &b); err != nil {
		return err
	}
	*r = PermissionRequest{
		AllowedAgents: b.AllowedAgents, RedemptionLimit: cmp.Or(b.RedemptionLimit, b.MaxCredits), OrderLimit: (*int64)(b.OrderLimit),
		ExpiresInSecs: (*int64)(cmp.Or(b.Expiration, b.ExpiresInSecs)), Nested: b.Accepted != nil,
	}
	var faults []toll.Fault
	bad := func(path, message string) { faults = append(faults, toll.Fault{Path: path, Message: message}) }
	set(&r.PlanID, b.PlanID, "planId", bad)
	set(&r.AgentID, b.AgentID, "agentId", bad)
	set(&r.Scheme, b.Scheme, "scheme", bad)
	set(&r.Network, b.Network, "network", bad)
	if a := b.Accepted; a != nil {
		set(&r.PlanID, a.PlanID, "accepted.planId", bad)
		set(&r.Scheme, a.Scheme, "accepted.scheme", bad)
		set(&r.Network, a.Network, "accepted.network", bad)
		if a.Extra != nil {
			set(&r.PlanID, a.Extra.PlanID, "accepted.extra.planId", bad)
			set(&r.AgentID, a.Extra.AgentID, "accepted.extra.agentId", bad)
		}
	}
	if r.PlanID == "" {
		bad("planId", "is required")
	}
	if len(r.AllowedAgents) > maxAllowedAgents {
		bad("allowedAgents", "must have at most 64 agents")
	}
	if b.ExpiresAt != nil {
		r.ExpiresAt = b.ExpiresAt.Time
	}
	if isGiven(b.Metadata) {
		if b.Metadata[0] != '{' {
			bad("metadata", "must be an object")
		}
		if len(b.Metadata) > maxMetadata {
			bad("metadata", "must be at most 16 KiB")
		}
		r.Metadata = b.Metadata
	}
	if b.TokenFormat != nil {
		r.TokenFormat = strings.ToLower(*b.TokenFormat)
		if r.TokenFormat != formatJWT && r.TokenFormat != formatX402 {
			bad("tokenFormat", "must be jwt or x402")
		}
	}
	if b.Resource != nil && *b.Resource != "" {
		r.Resource = *b.Resource
		u, err := url.Parse(r.Resource)
		if err != nil || len(r.Resource) > maxResource || u.Scheme == "" || u.Host == "" || u.User != nil || u.Fragment != "" {
			bad("resource", "must be an absolute URL of at most 2048 characters without a user or fragment")
		}
	}
	members := x402.Members(data, isDelegationConfig)
	b.spelledOtherwise(members, bad)
	if b.Delegation != nil {
		r.Delegation = b.Delegation.config(bad)
	}
	if len(faults) > 0 {
		return toll.Faults(faults)
	}
	if b.Delegation != nil && r.Delegation == nil && !emptyDelegation(members) {
		return errNoDelegation
	}
	return nil
}

// emptyDelegation reports whether delegationConfig, in each of its spellings, has no member but null and "": clients that pay with
// existing credits send it so.
func emptyDelegation(members map[string]json.RawMessage) bool {
	for _, config := range members {
		if !isGiven(config) {
			continue
		}
		var given map[string]json.RawMessage
		if err := x402.Decode(config, &given); err != nil {
			return false
		}
		for _, v := range given {
			if isGiven(v) && string(v) != `""` {
				return false
			}
		}
	}
	return true
}

// spelledOtherwise takes delegationConfig in snake case and in other spellings of the same letters.
func (b *PermissionBody) spelledOtherwise(members map[string]json.RawMessage, bad func(path, message string)) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "delegationConfig" || !isGiven(members[name]) {
			continue
		}
		if b.Delegation != nil {
			bad(name, "contradicts the same member elsewhere in the body")
			continue
		}
		b.Delegation = new(DelegationBody)
		if err := x402.Decode(members[name], b.Delegation); err != nil {
			bad("delegationConfig", toll.AsError(err).Text())
		}
	}
}

// isDelegationConfig reports whether a name has the letters of delegationConfig, in any case and with any "_" and "-" between them.
// A body may have 100,000 names, so it allocates nothing.
func isDelegationConfig(name string) bool {
	const letters = "delegationconfig"
	at := 0
	for _, c := range []byte(name) {
		if c == '_' || c == '-' {
			continue
		}
		if at == len(letters) || c|0x20 != letters[at] {
			return false
		}
		at++
	}
	return at == len(letters)
}

// UnknownMembers returns the paths of members that a body has and a request does not, see [x402.UnknownMembers]. Those of
// accepted, an entry of a 402, and of the answer of delegation/create may be passed on as they came.
func (r *PermissionRequest) UnknownMembers(data []byte) []string {
	type delegation struct {
		DelegationBody
		Status    json.RawMessage `json:"status"`
		ExpiresAt json.RawMessage `json:"expiresAt"`
		TypedData json.RawMessage `json:"typedData"`
		Account   json.RawMessage `json:"account"`
	}
	var body struct {
		PermissionBody
		Accepted   json.RawMessage `json:"accepted"`
		Delegation *delegation     `json:"delegationConfig"`
	}
	return slices.DeleteFunc(x402.UnknownMembers(data, &body), isDelegationConfig)
}

func isGiven(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && string(raw) != "null"
}

// set takes a member that may be sent in several places.
func set[T ~string](into *T, v *T, path string, bad func(path, message string)) {
	switch {
	case v == nil || *v == "":
	case *into != "" && *into != *v:
		bad(path, "contradicts the same member elsewhere in the body")
	default:
		*into = *v
	}
}

// end returns when the access token ends, in whole seconds.
func (r *PermissionRequest) end(now time.Time) (time.Time, error) {
	secs := int64(defaultTokenSecs)
	switch {
	case r.ExpiresInSecs != nil:
		secs = *r.ExpiresInSecs
	case !r.ExpiresAt.IsZero():
		secs = r.ExpiresAt.Unix() - now.Unix()
	}
	if secs < minTokenSecs || secs > maxTokenSecs {
		return time.Time{}, toll.Errorf(toll.CodeBadNumber, "The lifetime of an access token must be from 1 second to 365 days.").
			WithParam("path", "expiration")
	}
	return now.Add(time.Duration(secs) * time.Second).UTC(), nil
}
