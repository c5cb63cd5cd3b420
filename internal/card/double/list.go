package double

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// pages is a schema of a list: its filters, and the parameters of every list.
func pages(filters string) schema {
	return takes(filters + " limit:int starting_after created.gte:int created.lte:int")
}

// listOf is a page of a list.
type listOf struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	HasMore bool   `json:"has_more"`
	URL     string `json:"url"`
}

// listing answers a list of the objects whose ids start with a prefix.
func listing(what, prefix string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		var rows []row
		for r := range each[row](c.st) {
			if strings.HasPrefix(r.key(), prefix) {
				rows = append(rows, r)
			}
		}
		return c.list(what, rows)
	}
}

// list returns the page of rows that the parameters ask for, newest first.
func (c *call) list(what string, rows []row) (any, error) {
	limit := int64(10)
	if c.p.has("limit") {
		limit = c.p.number("limit")
	}
	if limit < 1 || limit > 100 {
		return nil, invalidParam("limit", "", "Invalid integer: limit must be between 1 and 100")
	}
	if after := c.p["starting_after"]; after != "" {
		i := slices.IndexFunc(rows, func(r row) bool { return r.key() == after })
		if i < 0 {
			return nil, missing(what, after, "starting_after")
		}
		rows = rows[:i]
	}
	rows, err := c.filter(rows)
	if err != nil {
		return nil, err
	}
	page := listOf{Object: "list", Data: []any{}, URL: c.r.URL.Path}
	if extra := len(rows) - int(limit); extra > 0 {
		page.HasMore, rows = true, rows[extra:]
	}
	for _, r := range slices.Backward(rows) {
		page.Data = append(page.Data, r)
	}
	return page, nil
}

// filter returns the rows that fit the parameters. A parameter without another meaning is the name of a member.
func (c *call) filter(rows []row) ([]row, error) {
	wanted := map[string]string{}
	for name, value := range c.p {
		switch first, _, _ := strings.Cut(name, "."); first {
		case "limit", "starting_after", "created", "expand", "types":
			continue
		}
		if what := refersTo[name]; what != "" {
			if _, ok := find[row](c.st, value); !ok {
				return nil, missing(what, value, name)
			}
		}
		wanted[name] = value
	}
	types := c.p.list("types")
	var out []row
	for _, r := range rows {
		e, _ := r.(*event)
		ofTypes := len(types) == 0 || slices.Contains(types, e.Type)
		if ofTypes && c.createdMatches(r.born()) && has(r, wanted) {
			out = append(out, r)
		}
	}
	return out, nil
}

// refersTo are the filters that are ids of objects, with what they are called.
var refersTo = map[string]string{
	"customer": "customer", "payment_intent": "payment_intent", "charge": "charge",
	"setup_intent": "setupintent",
}

// has reports whether members of an object have these values.
func has(r row, wanted map[string]string) bool {
	if len(wanted) == 0 {
		return true
	}
	var members map[string]any
	b, err := json.Marshal(r)
	if err != nil || json.Unmarshal(b, &members) != nil {
		return false
	}
	for name, value := range wanted {
		if members[name] != value {
			return false
		}
	}
	return true
}

func (c *call) createdMatches(t int64) bool {
	return (!c.p.has("created.gte") || t >= c.p.number("created.gte")) &&
		(!c.p.has("created.lte") || t <= c.p.number("created.lte"))
}

// expand replaces ids by objects where the parameter expand names them.
func (c *call) expand(v any) (any, error) {
	paths := c.p.list("expand")
	if len(paths) == 0 {
		return v, nil
	}
	if len(paths) > 20 {
		return nil, invalidParam("expand", "", "You cannot expand more than 20 properties")
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	tree, err := decodeTree(b)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		segments := strings.Split(path, ".")
		if len(segments) > 4 || !c.expandAt(tree, segments) {
			return nil, invalidParam("expand", "", "This property cannot be expanded (%s).", path)
		}
	}
	return tree, nil
}

// decodeTree decodes JSON and keeps numbers exact.
func decodeTree(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var tree any
	err := dec.Decode(&tree)
	return tree, err
}

// expandAt expands a path below a node, and reports whether it can be.
func (c *call) expandAt(node any, path []string) bool {
	if items, ok := node.([]any); ok {
		for _, item := range items {
			if !c.expandAt(item, path) {
				return false
			}
		}
		return true
	}
	object, ok := node.(map[string]any)
	if !ok {
		return node == nil // null stays null
	}
	name := path[0]
	child, known := object[name]
	if id, ok := child.(string); ok {
		found, ok := find[row](c.st, id)
		if !ok {
			return false
		}
		b, err := json.Marshal(found)
		if err != nil {
			return false
		}
		if child, err = decodeTree(b); err != nil {
			return false
		}
	}
	if !known {
		return name == "failure_balance_transaction" // which is there only after a failure
	}
	object[name] = child
	return len(path) == 1 || c.expandAt(child, path[1:])
}

// get answers the object of a path, whose id starts with a prefix.
func get(what, prefix string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		id := c.r.PathValue("id")
		if v, ok := find[row](c.st, id); ok && strings.HasPrefix(id, prefix) {
			return v, nil
		}
		return nil, missing(what, id, "id")
	}
}

// byNumber is how an amount of cents is written to people: 1234 is "12.34".
func byNumber(cents int64) string {
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}
