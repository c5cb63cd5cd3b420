// Package gate sells HTTP upstreams and MCP servers by usage. [Load] reads the configuration of `toll gate --config`, and [New] returns
// its handler: a reverse proxy that prices each call by a table of rates (package rates), takes the payment (package paid), and counts
// the use that the response of the upstream reports (package modelapi, and the meters of the configuration). For `toll mcp --config`,
// [Config.Items] returns the prices of tools, resources, and prompts.
package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/modelapi"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/paid"
)

// Bounds of a configuration.
const (
	maxConfigBytes = 1 << 20
	maxSecretBytes = 64 << 10 // of a file in ${file:...}
	maxRoutes      = 500
	maxQuantities  = 16 // of one meter

	// defaultHoldSecs is twice maxDrainTime, because a renewed hold has at least half of its life left when its caller disconnects.
	defaultHoldSecs = 120
)

// Config is the configuration of a gate.
type Config struct {
	Plan      string               `yaml:"plan"`       // id or name of the plan whose credits pay
	Agent     string               `yaml:"agent"`      // id or name of the agent that receives the payment; optional
	Listen    string               `yaml:"listen"`     // host:port, default 127.0.0.1:8403, or 127.0.0.1:8404 for an MCP server
	PublicURL string               `yaml:"public_url"` // address at which callers reach the gate
	Credit    Money                `yaml:"credit"`     // value of one credit, which pages show; prices are in credits
	CORS      []string             `yaml:"cors"`
	Metrics   string               `yaml:"metrics"`    // host:port of the listener for Prometheus; empty disables it
	AccessLog bool                 `yaml:"access_log"` // log a line for each request
	TLS       *TLS                 `yaml:"tls"`
	Limits    Limits               `yaml:"limits"`
	HoldSecs  int                  `yaml:"hold_secs"` // 1 to 900, default 120
	Upstreams map[string]*Upstream `yaml:"upstreams"`
	Meters    map[string]Meter     `yaml:"meters"`
	Routes    []*Route             `yaml:"routes"`
}

// TLS names the files of a certificate chain and its key, in PEM. They are read again on reload.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Upstream is a server that the gate sells.
type Upstream struct {
	// URL and the values of Headers may contain ${file:PATH} and ${env:NAME}, which are replaced when the configuration is loaded.
	URL string `yaml:"url"`
	// Headers are set on each request.
	Headers map[string]string `yaml:"headers"`
	// Timeout bounds the time to the first byte of a response, and from there to the end of a response that the gate reads completely,
	// default 10 minutes. Idle bounds the time between two parts of a response, default 2 minutes.
	Timeout Duration `yaml:"timeout"`
	Idle    Duration `yaml:"idle"`

	name    string // in Upstreams
	address *url.URL
	header  http.Header
}

// Route sells one method and path, or one item of an MCP server.
type Route struct {
	Match    string `yaml:"match"`    // "METHOD /path", as in package paid, or an item such as "tools/search" or "tools/*"
	Upstream string `yaml:"upstream"` // may be omitted if the gate has one upstream
	Preset   string `yaml:"preset"`   // API of a model server
	Meter    string `yaml:"meter"`    // name of a meter
	// OutputLimit is the member for the output limit, for servers that ignore the default of the preset, such as max_tokens for Ollama.
	OutputLimit string `yaml:"output_limit"`
	// Omit lists members that the preset adds and the server rejects: store, stream_options.
	Omit    []string  `yaml:"omit"`
	Free    bool      `yaml:"free"`
	Credits *int64    `yaml:"credits"`  // fixed price, in place of Price
	PerCall Money     `yaml:"per_call"` // fixed price for wallets in USDC or EURC, beside Credits
	Price   yaml.Node `yaml:"price"`

	upstream  *Upstream
	operation *modelapi.Operation
	api       *modelapi.API
	meter     Meter
	table     rates.Table
	exact     *paid.Exact // of PerCall
}

// Duration is a duration such as 90s or 5m.
type Duration time.Duration

// UnmarshalYAML implements [yaml.Unmarshaler].
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v <= 0 || v > 24*time.Hour {
		return fmt.Errorf("line %d: a duration must look like 90s or 5m, up to 24h; got %q", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// Money is a decimal amount with up to 18 decimals and a currency, such as "0.000001 USD".
type Money struct {
	Amount   string // decimal
	Currency string
}

var moneySyntax = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,18})?) ([A-Z]{3,8})$`)

// UnmarshalYAML implements [yaml.Unmarshaler].
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	parts := moneySyntax.FindStringSubmatch(n.Value)
	if parts == nil || strings.Trim(parts[1], "0.") == "" {
		return fmt.Errorf("line %d: an amount must have a currency, such as 0.000001 USD; got %q", n.Line, n.Value)
	}
	*m = Money{parts[1], parts[2]}
	return nil
}

// Load reads and checks a configuration. Its errors name the file, the line, and the member.
func Load(file string) (*Config, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(text) > maxConfigBytes {
		err = errors.New("is larger than 1 MiB")
	}
	var c *Config
	if err == nil {
		c, err = Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// goNames are the Go types that errors of package yaml name.
var goNames = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Parse is [Load] for the text of a file.
func Parse(text []byte) (*Config, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	c := &Config{HoldSecs: defaultHoldSecs}
	if err := d.Decode(c); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("is empty")
		}
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if many := new(yaml.TypeError); errors.As(err, &many) {
			text = strings.Join(many.Errors, "; ")
		}
		return nil, errors.New(goNames.ReplaceAllString(text, "unknown member $1"))
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("must contain one YAML document")
	}
	return c, c.check()
}

func (c *Config) check() error {
	switch {
	case c.Plan == "":
		return errors.New("plan is missing: name the plan whose credits pay")
	case len(c.Upstreams) == 0 && !c.IsMCP():
		return errors.New("upstreams is missing: name a server to sell")
	case len(c.Upstreams) > 1 && c.IsMCP():
		return errors.New("upstreams must have one MCP server at most")
	case c.IsMCP() && (len(c.CORS) > 0 || c.Metrics != "" || c.AccessLog || c.TLS != nil || c.Limits != Limits{}):
		return errors.New("cors, metrics, access_log, tls, and limits apply only to HTTP routes")
	case len(c.Routes) == 0:
		return errors.New("routes is missing: without a route, the gate serves nothing")
	case len(c.Routes) > maxRoutes:
		return fmt.Errorf("routes must have at most %d entries", maxRoutes)
	case c.HoldSecs < 1 || c.HoldSecs > paid.MaxHoldSecs:
		return fmt.Errorf("hold_secs must be 1 to %d; got %d", paid.MaxHoldSecs, c.HoldSecs)
	case c.TLS != nil && (c.TLS.Cert == "" || c.TLS.Key == ""):
		return errors.New("tls must name the files cert and key")
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8403"
		if c.IsMCP() {
			c.Listen = "127.0.0.1:8404"
		}
	}
	if c.PublicURL != "" {
		if err := paid.CheckPublicURL(c.PublicURL); err != nil {
			return fmt.Errorf("public_url %w", err)
		}
	}
	for _, origin := range c.CORS {
		if err := paid.CheckOrigin(origin); err != nil {
			return fmt.Errorf("cors %w", err)
		}
	}
	if err := c.Limits.check(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u == nil {
			u = &Upstream{}
		}
		u.name = name
		if err := u.check(); err != nil {
			return fmt.Errorf("upstreams.%s.%w", name, err)
		}
		if c.IsMCP() && (u.Timeout != 0 || u.Idle != 0) {
			return fmt.Errorf("upstreams.%s: timeout and idle apply only to HTTP routes", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Meters)) {
		if err := c.Meters[name].check(); err != nil {
			return fmt.Errorf("meters.%s%w", name, err)
		}
	}
	var keys []paid.Route
	for i, r := range c.Routes {
		if r == nil {
			r = &Route{}
		}
		if err := r.check(c); err != nil {
			return fmt.Errorf("routes[%d] (%s): %w", i, r.Match, err)
		}
		if c.IsMCP() {
			if slices.ContainsFunc(c.Routes[:i], func(o *Route) bool { return o.Match == r.Match }) {
				return fmt.Errorf("routes[%d]: %q is already used", i, r.Match)
			}
			continue
		}
		keys = append(keys, paid.Free(r.Match))
		if err := paid.CheckRoutes(keys...); err != nil {
			return fmt.Errorf("routes[%d]: %s", i, strings.TrimPrefix(err.Error(), "paid: "))
		}
	}
	return nil
}

func (u *Upstream) check() (err error) {
	if u.URL, err = expand(u.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	u.address, err = url.Parse(u.URL)
	if err != nil || u.address.Host == "" || u.address.Scheme != "http" && u.address.Scheme != "https" || u.address.User != nil ||
		u.address.RawQuery != "" || u.address.Fragment != "" {
		return fmt.Errorf("url must be an absolute http or https URL without user, query, or fragment; got %q", u.URL)
	}
	u.header = http.Header{}
	for name, value := range u.Headers {
		if value, err = expand(value); err != nil {
			return fmt.Errorf("headers.%s: %w", name, err)
		}
		if !headerName.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("headers.%s is not a valid header", name)
		}
		u.header.Set(name, value)
	}
	return nil
}

// Header returns the headers of each request, with their references replaced.
func (u *Upstream) Header() http.Header { return u.header }

var (
	headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]{1,100}$")
	reference  = regexp.MustCompile(`\$\{([^}]*)\}`)
)

// expand replaces ${file:PATH} and ${env:NAME} in a text.
func expand(text string) (string, error) {
	var failed error
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		value, err := resolve(ref[2 : len(ref)-1])
		failed = errors.Join(failed, err)
		return value
	})
	return out, failed
}

func resolve(ref string) (string, error) {
	kind, name, _ := strings.Cut(ref, ":")
	switch kind {
	case "env":
		value, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return value, nil
	case "file":
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
		if err == nil && len(b) > maxSecretBytes {
			err = fmt.Errorf("%s is larger than 64 KiB", name)
		}
		return strings.TrimRight(string(b), "\r\n"), err
	}
	return "", fmt.Errorf("${%s} must be ${file:PATH} or ${env:NAME}", ref)
}

func (r *Route) check(c *Config) (err error) {
	name := r.Upstream
	if name == "" && len(c.Upstreams) == 1 {
		for name = range c.Upstreams {
		}
	}
	ok := false
	if r.upstream, ok = c.Upstreams[name]; !ok && (name != "" || !c.IsMCP()) {
		return fmt.Errorf("upstream must be the name of an upstream; got %q", name)
	}
	method, path, _ := strings.Cut(r.Match, " ")
	priced := r.Credits != nil || !r.Price.IsZero()
	switch {
	case r.Free && (priced || r.Meter != ""):
		return errors.New("a free route has no price and no meter")
	case !r.Free && !priced:
		return errors.New("price is missing; a route without a price needs free: true")
	case r.Credits != nil && !r.Price.IsZero():
		return errors.New("credits and price exclude each other")
	case r.Credits != nil && (r.Preset != "" || r.Meter != ""):
		return errors.New("a fixed price (credits) needs neither a preset nor a meter")
	case r.Credits != nil && (*r.Credits < 0 || *r.Credits > int64(toll.MaxCredits)):
		return fmt.Errorf("credits must be 0 to %d", int64(toll.MaxCredits))
	}
	if r.PerCall.Amount != "" {
		amount, err := toll.ParseAmount(r.PerCall.Amount, evm.Decimals)
		n, bad := toll.ParseCredits(amount.String()) // base units have the range of credits
		if cur := r.PerCall.Currency; err != nil || bad != nil || n == 0 || r.Credits == nil || cur != toll.CurrencyUSDC && cur != toll.CurrencyEURC {
			return errors.New("per_call must be an amount in USDC or EURC with at most 6 decimals, on a route with credits")
		}
		r.exact = &paid.Exact{Currency: r.PerCall.Currency, Amount: amount}
	}
	if r.Preset != "" {
		if r.api, ok = modelapi.Find(r.Preset); !ok {
			return fmt.Errorf("preset must be one of %s; got %q", strings.Join(modelapi.Names(), ", "), r.Preset)
		}
		r.operation = r.api.Operation(method, path)
		if r.operation == nil && !r.Free {
			return fmt.Errorf("the preset %s has no operation %s", r.Preset, r.Match)
		}
	}
	if r.OutputLimit != "" && (r.operation == nil || !slices.Contains(r.operation.LimitNames(), r.OutputLimit)) {
		return fmt.Errorf("output_limit must be a name that the preset has for the output limit; got %q", r.OutputLimit)
	}
	for _, name := range r.Omit {
		if r.operation == nil || !slices.Contains(r.operation.Added(), name) {
			return fmt.Errorf("omit must list members that the preset adds to requests (store, stream_options); got %q", name)
		}
	}
	if r.Meter != "" {
		if r.meter, ok = c.Meters[r.Meter]; !ok {
			return fmt.Errorf("meter must be the name of a meter; got %q", r.Meter)
		}
	}
	if c.IsMCP() {
		if err := r.checkItem(); err != nil {
			return err
		}
	}
	if r.Credits != nil {
		r.table = rates.Table{{Per: 1, Base: *r.Credits}}
		return nil
	}
	if r.Free {
		return nil
	}
	raw, err := toJSON(&r.Price)
	if err != nil {
		return err
	}
	if r.table, err = rates.ParseTable(raw, r.meter.quantities()); err != nil {
		return fmt.Errorf("line %d: %w", r.Price.Line, err)
	}
	if r.operation == nil && slices.ContainsFunc(r.table, func(row rates.Row) bool { return row.CountsTokens() }) {
		return fmt.Errorf("line %d: rates for tokens, such as input and output, need a preset", r.Price.Line)
	}
	return nil
}

// toJSON converts a value of YAML to JSON. Numbers keep their text; aliases and other tags are errors.
func toJSON(n *yaml.Node) ([]byte, error) {
	switch n.Kind {
	case yaml.SequenceNode:
		parts := make([][]byte, len(n.Content))
		for i, c := range n.Content {
			b, err := toJSON(c)
			if err != nil {
				return nil, err
			}
			parts[i] = b
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
	case yaml.MappingNode:
		var parts [][]byte
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Kind != yaml.ScalarNode || n.Content[i].ShortTag() == "!!merge" {
				return nil, fmt.Errorf("line %d: a member must have a simple name", n.Content[i].Line)
			}
			name, _ := json.Marshal(n.Content[i].Value)
			value, err := toJSON(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			parts = append(parts, slices.Concat(name, []byte(":"), value))
		}
		return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}")), nil
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); tag {
		case "!!int":
			if v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil {
				return strconv.AppendInt(nil, v, 10), nil
			}
		case "!!null":
			return []byte("null"), nil
		case "!!bool":
			return []byte(strings.ToLower(n.Value)), nil
		case "!!str":
			return json.Marshal(n.Value)
		}
	}
	return nil, fmt.Errorf("line %d: %q must be a text or a whole number", n.Line, n.Value)
}
