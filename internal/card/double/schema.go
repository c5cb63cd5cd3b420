package double

import (
	"slices"
	"strconv"
	"strings"
)

// schema says which parameters a route takes, by path, where * stands for the number of an item.
type schema map[string]rule

type rule struct {
	kind     string   // text, int, bool, map, currency or enum
	words    []string // of an enum
	required bool
}

// kinds are the words of a schema that name a kind. Any other word lists the values of an enum.
var kinds = []string{"int", "bool", "map", "currency"}

// takes reads a schema from words: "amount:int! mode:payment|setup expand.*". The kind is text when
// none is given, and an exclamation mark means that the parameter is required.
func takes(spec string) schema {
	s := schema{"expand.*": {kind: "text"}}
	for _, word := range strings.Fields(spec) {
		word, required := strings.CutSuffix(word, "!")
		path, kind, given := strings.Cut(word, ":")
		r := rule{kind: kind, required: required}
		switch {
		case !given:
			r.kind = "text"
		case !slices.Contains(kinds, kind):
			r.kind, r.words = "enum", strings.Split(kind, "|")
		}
		s[path] = r
	}
	return s
}

// check refuses parameters that are unknown, missing or malformed.
func (s schema) check(p params) *failure {
	metadata := 0
	for path, value := range p {
		r, ok := s.find(path)
		if !ok {
			name := bracketed(path)
			return invalidParam(name, "parameter_unknown", "Received unknown parameter: %s", name)
		}
		if r.kind == "map" {
			metadata++
		}
		if f := r.check(bracketed(path), value); f != nil {
			return f
		}
	}
	if metadata > maxMetadata {
		return invalidParam("metadata", "", "You can only have %d keys in metadata", maxMetadata)
	}
	for path, r := range s {
		if r.required && p[path] == "" {
			return invalidParam(path, "parameter_missing", "Missing required param: %s.", path)
		}
	}
	return nil
}

// find returns the rule of a path; a.3.b has that of a.*.b, and metadata.k that of metadata.
func (s schema) find(path string) (rule, bool) {
	if r, ok := s[path]; ok {
		return r, true
	}
	segments := strings.Split(path, ".")
	for i, segment := range segments {
		if i > 0 && s[strings.Join(segments[:i], ".")].kind == "map" {
			return rule{kind: "map"}, true
		}
		if n, err := strconv.Atoi(segment); i > 0 && err == nil && n >= 0 && n < maxParams {
			segments[i] = "*"
		}
	}
	r, ok := s[strings.Join(segments, ".")]
	return r, ok
}

func (r rule) check(name, value string) *failure {
	switch r.kind {
	case "int":
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			return invalidParam(name, "parameter_invalid_integer", "Invalid integer: %s", value)
		}
	case "bool":
		if value != "true" && value != "false" {
			return invalidParam(name, "", "Invalid boolean: %s", value)
		}
	case "enum":
		if !slices.Contains(r.words, value) {
			words := strings.Join(r.words, ", ")
			return invalidParam(name, "", "Invalid %s: must be one of %s", name, words)
		}
	case "currency":
		if value != "usd" && value != "eur" {
			return invalidParam(name, "", "Invalid currency: %s. Use usd or eur", value)
		}
	case "map":
		if key := strings.TrimSuffix(name[strings.LastIndex(name, "[")+1:], "]"); len(key) > 40 {
			return invalidParam(name, "", "Metadata keys can have up to 40 characters")
		}
		if len(value) > 500 {
			return invalidParam(name, "", "Metadata values can have up to 500 characters")
		}
	}
	return nil
}
