package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/x402"
)

// Meter reads the quantities of a route, by their name.
type Meter map[string]*Reading

// Reading is where a quantity is found. Exactly one of the first four members is set. A value is a whole number; with Count, the number of
// elements of a list or members of an object; with Length, the number of characters of a text.
type Reading struct {
	Response      string `yaml:"response"` // JSON pointer (RFC 6901) into the response
	Request       string `yaml:"request"`  // JSON pointer into the request
	Header        string `yaml:"header"`   // header of the response
	RequestHeader string `yaml:"request_header"`
	Count         bool   `yaml:"count"`
	Length        bool   `yaml:"length"`
}

func (m Meter) check() error {
	if len(m) == 0 || len(m) > maxQuantities {
		return fmt.Errorf(" must have 1 to %d quantities", maxQuantities)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if q, err := rates.ParseQuantity(name); err != nil {
			return fmt.Errorf(": %q: %w", name, err)
		} else if q.IsBuiltin() {
			return fmt.Errorf(": %s is counted without a meter: use another name", name)
		}
		if err := m[name].check(); err != nil {
			return fmt.Errorf(".%s: %w", name, err)
		}
	}
	return nil
}

func (r *Reading) check() error {
	if r == nil {
		r = &Reading{}
	}
	places := 0
	for _, p := range []string{r.Response, r.Request} {
		if p != "" {
			places++
			if !strings.HasPrefix(p, "/") {
				return fmt.Errorf("a JSON pointer must begin with /; got %q", p)
			}
		}
	}
	for _, h := range []string{r.Header, r.RequestHeader} {
		if h != "" {
			places++
			if !headerName.MatchString(h) {
				return fmt.Errorf("%q is not a valid header name", h)
			}
		}
	}
	switch {
	case places != 1:
		return errors.New("set exactly one of response, request, header, and request_header")
	case r.Count && r.Length:
		return errors.New("count and length exclude each other")
	case (r.Count || r.Length) && (r.Header != "" || r.RequestHeader != ""):
		return errors.New("count and length apply to JSON, not to headers")
	}
	return nil
}

// quantities returns the names of the quantities, sorted.
func (m Meter) quantities() []rates.Quantity {
	out := make([]rates.Quantity, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, rates.Quantity(name))
	}
	return out
}

// readsBody reports whether the meter needs the body of the response.
func (m Meter) readsBody() bool {
	for _, r := range m {
		if r.Response != "" {
			return true
		}
	}
	return false
}

// read adds the quantities in the header and body of the request, or of the response. body is nil if it is not JSON.
func (m Meter) read(u *rates.Usage, request bool, h http.Header, body any) {
	for name, r := range m {
		pointer, header := r.Response, r.Header
		if request {
			pointer, header = r.Request, r.RequestHeader
		}
		switch {
		case pointer != "":
			r.fromJSON(u, name, body)
		case header != "":
			u.Bad = u.Bad || request && !reaches(h, header)
			fromHeader(u, name, h, header)
		}
	}
}

// reaches reports whether the upstream reads the header as the gate does. A header that Connection names ends at the gate, and servers
// may read "_" in a name as "-".
func reaches(h http.Header, header string) bool {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(name), header) {
				return false
			}
		}
	}
	for name := range h {
		if !strings.EqualFold(name, header) && strings.EqualFold(strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(header, "_", "-")) {
			return false
		}
	}
	return true
}

func fromHeader(u *rates.Usage, name string, h http.Header, header string) {
	switch values := h.Values(header); {
	case len(values) == 0:
	case len(values) > 1:
		u.Bad = true
	default:
		n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64)
		put(u, name, n, err == nil)
	}
}

func (r *Reading) fromJSON(u *rates.Usage, name string, v any) {
	v, ok := find(v, r.Response+r.Request)
	if !ok || v == nil {
		return
	}
	switch v := v.(type) {
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		put(u, name, n, err == nil && !r.Count && !r.Length)
	case string:
		put(u, name, int64(utf8.RuneCountInString(v)), r.Length)
	case []any:
		put(u, name, int64(len(v)), r.Count)
	case map[string]any:
		put(u, name, int64(len(v)), r.Count)
	default:
		u.Bad = true
	}
}

func put(u *rates.Usage, name string, n int64, valid bool) {
	if !valid || n < 0 {
		u.Bad = true
		return
	}
	u.Counts[rates.Quantity(name)] = n
}

// pointerParts returns the names in a JSON pointer.
func pointerParts(pointer string) []string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts
}

// find returns the value at a JSON pointer.
func find(v any, pointer string) (any, bool) {
	for _, part := range pointerParts(pointer) {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// parseJSON returns a JSON value with its numbers as text, or nil if body is not strict JSON.
func parseJSON(body []byte) any {
	var raw json.RawMessage
	if x402.Decode(body, &raw) != nil { // duplicate names, nesting, UTF-8
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// caseVariant returns the name that differs from name only in case, or "".
func caseVariant(name string, names []string) string {
	for _, n := range names {
		if n != name && strings.EqualFold(n, name) && !slices.Contains(names, name) {
			return n
		}
	}
	return ""
}

// checkNames returns an error if a member differs only in case from a name in the price table. Many servers ignore case, and would read a value that the gate did not price.
func (r *route) checkNames(v any) error {
	paths := make([][]string, 0, len(r.named)+len(r.meter))
	for _, name := range r.named {
		paths = append(paths, []string{name})
	}
	for _, m := range r.meter {
		if m.Request != "" {
			paths = append(paths, pointerParts(m.Request))
		}
	}
	for _, path := range paths {
		in := v
		for _, part := range path {
			object, _ := in.(map[string]any)
			for name := range object {
				if caseVariant(name, []string{part}) != "" {
					return toll.Errorf(toll.CodeBadRequest, "The member %s must be spelled %s.", shorten(name), part)
				}
			}
			in, _ = find(in, "/"+strings.ReplaceAll(strings.ReplaceAll(part, "~", "~0"), "/", "~1"))
		}
	}
	return nil
}

// membersOf returns the request members that `when` can name: query parameters, and the scalar members of a JSON object. A name in named
// that the request repeats is an error, because the upstream could read the other value.
func membersOf(query url.Values, body any, named []string) (map[string]string, error) {
	out := map[string]string{}
	for name, values := range query {
		if list, _, found := strings.Cut(name, "["); found && slices.ContainsFunc(named, func(n string) bool { return strings.EqualFold(n, list) }) {
			return nil, toll.Errorf(toll.CodeBadRequest, "The query parameter %s must not be a list.", list)
		}
		if other := caseVariant(name, named); other != "" {
			return nil, toll.Errorf(toll.CodeBadRequest, "The query parameter %s must be spelled %s.", shorten(name), other)
		}
		if len(values) > 1 && slices.Contains(named, name) {
			return nil, toll.Errorf(toll.CodeBadRequest, "The query parameter %s must be sent only once.", name)
		}
		out[name] = values[0]
	}
	object, _ := body.(map[string]any)
	for name, v := range object {
		if _, twice := out[name]; twice && slices.Contains(named, name) {
			return nil, toll.Errorf(toll.CodeBadRequest, "%s must be in the query or in the body, not in both.", name)
		}
		switch v := v.(type) {
		case string:
			out[name] = v
		case json.Number:
			out[name] = v.String()
			if f, err := v.Float64(); slices.Contains(named, name) && (err != nil || strconv.FormatFloat(f, 'f', -1, 64) != out[name]) {
				return nil, toll.Errorf(toll.CodeBadRequest, "%s must be a number without exponent and without zeros at the end.", name)
			}
		case bool:
			out[name] = strconv.FormatBool(v)
		case []any, map[string]any:
			if slices.Contains(named, name) {
				return nil, toll.Errorf(toll.CodeBadRequest, "%s must be a text, a number, or a boolean.", name)
			}
		}
	}
	return out, nil
}
