package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// matcher compares an answer with what a conformance file wants (testdata/conformance/README.md).
type matcher struct {
	captured map[string]any
	faults   []string
}

func (m *matcher) fault(path, format string, args ...any) {
	if path == "" {
		path = "the body"
	}
	m.faults = append(m.faults, path+": "+fmt.Sprintf(format, args...))
}

// types are the words of $type, with the grammar of their texts.
var types = map[string]*regexp.Regexp{
	"hash":    regexp.MustCompile(`^0x[0-9a-f]{64}$`),
	"address": regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`),
	"uuid":    regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`),
	"id256":   regexp.MustCompile(`^[1-9][0-9]{0,77}$`),
	"credits": regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`),
	"units":   regexp.MustCompile(`^(0|[1-9][0-9]{0,77})$`),
	"cents":   regexp.MustCompile(`^(0|[1-9][0-9]{0,12})$`),
	"reqid":   regexp.MustCompile(`^req_[0-9a-z]{1,124}$`),
	"time":    regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`),
	"jwt":     regexp.MustCompile(`^[\w-]+\.[\w-]+\.[\w-]+$`),
	"url":     regexp.MustCompile(`^https?://[^\s]+$`),
	"text":    regexp.MustCompile(`(?s)^.+$`),
}

// value compares one value; there says whether the member exists at all.
func (m *matcher) value(path string, want, got any, there bool) {
	switch want := want.(type) {
	case map[string]any:
		if isOperator(want) {
			m.operator(path, want, got, there)
			return
		}
		object, ok := got.(map[string]any)
		if !ok {
			m.fault(path, "wanted an object, got %s", show(got, there))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			v, there := object[name]
			m.value(join(path, name), want[name], v, there)
		}
	case []any:
		array, ok := got.([]any)
		if !ok || len(array) != len(want) {
			m.fault(path, "wanted an array of %d, got %s", len(want), show(got, there))
			return
		}
		for i := range want {
			m.value(fmt.Sprintf("%s[%d]", path, i), want[i], array[i], true)
		}
	default:
		if !there || want != got {
			m.fault(path, "wanted %s, got %s", show(want, true), show(got, there))
		}
	}
}

// isOperator tells {"$type": ...} from an object that is wanted as it is.
func isOperator(want map[string]any) bool {
	for name := range want {
		if strings.HasPrefix(name, "$") {
			return true
		}
	}
	return false
}

func (m *matcher) operator(path string, want map[string]any, got any, there bool) {
	if want["$absent"] == true {
		if there {
			m.fault(path, "wanted nothing there, got %s", show(got, there))
		}
		return
	}
	if !there {
		m.fault(path, "is not there")
		return
	}
	before := len(m.faults)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		m.apply(path, name, want[name], got)
	}
	if name, ok := want["$capture"].(string); ok && len(m.faults) == before {
		if got == nil {
			m.fault(path, "is null and cannot be captured")
			return
		}
		m.captured[name] = got
	}
}

func (m *matcher) apply(path, name string, want, got any) {
	text, isText := got.(string)
	switch name {
	case "$any", "$capture":
	case "$type":
		if word, _ := want.(string); !hasType(word, got) {
			m.fault(path, "wanted %v, got %s", want, show(got, true))
		}
	case "$match":
		pattern, err := regexp.Compile(fmt.Sprint(want))
		if err != nil || !isText || !pattern.MatchString(text) {
			m.fault(path, "wanted a text like %v, got %s", want, show(got, true))
		}
	case "$is":
		m.value(path, want, got, true)
	case "$not":
		if (&matcher{captured: map[string]any{}}).equal(want, got) {
			m.fault(path, "wanted anything but %s", show(want, true))
		}
	case "$oneOf":
		list, _ := want.([]any)
		if !slices.ContainsFunc(list, func(w any) bool { return (&matcher{captured: m.captured}).equal(w, got) }) {
			m.fault(path, "wanted one of %s, got %s", show(want, true), show(got, true))
		}
	case "$length", "$each", "$contains":
		m.list(path, name, want, got)
	case "$only":
		m.only(path, want, got)
	case "$json":
		m.inner(path, "JSON", []byte(text), isText, want)
	case "$base64":
		plain, err := base64.StdEncoding.DecodeString(text)
		m.inner(path, "base64 of JSON", plain, isText && err == nil, want)
	case "$jwt":
		parts := strings.Split(text, ".")
		if len(parts) != 3 {
			m.fault(path, "wanted a JWT, got %s", show(got, true))
			return
		}
		plain, err := base64.RawURLEncoding.DecodeString(parts[1])
		m.inner(path, "a JWT", plain, err == nil, want)
	default:
		m.fault(path, "the file has an operator that does not exist: %s", name)
	}
}

func (m *matcher) equal(want, got any) bool {
	m.value("", want, got, true)
	return len(m.faults) == 0
}

func (m *matcher) list(path, name string, want, got any) {
	array, ok := got.([]any)
	if !ok {
		m.fault(path, "wanted an array, got %s", show(got, true))
		return
	}
	switch name {
	case "$length":
		if fmt.Sprint(want) != strconv.Itoa(len(array)) {
			m.fault(path, "wanted %v items, got %d", want, len(array))
		}
	case "$each":
		for i, item := range array {
			m.value(fmt.Sprintf("%s[%d]", path, i), want, item, true)
		}
	case "$contains":
		for _, item := range array {
			probe := &matcher{captured: maps.Clone(m.captured)}
			if probe.equal(want, item) {
				maps.Copy(m.captured, probe.captured)
				return
			}
		}
		m.fault(path, "no item is like %s in %s", show(want, true), show(got, true))
	}
}

// only wants an object without other members.
func (m *matcher) only(path string, want, got any) {
	wanted, _ := want.(map[string]any)
	object, ok := got.(map[string]any)
	if !ok {
		m.fault(path, "wanted an object, got %s", show(got, true))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if _, ok := wanted[name]; !ok {
			m.fault(join(path, name), "wanted nothing there, got %s", show(object[name], true))
		}
	}
	m.value(path, want, got, true)
}

func (m *matcher) inner(path, what string, text []byte, ok bool, want any) {
	var v any
	if ok {
		var err error
		v, err = parseJSON(text)
		ok = err == nil
	}
	if !ok {
		m.fault(path, "wanted %s", what)
		return
	}
	m.value(path+"("+what+")", want, v, true)
}

func hasType(word string, got any) bool {
	switch word {
	case "string":
		_, ok := got.(string)
		return ok
	case "number":
		_, ok := got.(json.Number)
		return ok
	case "int":
		n, ok := got.(json.Number)
		_, err := strconv.ParseInt(n.String(), 10, 64)
		return ok && err == nil
	case "bool":
		_, ok := got.(bool)
		return ok
	case "object":
		_, ok := got.(map[string]any)
		return ok
	case "array":
		_, ok := got.([]any)
		return ok
	}
	text, ok := got.(string)
	grammar := types[word]
	if !ok || grammar == nil || !grammar.MatchString(text) {
		return false
	}
	if word == "address" {
		a, err := toll.ParseAddress(text)
		return err == nil && a.String() == text // EIP-55 case
	}
	return true
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func show(v any, there bool) string {
	if !there {
		return "nothing"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 600 {
		return string(text[:600]) + "…"
	}
	return string(text)
}

// The matcher is what the whole suite rests on, so each of its words is seen to refuse.
func TestConformance_Matcher(t *testing.T) {
	for _, c := range []struct{ want, got, fault string }{
		{`{"a":1}`, `{"a":1,"b":2}`, ""},
		{`{"a":1}`, `{"a":"1"}`, "a: wanted"},
		{`{"a":1}`, `{"a":1.0}`, "a: wanted"},
		{`{"a":null}`, `{"a":null}`, ""},
		{`{"a":null}`, `{}`, "a: wanted null, got nothing"},
		{`{"a":{"$absent":true}}`, `{"a":null}`, "a: wanted nothing"},
		{`{"a":{"$absent":true}}`, `{}`, ""},
		{`{"a":{"$any":true}}`, `{"a":null}`, ""},
		{`{"a":{"$any":true}}`, `{}`, "a: is not there"},
		{`{"a":[1,2]}`, `{"a":[1,2,3]}`, "a: wanted an array of 2"},
		{`{"a":{"$length":2}}`, `{"a":[1,2]}`, ""},
		{`{"a":{"$length":2}}`, `{"a":[1]}`, "a: wanted 2"},
		{`{"a":{"$each":{"b":1}}}`, `{"a":[{"b":1},{"b":2}]}`, "a[1].b: wanted 1"},
		{`{"a":{"$contains":{"b":2}}}`, `{"a":[{"b":1},{"b":2}]}`, ""},
		{`{"a":{"$contains":{"b":3}}}`, `{"a":[{"b":1},{"b":2}]}`, "a: no item"},
		{`{"a":{"$match":"^x+$"}}`, `{"a":"xxy"}`, "a: wanted a text"},
		{`{"a":{"$oneOf":["x","y"]}}`, `{"a":"z"}`, "a: wanted one of"},
		{`{"a":{"$not":"z"}}`, `{"a":"z"}`, "a: wanted anything but"},
		{`{"$only":{"a":1}}`, `{"a":1,"b":2}`, "b: wanted nothing"},
		{`{"a":{"$json":{"b":1}}}`, `{"a":"{\"b\":2}"}`, "a(JSON).b: wanted 1"},
		{`{"a":{"$base64":{"b":1}}}`, `{"a":"eyJiIjoxfQ=="}`, ""},
		{`{"a":{"$jwt":{"b":1}}}`, `{"a":"e30.eyJiIjoyfQ.x"}`, "a(a JWT).b: wanted 1"},
		{`{"a":{"$type":"hash"}}`, `{"a":"0x12"}`, "a: wanted hash"},
		{`{"a":{"$type":"address"}}`, `{"a":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"}`, ""},
		{`{"a":{"$type":"address"}}`, `{"a":"0x70997970c51812dc3a010c7d01b50e0d17dc79c8"}`, "a: wanted address"},
		{`{"a":{"$type":"credits"}}`, `{"a":5}`, "a: wanted credits"},
		{`{"a":{"$type":"int"}}`, `{"a":5.5}`, "a: wanted int"},
		{`{"a":{"$type":"time"}}`, `{"a":"2026-11-21T01:52:18Z"}`, "a: wanted time"},
		{`{"a":{"$type":"noSuchType"}}`, `{"a":"x"}`, "a: wanted noSuchType"},
		{`{"a":{"$typo":1}}`, `{"a":"x"}`, "a: the file has an operator that does not exist"},
	} {
		want := must.Get(parseJSON([]byte(c.want)))(t)
		got := must.Get(parseJSON([]byte(c.got)))(t)
		m := &matcher{captured: map[string]any{}}
		m.value("", want, got, true)
		if text := strings.Join(m.faults, "; "); (text == "") != (c.fault == "") || !strings.HasPrefix(text, c.fault) {
			t.Errorf("%s against %s: %q, want %q", c.got, c.want, text, c.fault)
		}
	}
}
