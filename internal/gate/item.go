package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/paid"
)

// Item is a tool, resource, or prompt of an MCP server, with its price.
type Item struct {
	Type, Name string // such as "tools" and "search"; the name "*" means all other items of the type
	route      *route
}

// Same reports whether two items are the same, at whatever price.
func (i Item) Same(other Item) bool { return i.Type == other.Type && i.Name == other.Name }

// itemTypes are the types of items, as in package paidmcp.
var itemTypes = []string{"tools", "resources", "prompts"}

// itemOf returns the item that the match of a route names.
func itemOf(match string) (i Item, ok bool) {
	i.Type, i.Name, ok = strings.Cut(match, "/")
	return i, ok && i.Name != "" && slices.Contains(itemTypes, i.Type)
}

// IsMCP reports whether the configuration prices the items of an MCP server, not HTTP routes. The first route decides.
func (c *Config) IsMCP() bool {
	if len(c.Routes) == 0 || c.Routes[0] == nil {
		return false
	}
	_, is := itemOf(c.Routes[0].Match)
	return is
}

// SameServer reports whether two configurations differ in prices only.
func (c *Config) SameServer(other *Config) bool {
	a, b := *c, *other
	for _, one := range []*Config{&a, &b} {
		one.Routes, one.Meters, one.Credit = nil, nil, Money{}
	}
	return reflect.DeepEqual(a, b)
}

// Items returns the items of an MCP server, in the order of the file.
func (c *Config) Items() (out []Item) {
	for _, r := range c.Routes {
		i, _ := itemOf(r.Match)
		i.route = newRoute(r, "")
		out = append(out, i)
	}
	return out
}

// UpstreamServer returns the upstream of the configuration of an MCP server, or nil if the file has no upstream.
func (c *Config) UpstreamServer() *Upstream {
	for _, u := range c.Upstreams {
		return u
	}
	return nil
}

func (r *Route) checkItem() error {
	i, ok := itemOf(r.Match)
	switch {
	case !ok:
		return errors.New("match must be an item such as tools/search: put HTTP routes into another file")
	case r.Preset != "" || r.OutputLimit != "":
		return errors.New("preset and output_limit apply only to HTTP routes")
	case !r.Price.IsZero() && i.Type != "tools":
		return fmt.Errorf("only tools can have a price table: set credits for %s", i.Type)
	}
	for name, m := range r.meter {
		if m.Header != "" || m.RequestHeader != "" {
			return fmt.Errorf("meters.%s.%s: a tool has no headers: set response or request", r.Meter, name)
		}
	}
	return nil
}

// Fixed returns the price of an item without a table; 0 is free.
func (i Item) Fixed() (n toll.Credits, fixed bool) {
	if r := i.route; r.Credits != nil {
		return toll.Credits(*r.Credits), true
	}
	return 0, i.route.Free
}

// RefusesResults reports whether the table refuses results without their usage.
func (i Item) RefusesResults() bool {
	return slices.ContainsFunc(i.route.table, func(row rates.Row) bool {
		return slices.Contains(slices.Collect(maps.Values(row.Missing)), rates.PolicyRefuse)
	})
}

// Exact returns the price for wallets, or nil.
func (i Item) Exact() *paid.Exact { return i.route.exact }

// read finds the row for the arguments of a call, a JSON object or nothing.
func (i Item) read(args []byte) (row *rates.Row, inputs rates.Usage, err error) {
	var v any
	if len(args) > 0 && string(args) != "null" {
		v = parseJSON(args)
		if _, ok := v.(map[string]any); !ok {
			return nil, inputs, toll.Errorf(toll.CodeBadRequest, "The arguments must be a JSON object without duplicate names.")
		}
	}
	members, inputs, err := i.route.inputs(nil, nil, v)
	if err != nil {
		return nil, inputs, err
	}
	if row = i.route.table.Find(members); row == nil {
		return nil, inputs, noRow()
	}
	return row, inputs, nil
}

// Hold returns the largest price of a call with these arguments, as JSON. The error rejects the call.
func (i Item) Hold(args []byte) (toll.Credits, error) {
	row, inputs, err := i.read(args)
	if err != nil {
		return 0, err
	}
	return row.Hold(boundsOf(inputs)), nil
}

// Price returns the price of a call with these arguments whose result, as JSON, is complete after a time, and the cost above the
// hold. Without a result, the price is the hold. The error means that the table refuses a result without its usage.
func (i Item) Price(args, result []byte, took time.Duration) (price, over toll.Credits, err error) {
	row, inputs, err := i.read(args)
	if err != nil {
		return 0, 0, err
	}
	hold := row.Hold(boundsOf(inputs))
	if result == nil {
		return hold, 0, nil
	}
	u := rates.Usage{Counts: map[rates.Quantity]int64{}}
	i.route.meter.read(&u, false, nil, structured(result))
	complete(&u, inputs, took, int64(len(result)))
	return row.Price(u, hold)
}

// structured returns the structured content of a tool result, or the JSON of its only text, because many servers send JSON as text. It
// returns nil without JSON.
func structured(result []byte) any {
	var r struct {
		StructuredContent json.RawMessage
		Content           []struct{ Type, Text string }
	}
	switch err := json.Unmarshal(result, &r); {
	case err != nil:
		return nil
	case len(r.StructuredContent) > 0:
		return parseJSON(r.StructuredContent)
	case len(r.Content) == 1 && r.Content[0].Type == "text":
		return parseJSON([]byte(r.Content[0].Text))
	}
	return nil
}
