package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// Config is the configuration that an operator sets in the file or environment of the core, or in the plugin (JSON names as on
// the wire). A zero field is unset. Precedence: login, plugin, environment and file of the core, defaults. A plugin
// cannot allow more than the core, see [Config.within].
type Config struct {
	// APIKey is a short key, "<prefix>:<jwt>", or a bare JWT. [x402.Namespace.ConfigAPIKey] is its second name on the wire.
	APIKey string `json:"apiKey,omitempty"`
	// Environment is sandbox or live, default sandbox. The prefix of APIKey takes precedence.
	Environment toll.Environment `json:"environment,omitempty"`
	// PlanID and AgentID are the defaults of the tools, the prompt context, and the paid endpoint.
	PlanID  toll.PlanID  `json:"planId,omitempty"`
	AgentID toll.AgentID `json:"agentId,omitempty"`
	// CreditsPerRequest is the price of the paid endpoint in credits, at least 1, default 1.
	CreditsPerRequest toll.Credits `json:"creditsPerRequest,omitzero"`

	EnablePaidEndpoint *bool  `json:"enablePaidEndpoint,omitempty"` // default false
	AgentEndpointPath  string `json:"agentEndpointPath,omitempty"`  // default "/" + word + "/agent"
	// PublicURL is the public address of the paid endpoint, without its path.
	PublicURL string `json:"publicUrl,omitempty"`
	// BaseURL is the address of the service. The default depends on the environment.
	BaseURL string `json:"baseUrl,omitempty"`

	// PaymentType is "crypto" (default) or "fiat". It has no effect: the plan determines how it is paid.
	PaymentType     string `json:"paymentType,omitempty"`
	PaymentMethodID string `json:"paymentMethodId,omitempty"`

	DefaultSpendingLimitCents     *toll.Cents `json:"defaultSpendingLimitCents,omitempty"`     // default 1000; proposed to the user
	DefaultDelegationDurationSecs *int64      `json:"defaultDelegationDurationSecs,omitempty"` // default 3600
	MaxSpendingLimitCents         *toll.Cents `json:"maxSpendingLimitCents,omitempty"`         // default 1000
	MaxOrderCents                 *toll.Cents `json:"maxOrderCents,omitempty"`                 // default 0: no limit

	OwnerOnlySpending  *bool  `json:"ownerOnlySpending,omitempty"`  // default true
	SpendApproval      string `json:"spendApproval,omitempty"`      // "confirm" (default) or "host"
	AllowKeyPaste      *bool  `json:"allowKeyPaste,omitempty"`      // default true
	AllowPrivateAgents *bool  `json:"allowPrivateAgents,omitempty"` // default true on sandbox, false on live

	AgentHandler *HandlerConfig `json:"agentHandler,omitempty"` // default: demo on sandbox, unset on live

	// Settings of the plugin, which the core only validates.
	CoreURL       string `json:"coreUrl,omitempty"`
	CoreTokenFile string `json:"coreTokenFile,omitempty"`
	StartCore     *bool  `json:"startCore,omitempty"`
	CoreBinary    string `json:"coreBinary,omitempty"`
}

// Values of [HandlerConfig.Kind].
const (
	HandlerDemo = "demo"
	HandlerHTTP = "http"
	HandlerHost = "host"
)

// HandlerConfig selects the handler of paid requests.
type HandlerConfig struct {
	Kind  string `json:"kind"`            // "demo", "http" or "host"
	URL   string `json:"url,omitempty"`   // for "http"; for "host" the base address of its chat completions API
	Agent string `json:"agent,omitempty"` // for "host": the name of an agent without tools
	// Token is the bearer token for "host". Headers are sent with each request for "http".
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// PaidRequest is a verified request to the paid endpoint.
type PaidRequest struct {
	Prompt         string       `json:"prompt"`
	AgentRequestID string       `json:"agentRequestId"`
	PlanID         toll.PlanID  `json:"planId"`
	Subscriber     toll.Address `json:"subscriber"`
}

// settings is a validated Config with its defaults applied. It is immutable.
type settings struct {
	Config
	paidEndpoint, ownerOnly, keyPaste, privateAgents bool
	handler                                          HandlerConfig // Kind is "" without a handler
	proposedLimit, maxLimit, maxOrder                toll.Cents
	delegationSecs                                   int64
}

// ParseConfig parses a Config. An unknown, repeated, or ill-typed member is an error that names it. The API key can have either
// of its two names, but not both.
func ParseConfig(raw []byte, names x402.Namespace) (c Config, err error) {
	members := map[string]json.RawMessage{}
	if err := x402.Decode(raw, &members); err != nil {
		return c, fieldError(err)
	}
	if second := names.ConfigAPIKey(); members[second] != nil {
		if members["apiKey"] != nil {
			return c, invalid(second, "is another name for apiKey: set only one of them")
		}
		members["apiKey"] = members[second]
		delete(members, second)
	}
	if raw, err = x402.Encode(members); err != nil {
		return c, err
	}
	if err := x402.Decode(raw, &c); err != nil {
		return c, fieldError(err)
	}
	if unknown := x402.UnknownMembers(raw, &c); unknown != nil {
		return c, invalid(unknown[0], "is not a configuration field")
	}
	if members["creditsPerRequest"] != nil && c.CreditsPerRequest < 1 {
		return c, invalid("creditsPerRequest", "must be at least 1")
	}
	return c, nil
}

// fieldError returns an [InvalidParams] error that names the field that does not decode, without its value, which may be a key.
func fieldError(err error) error {
	e := toll.AsError(err)
	if faults, _ := e.Params["errors"].([]toll.Fault); len(faults) > 0 && faults[0].Path != "" {
		return invalid(faults[0].Path, "%s", fieldForm(faults[0]))
	}
	return invalid("the configuration", "must be a JSON object")
}

func fieldForm(f toll.Fault) string {
	switch {
	case strings.HasPrefix(f.Message, "must be"), strings.HasPrefix(f.Message, "is "):
		return f.Message
	case f.Path == "planId", f.Path == "agentId":
		return "must be a decimal number as a string"
	}
	return "must be a nonnegative integer"
}

// over returns c with its unset fields taken from lower.
func (c Config) over(lower Config) Config {
	to, from := reflect.ValueOf(&c).Elem(), reflect.ValueOf(lower)
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return c
}

// hasService reports whether c selects a service by address or by key.
func (c Config) hasService() bool { return c.APIKey != "" || c.BaseURL != "" }

// within merges the configuration c of a plugin over the core's and returns the fields of c that it ignored. Any program with
// the core token can send c, so no field allows more than the core's configuration and defaults. The core's key is used only
// with the core's address.
func (c Config) within(core Config, names x402.Namespace) (merged Config, ignored []string, err error) {
	keep := func(looser bool, field string) bool {
		if looser {
			ignored = append(ignored, field)
		}
		return looser
	}
	if c.APIKey == "" && core.hasService() {
		keep(c.BaseURL != "" && c.BaseURL != core.BaseURL, "baseUrl")
		keep(c.Environment != "" && c.Environment != cmp.Or(environmentOf(core.APIKey), core.Environment, c.Environment), "environment")
		c.BaseURL, c.Environment = "", cmp.Or(core.Environment, c.Environment)
	}
	merged = c.over(core)
	most, err := core.resolve(names)
	if err != nil {
		return merged, nil, err
	}
	got, err := merged.resolve(names)
	if err != nil {
		return merged, nil, err
	}
	if keep(most.ownerOnly && !got.ownerOnly, "ownerOnlySpending") {
		merged.OwnerOnlySpending = &most.ownerOnly
	}
	if keep(most.SpendApproval == approvalByHost && got.SpendApproval != approvalByHost, "spendApproval") {
		merged.SpendApproval = approvalByHost
	}
	if keep(!most.keyPaste && got.keyPaste, "allowKeyPaste") {
		merged.AllowKeyPaste = &most.keyPaste
	}
	if keep(!most.privateAgents && got.privateAgents, "allowPrivateAgents") {
		merged.AllowPrivateAgents = &most.privateAgents
	}
	if keep(got.maxLimit > most.maxLimit, "maxSpendingLimitCents") {
		merged.MaxSpendingLimitCents = &most.maxLimit
	}
	if keep(most.maxOrder > 0 && (got.maxOrder == 0 || got.maxOrder > most.maxOrder), "maxOrderCents") {
		merged.MaxOrderCents = &most.maxOrder
	}
	if limit := or(merged.MaxSpendingLimitCents, defaultLimit); got.proposedLimit > limit {
		merged.DefaultSpendingLimitCents = &limit
	}
	return merged, ignored, nil
}

// Limits and defaults of the configuration.
const (
	maxCents          = 1_000_000_000
	defaultLimit      = 1000 // cents, for the proposed and the maximum limit
	defaultLimitSecs  = 3600
	minLimitSecs      = 60
	maxLimitSecs      = 31_536_000
	maxEndpointPath   = 256
	maxMethodID       = 128
	defaultPayment    = "crypto"
	approvalByConfirm = "confirm"
	approvalByHost    = "host"
)

// resolve applies the defaults and validates c. Each error names a field and its accepted form.
func (c Config) resolve(names x402.Namespace) (s settings, err error) {
	c.Environment = cmp.Or(environmentOf(c.APIKey), c.Environment, toll.Sandbox)
	c.CreditsPerRequest = cmp.Or(c.CreditsPerRequest, 1)
	c.AgentEndpointPath = cmp.Or(c.AgentEndpointPath, names.AgentPath())
	c.PaymentType = cmp.Or(c.PaymentType, defaultPayment)
	c.SpendApproval = cmp.Or(c.SpendApproval, approvalByConfirm)
	sandbox := c.Environment == toll.Sandbox
	s = settings{
		Config:         c,
		paidEndpoint:   or(c.EnablePaidEndpoint, false),
		ownerOnly:      or(c.OwnerOnlySpending, true),
		keyPaste:       or(c.AllowKeyPaste, true),
		privateAgents:  or(c.AllowPrivateAgents, sandbox),
		maxLimit:       or(c.MaxSpendingLimitCents, defaultLimit),
		maxOrder:       or(c.MaxOrderCents, 0),
		delegationSecs: or(c.DefaultDelegationDurationSecs, defaultLimitSecs),
	}
	s.proposedLimit = or(c.DefaultSpendingLimitCents, min(s.maxLimit, defaultLimit))
	switch {
	case c.AgentHandler != nil:
		s.handler = *c.AgentHandler
	case sandbox:
		s.handler.Kind = HandlerDemo
	}
	return s, errors.Join(s.check()...)
}

func or[T any](p *T, fallback T) T {
	if p != nil {
		return *p
	}
	return fallback
}

func (s *settings) check() (errs []error) {
	refuse := func(wrong bool, field, form string, args ...any) {
		if wrong {
			errs = append(errs, invalid(field, form, args...))
		}
	}
	oneOf := func(field, value string, values ...string) {
		refuse(!slices.Contains(values, value), field, "must be %s; got %q", strings.Join(values, " or "), plain.Text(value, 60))
	}
	address := func(field, value string) {
		refuse(value != "" && paid.CheckPublicURL(value) != nil, field, "must be an absolute http or https URL without user, query, or fragment")
	}
	foreign := func(r rune) bool { return r <= ' ' || r > '~' } // not allowed in a key
	refuse(len(s.APIKey) > maxKeyText || strings.ContainsFunc(s.APIKey, foreign), "apiKey", "must be a short key, <prefix>:<jwt>, or <jwt>")
	oneOf("environment", string(s.Environment), string(toll.Sandbox), string(toll.Live))
	oneOf("paymentType", s.PaymentType, "crypto", "fiat")
	oneOf("spendApproval", s.SpendApproval, approvalByConfirm, approvalByHost)
	refuse(s.CreditsPerRequest < 1, "creditsPerRequest", "must be at least 1")
	refuse(!isEndpointPath(s.AgentEndpointPath), "agentEndpointPath", pathForm, maxEndpointPath)
	address("publicUrl", s.PublicURL)
	address("baseUrl", s.BaseURL)
	address("coreUrl", s.CoreURL)
	refuse(len(s.PaymentMethodID) > maxMethodID, "paymentMethodId", "must be at most %d characters", maxMethodID)
	refuse(s.maxLimit < 0 || s.maxLimit > maxCents, "maxSpendingLimitCents", "must be 0 to %d", maxCents)
	refuse(s.maxOrder < 0 || s.maxOrder > maxCents, "maxOrderCents", "must be 0 to %d", maxCents)
	refuse(s.proposedLimit < 0 || s.proposedLimit > s.maxLimit, "defaultSpendingLimitCents",
		"must be at most maxSpendingLimitCents (%d); got %d", s.maxLimit, s.proposedLimit)
	refuse(s.delegationSecs < minLimitSecs || s.delegationSecs > maxLimitSecs, "defaultDelegationDurationSecs",
		"must be %d to %d", minLimitSecs, maxLimitSecs)
	switch h := s.handler; h.Kind {
	case "":
		refuse(s.AgentHandler != nil, "agentHandler.kind", "must be demo, http, or host")
	case HandlerDemo:
		refuse(s.Environment == toll.Live, "agentHandler.kind",
			"must be http or host in the live environment: demo only repeats the prompt")
	case HandlerHTTP, HandlerHost:
		refuse(h.URL == "", "agentHandler.url", "is required for kind %s", h.Kind)
		address("agentHandler.url", h.URL)
		refuse(h.Kind == HandlerHost && h.Agent == "", "agentHandler.agent", "is required for kind host")
	default:
		oneOf("agentHandler.kind", h.Kind, HandlerDemo, HandlerHTTP, HandlerHost)
	}
	return errs
}

const (
	maxKeyText = 8 << 10
	pathForm   = "must start with /, have at most %d characters, and contain only letters, digits, and ./~_-; " +
		`no segment may be empty, ".", or "..", and the first may not be v1, tools, mcp, or gateway`
)

var endpointPath = regexp.MustCompile(`^(/[A-Za-z0-9_.~-]+)+$`)

// isEndpointPath reports whether path can be the paid endpoint. Paths below the routes of the host and the core are reserved.
func isEndpointPath(path string) bool {
	segments := strings.Split(path, "/")
	return len(path) <= maxEndpointPath && endpointPath.MatchString(path) &&
		!slices.Contains(segments, "..") && !slices.Contains(segments, ".") &&
		!slices.Contains([]string{"v1", "tools", "mcp", "gateway"}, strings.ToLower(segments[1]))
}
