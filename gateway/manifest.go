package gateway

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhq/toll/x402"
)

// PluginVersion is the version of the plugin's package.
const PluginVersion = "1.1.0"

// DefaultListen is the default address of the core.
const DefaultListen = "127.0.0.1:8791"

// Files of a plugin that are generated from the registry, relative to its directory.
const (
	ManifestFile = "openclaw.plugin.json"
	RegistryFile = "src/registry.json"
)

const (
	pluginName        = "Chat gateway"
	pluginDescription = "Buy and sell paid requests with plan credits."
)

// Manifest returns the generated files of a chat host's plugin by file name (design 14). For the same namespace it always
// returns the same bytes.
func Manifest(names x402.Namespace) (map[string][]byte, error) {
	list, err := entries(names)
	if err != nil {
		return nil, err
	}
	hash, err := registryHash(names)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, v := range map[string]any{
		ManifestFile: manifestOf(names, list),
		RegistryFile: registryOf(names, list, hash),
	} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return nil, err
		}
		files[name] = b.Bytes()
	}
	return files, nil
}

type pluginInfo struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

func plugin(names x402.Namespace) pluginInfo {
	return pluginInfo{
		ID:          names.PluginID(),
		Name:        pluginName,
		Description: pluginDescription,
		Version:     PluginVersion,
	}
}

// hostManifest is the file that the host reads before it loads the plugin (design 12).
type hostManifest struct {
	pluginInfo
	Categories      []string               `json:"categories"`
	Activation      map[string]bool        `json:"activation"`
	Contracts       map[string][]string    `json:"contracts"`
	ToolMetadata    map[string]hostTool    `json:"toolMetadata"`
	ConfigContracts map[string]secretPaths `json:"configContracts"`
	UIHints         map[string]uiHint      `json:"uiHints"`
	ConfigSchema    *jsonschema.Schema     `json:"configSchema"`
}

type hostTool struct {
	Profiles      []string `json:"profiles"`
	ReplaySafe    bool     `json:"replaySafe"`
	SideEffecting bool     `json:"sideEffecting"`
}

type secretPaths struct {
	Paths []secretPath `json:"paths"`
}

type secretPath struct {
	Path     string `json:"path"`
	Expected string `json:"expected"`
}

type uiHint struct {
	Label     string `json:"label"`
	Help      string `json:"help"`
	Sensitive bool   `json:"sensitive,omitempty"`
	Advanced  bool   `json:"advanced,omitempty"`
}

func manifestOf(names x402.Namespace, list []toolEntry) hostManifest {
	m := hostManifest{
		pluginInfo:   plugin(names),
		Categories:   []string{"finance-payments"},
		Activation:   map[string]bool{"onStartup": true},
		Contracts:    map[string][]string{},
		ToolMetadata: map[string]hostTool{},
		UIHints:      map[string]uiHint{},
		ConfigSchema: &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: nothing(),
			Properties:           map[string]*jsonschema.Schema{},
		},
	}
	for _, t := range list {
		m.Contracts["tools"] = append(m.Contracts["tools"], t.Name)
		m.ToolMetadata[t.Name] = hostTool{
			Profiles:      []string{"coding", "messaging", "full"},
			ReplaySafe:    t.Effect == EffectRead,
			SideEffecting: t.Effect != EffectRead,
		}
	}
	var secret []secretPath
	for _, f := range configFields(names) {
		m.UIHints[f.name] = f.uiHint
		if f.Sensitive {
			secret = append(secret, secretPath{f.name, "string"})
		}
		if f.schema != nil {
			m.ConfigSchema.Properties[f.name] = f.schema
			m.ConfigSchema.PropertyOrder = append(m.ConfigSchema.PropertyOrder, f.name)
		}
	}
	m.ConfigContracts = map[string]secretPaths{"secretInputs": {secret}}
	return m
}

type hostRegistry struct {
	Plugin         pluginInfo    `json:"plugin"`
	Namespace      hostNamespace `json:"namespace"`
	Hash           string        `json:"hash"`
	DefaultPath    string        `json:"defaultPath"`
	CoreURL        string        `json:"coreUrl"`
	LoginCommand   string        `json:"loginCommand"`
	SecretPatterns []string      `json:"secretPatterns"`
	Commands       []hostCommand `json:"commands"`
	Tools          []registered  `json:"tools"`
}

type hostNamespace struct {
	Scheme string `json:"scheme"`
	Header string `json:"header"`
	Word   string `json:"word"`
}

type hostCommand struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	AcceptsArgs bool   `json:"acceptsArgs"`
}

type registered struct {
	Name        string             `json:"name"`
	Label       string             `json:"label"`
	Description string             `json:"description"`
	Effect      Effect             `json:"effect"`
	Parameters  *jsonschema.Schema `json:"parameters"`
}

func registryOf(names x402.Namespace, list []toolEntry, hash string) hostRegistry {
	r := hostRegistry{
		Plugin:         plugin(names),
		Namespace:      hostNamespace(names),
		Hash:           hash,
		DefaultPath:    names.AgentPath(),
		CoreURL:        "http://" + DefaultListen,
		LoginCommand:   names.Command(actLogin),
		SecretPatterns: secretPatterns(),
		Commands: []hostCommand{
			{names.Command(actLogin), "Log in to the service in a browser.", true},
			{names.Command(actLogout), "Log out of the service and delete the stored key.", false},
		},
	}
	for _, t := range list {
		r.Tools = append(r.Tools, registered{
			Name:        t.Name,
			Label:       t.Title,
			Description: t.Description,
			Effect:      t.Effect,
			Parameters:  t.InputSchema,
		})
	}
	return r
}

// configField is a field of [Config] in the settings of a host. A nested field has a nil schema: its parent's schema includes it.
type configField struct {
	name string
	uiHint
	schema *jsonschema.Schema
}

func configFields(names x402.Namespace) []configField {
	field := func(name, label, help string, schema *jsonschema.Schema) configField {
		return configField{name, uiHint{Label: label, Help: help}, schema}
	}
	sensitive := func(f configField) configField { f.Sensitive = true; return f }
	advanced := func(f configField) configField { f.Advanced = true; return f }
	const keyHelp = "The plugin sends this key to the core. Leave this field empty if you use the login command."
	return []configField{
		sensitive(field("apiKey", "API key", keyHelp, secretText())),
		sensitive(field(names.ConfigAPIKey(), "API key", "Another name for apiKey. Set only one of them.", secretText())),
		field("environment", "Environment", "sandbox or live. Default: sandbox.", oneOf("sandbox", "live")),
		field("planId", "Plan", "Default plan for tools, prompts, and the paid endpoint.", textLike(idPattern)),
		field("agentId", "Agent", "Default agent for tools and the paid endpoint.", textLike(idPattern)),
		field("creditsPerRequest", "Credits per request", "Credits that a request to the paid endpoint burns. Default: 1.", atLeast(1)),
		field("enablePaidEndpoint", "Paid endpoint", "Accept paid requests. Default: false.", flag()),
		field("agentEndpointPath", "Path of the paid endpoint", "Default: "+names.AgentPath()+".", textLike("^/[A-Za-z0-9_./~-]+$")),
		advanced(field("publicUrl", "Public URL", "Public URL of the paid endpoint, without its path.", anyText())),
		advanced(field("baseUrl", "Service URL", "Set it if you run your own service.", anyText())),
		field("paymentType", "Payment type", "crypto or fiat. This setting has no effect: the plan determines how you pay. Default: crypto.", oneOf("crypto", "fiat")),
		advanced(field("paymentMethodId", "Payment method", "Id of an enrolled card.", anyText())),
		advanced(field("defaultSpendingLimitCents", "Proposed spending limit",
			"Spending limit that the gateway suggests to the user, in cents. Default: 1000.", atLeast(0))),
		advanced(field("defaultDelegationDurationSecs", "Default duration of a spending limit", "In seconds. Default: 3600.", atLeast(minLimitSecs))),
		field("maxSpendingLimitCents", "Maximum spending limit", "Highest spending limit that a tool may set, in cents. Default: 1000.", atLeast(0)),
		field("maxOrderCents", "Maximum order price", "In cents. More expensive orders are rejected. Default: 0 (no limit).", atLeast(0)),
		field("ownerOnlySpending", "Only the owner spends",
			"Only the owner can use tools that spend money or credits, or that create agents or plans. Default: true.", flag()),
		field("spendApproval", "Order approval",
			"confirm: the user confirms in the chat. host: the host also shows its approval prompt. Default: confirm.",
			oneOf(approvalByConfirm, approvalByHost)),
		advanced(field("allowKeyPaste", "Accept keys in the login command", "Default: true.", flag())),
		advanced(field("allowPrivateAgents", "Allow agents in private networks", "Default: true on sandbox, false on live.", flag())),
		advanced(field("agentHandler", "Paid endpoint handler", "demo, http (requires url), or host (requires url and agent).", handlerSchema())),
		sensitive(field("agentHandler.token", "Handler token", "Bearer token for a handler of kind host.", nil)),
		sensitive(field("agentHandler.headers.*", "Handler headers", "Request headers for a handler of kind http.", nil)),
		advanced(field("coreUrl", "Core URL", "Default: http://"+DefaultListen+".", anyText())),
		advanced(field("coreTokenFile", "Core token file", "The file "+TokenFile+" in the data directory of the core.", anyText())),
		advanced(field("startCore", "Start the core", "Start and stop the core together with the host. Default: false.", flag())),
		advanced(field("coreBinary", "Core program", "Default: toll.", anyText())),
	}
}

func nothing() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

func flag() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

func anyText() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
}

func textLike(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

func atLeast(n int64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: number(n)}
}

func oneOf(values ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// object returns an object schema without additional properties.
func object(required []string, properties map[string]*jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{
		Type:                 "object",
		AdditionalProperties: nothing(),
		Properties:           properties,
		Required:             slices.Clone(required),
	}
}

// secretText returns a schema for a string, or a reference to a secret stored by the host.
func secretText() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		anyText(),
		object([]string{"source", "provider", "id"}, map[string]*jsonschema.Schema{
			"source":   oneOf("env", "file", "exec", "store"),
			"provider": {Type: "string"},
			"id":       {Type: "string"},
		}),
	}}
}

func handlerSchema() *jsonschema.Schema {
	return object([]string{"kind"}, map[string]*jsonschema.Schema{
		"kind":    oneOf(HandlerDemo, HandlerHTTP, HandlerHost),
		"url":     anyText(),
		"agent":   anyText(),
		"token":   secretText(),
		"headers": {Type: "object", AdditionalProperties: secretText()},
	})
}
