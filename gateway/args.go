package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

type arguments map[string]any

// text returns a string argument, or fallback if it is absent.
func (a arguments) text(name, fallback string) string {
	if s, ok := a[name].(string); ok {
		return s
	}
	return fallback
}

// integer returns an integer argument, or fallback if it is absent.
func (a arguments) integer(name string, fallback int64) int64 {
	if n, ok := a[name].(int64); ok {
		return n
	}
	return fallback
}

// flag returns a flag argument, or false if it is absent.
func (a arguments) flag(name string) bool { b, _ := a[name].(bool); return b }

// list returns a list argument, or nil if it is absent.
func (a arguments) list(name string) []string { l, _ := a[name].([]string); return l }

// given reports whether the caller gave the argument.
func (a arguments) given(name string) bool { _, ok := a[name]; return ok }

// Limits of arguments.
const (
	defaultText  = 2000 // characters of a text whose parameter sets no limit
	maxList      = 10   // entries of a list, such as the receivers of a price
	maxEntry     = 200  // characters of a list entry
	maxUnknown   = 10   // unknown arguments named in warnings
	maxNameRunes = 40   // characters of such a name
)

// check validates params, one JSON object, against the parameters of the tool and converts the values to their types (design
// 4). It ignores unknown arguments with a warning. Errors are [InvalidParams].
func (t *tool) check(params json.RawMessage) (args arguments, warnings []string, err error) {
	given := map[string]json.RawMessage{}
	if len(params) > 0 && string(params) != "null" && x402.Decode(params, &given) != nil {
		return nil, nil, invalid("params", "must be a JSON object without duplicate member names")
	}
	args = arguments{}
	for _, p := range t.params {
		raw := given[p.name]
		delete(given, p.name)
		if len(raw) == 0 || string(raw) == "null" {
			if p.required {
				return nil, nil, invalid(p.name, "is required and must be %s", p.form())
			}
			continue
		}
		value, warning := p.read(raw)
		if value == nil {
			return nil, nil, invalid(p.name, "must be %s; got %s", p.form(), shown(raw))
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
		args[p.name] = value
	}
	return args, append(warnings, unknownArguments(given)...), nil
}

// unknownArguments returns a warning for each unknown argument, up to maxUnknown, and then a warning that counts the rest.
func unknownArguments(given map[string]json.RawMessage) (warnings []string) {
	for i, name := range slices.Sorted(maps.Keys(given)) {
		if i == maxUnknown {
			return append(warnings, fmt.Sprintf("%d more unknown arguments were ignored.", len(given)-i))
		}
		warnings = append(warnings, fmt.Sprintf("The unknown argument %q was ignored.", plain.Text(name, maxNameRunes)))
	}
	return warnings
}

// shown quotes an invalid argument for its error, in at most 60 characters. It redacts keys.
func shown(raw json.RawMessage) string { return plain.Text(redact(string(raw)), 60) }

func (p *param) form() string {
	switch p.kind {
	case kindID:
		return "a decimal number as a string"
	case kindInteger:
		return fmt.Sprintf("an integer from %d to %d", p.least, p.most)
	case kindFlag:
		return "true or false"
	case kindList:
		return fmt.Sprintf("an array of 1 to %d strings, or one comma-separated string", maxList)
	case kindURL:
		return "an absolute http or https URL"
	}
	if p.oneOf != nil {
		return strings.Join(p.oneOf, " or ")
	}
	return fmt.Sprintf("a string of 1 to %d characters", p.mostRunes())
}

func (p *param) mostRunes() int64 {
	if p.kind == kindText && p.most > 0 {
		return p.most
	}
	return defaultText
}

// read returns the value of an argument, or nil if it is invalid.
func (p *param) read(raw json.RawMessage) (value any, warning string) {
	var s string
	isText := x402.Decode(raw, &s) == nil
	switch p.kind {
	case kindID:
		if id := digits(raw, s, isText); isID(id, isText) {
			return id, ""
		}
	case kindInteger:
		n, err := strconv.ParseInt(digits(raw, s, isText), 10, 64)
		if err == nil && n >= p.least && n <= p.most {
			return n, ""
		}
	case kindFlag:
		return p.readFlag(raw, s, isText)
	case kindList:
		if list := readList(raw, s, isText); list != nil {
			return list, ""
		}
	case kindText, kindURL:
		fits := isText && s != "" && int64(utf8.RuneCountInString(s)) <= p.mostRunes()
		if fits && (p.oneOf == nil || slices.Contains(p.oneOf, s)) {
			return s, ""
		}
	}
	return nil, ""
}

// readFlag accepts true, false, and their text. Any other value counts as false, with a warning, because a flag permits something.
func (p *param) readFlag(raw json.RawMessage, s string, isText bool) (any, string) {
	if !isText {
		s = string(raw)
	}
	warning := ""
	if s != "true" && s != "false" {
		warning = fmt.Sprintf("%s must be %s; %s was treated as false.", p.name, p.form(), shown(raw))
	}
	return s == "true", warning
}

var digitsOnly = regexp.MustCompile(`^(0|[1-9][0-9]{0,77})$`)

// digits returns the digits of a nonnegative integer of at most 78 digits, or of its text, or "" for any other value.
func digits(raw json.RawMessage, s string, isText bool) string {
	if !isText {
		s = string(raw)
	}
	if !digitsOnly.MatchString(s) {
		return ""
	}
	return s
}

// isID reports whether s is an id. It rejects JSON numbers above maxInteger, which a host may have rounded.
func isID(s string, isText bool) bool {
	if _, err := toll.ParsePlanID(s); err != nil {
		return false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return isText || err == nil && n <= maxInteger
}

// readList returns the trimmed entries of an array of strings and integers, or of one string with commas. It returns nil for
// any other value, for empty or too long entries, and for more than maxList entries.
func readList(raw json.RawMessage, s string, isText bool) []string {
	list := strings.Split(s, ",")
	if !isText {
		if list = readArray(raw); list == nil {
			return nil
		}
	}
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
		if list[i] == "" || utf8.RuneCountInString(list[i]) > maxEntry {
			return nil
		}
	}
	if len(list) == 0 || len(list) > maxList {
		return nil
	}
	return list
}

// readArray returns the entries of an array as strings. It rejects integers above maxInteger, which a host may have rounded.
func readArray(raw json.RawMessage) []string {
	var entries []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || x402.Decode(raw, &entries) != nil {
		return nil
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		if x402.Decode(e, &list[i]) == nil {
			continue
		}
		n, err := strconv.ParseInt(digits(e, "", false), 10, 64)
		if err != nil || n > maxInteger {
			return nil
		}
		list[i] = strconv.FormatInt(n, 10)
	}
	return list
}
