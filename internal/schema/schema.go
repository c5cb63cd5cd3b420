// Package schema checks an untrusted JSON value against an untrusted JSON Schema. [Check] does not fetch references, and counts
// every step, so that its work is bounded without goroutines and timers.
package schema

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Budget is the usual budget of a check, in steps of well under a microsecond.
const Budget = 20_000

// ErrMisfit means that the value does not match the schema.
var ErrMisfit = errors.New("the value does not match the schema")

// ErrWork means that the check exceeds its budget, for example because the schema refers to itself without end.
var ErrWork = errors.New("the schema is too complex to check")

// Dialect is the only accepted value of $schema.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Check returns nil if value fits the schema (JSON Schema, draft 2020-12) within budget steps. Both are JSON decoded into an any.
// References must lead to members of $defs at the root of the schema. Patterns have the syntax of package regexp. Unknown keywords
// and format are ignored. It returns [ErrMisfit], [ErrWork], or an error that names a malformed or unsupported part of the schema.
func Check(schema, value any, budget int) error {
	c := checker{left: budget}
	if root, ok := schema.(map[string]any); ok {
		c.defs, _ = root["$defs"].(map[string]any)
	}
	fits := c.fits(schema, value)
	if c.err == nil && !fits {
		return ErrMisfit
	}
	return c.err
}

// checker is one check. It stops at its first error.
type checker struct {
	defs     map[string]any
	patterns map[string]pattern
	left     int
	err      error
}

// pattern is a regular expression, and the bound of its program.
type pattern struct {
	re   *regexp.Regexp
	size int
}

// spend takes steps from the budget and reports whether the check continues.
func (c *checker) spend(steps int) bool {
	if c.err != nil {
		return false
	}
	if c.left -= steps; c.left < 0 {
		c.err = ErrWork
	}
	return c.err == nil
}

func (c *checker) fail(format string, args ...any) bool {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	return false
}

func (c *checker) malformed(word string) bool { return c.fail("the schema's %s is malformed", word) }

// fits reports whether a value fits a schema. It applies every keyword, even after a misfit, so that steps and errors do not
// depend on the order of a map.
func (c *checker) fits(schema, v any) bool {
	if !c.spend(1) {
		return false
	}
	switch s := schema.(type) {
	case bool:
		return s
	case map[string]any:
		ok := c.spend(len(s))
		for _, word := range slices.Sorted(maps.Keys(s)) {
			ok = c.word(s, word, s[word], v) && ok
		}
		return ok
	}
	return c.fail("a part of the schema is neither an object nor a boolean")
}

// all reports whether every value of a list fits a schema.
func (c *checker) all(schema any, values []any) bool {
	ok := true
	for _, v := range values {
		ok = c.fits(schema, v) && ok
	}
	return ok
}

// count returns the number of schemas in a list that a value fits, and the length of the list.
func (c *checker) count(word string, arg, v any) (fits, of int) {
	list, ok := arg.([]any)
	if !ok || len(list) == 0 {
		c.malformed(word)
	}
	for _, s := range list {
		if c.fits(s, v) {
			fits++
		}
	}
	return fits, len(list)
}

// word reports whether a value fits one keyword of a schema.
func (c *checker) word(s map[string]any, word string, arg, v any) bool {
	if c.err != nil {
		return false
	}
	switch word {
	case "$schema":
		return arg == Dialect || c.fail("the schema must use draft 2020-12")
	case "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary",
		"definitions", "dependencies", "additionalItems", "unevaluatedItems", "unevaluatedProperties":
		return c.fail("the schema has %s, which is not supported", word)
	case "$ref":
		return c.reference(arg, v)
	case "type":
		return c.isType(arg, v)
	case "enum":
		list, ok := arg.([]any)
		return ok && c.contains(list, v) || !ok && c.malformed(word)
	case "const":
		return c.equal(arg, v)
	case "allOf":
		fits, of := c.count(word, arg, v)
		return fits == of
	case "anyOf":
		fits, _ := c.count(word, arg, v)
		return fits > 0
	case "oneOf":
		fits, _ := c.count(word, arg, v)
		return fits == 1
	case "not":
		return !c.fits(arg, v)
	case "if":
		branch, ok := s["else"]
		if c.fits(arg, v) {
			branch, ok = s["then"]
		}
		return !ok || c.fits(branch, v)
	}
	switch v := v.(type) {
	case float64:
		return c.number(word, arg, v)
	case string:
		return c.text(word, arg, v)
	case []any:
		return c.array(s, word, arg, v)
	case map[string]any:
		return c.object(s, word, arg, v)
	}
	return true
}

func (c *checker) reference(arg, v any) bool {
	to, _ := arg.(string)
	name, inside := strings.CutPrefix(to, "#/$defs/")
	if !inside || strings.ContainsAny(name, "/~%") {
		return c.fail("the schema has a reference that does not point to its own $defs")
	}
	def, ok := c.defs[name]
	if !ok {
		return c.fail("the schema has a reference to a missing definition")
	}
	return c.fits(def, v)
}

func (c *checker) isType(arg, v any) bool {
	words, ok := arg.([]any)
	if !ok {
		words = []any{arg}
	}
	fits := false
	for _, w := range words {
		switch w {
		case "null":
			fits = fits || v == nil
		case "boolean":
			_, is := v.(bool)
			fits = fits || is
		case "string":
			_, is := v.(string)
			fits = fits || is
		case "number":
			_, is := v.(float64)
			fits = fits || is
		case "integer":
			n, is := v.(float64)
			fits = fits || is && n == math.Trunc(n)
		case "array":
			_, is := v.([]any)
			fits = fits || is
		case "object":
			_, is := v.(map[string]any)
			fits = fits || is
		default:
			return c.malformed("type")
		}
	}
	return c.spend(len(words)) && fits
}

func (c *checker) contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(e any) bool { return c.equal(e, v) })
}

// equal reports whether two JSON values are equal.
func (c *checker) equal(a, b any) bool {
	if !c.spend(1) {
		return false
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b && c.spend(len(a)/64)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, c.equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		same := ok && len(a) == len(b)
		for name, v := range a {
			if !ok || len(a) != len(b) {
				return false
			}
			other, has := b[name]
			same = has && c.equal(v, other) && same
		}
		return same
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func (c *checker) number(word string, arg any, v float64) bool {
	switch word {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
	default:
		return true
	}
	bound, ok := arg.(float64)
	if !ok || word == "multipleOf" && bound <= 0 {
		return c.malformed(word)
	}
	switch word {
	case "minimum":
		return v >= bound
	case "maximum":
		return v <= bound
	case "exclusiveMinimum":
		return v > bound
	case "exclusiveMaximum":
		return v < bound
	}
	q := v / bound
	return q == math.Trunc(q) && !math.IsInf(q, 0)
}

func (c *checker) text(word string, arg any, v string) bool {
	switch word {
	case "minLength", "maxLength":
		return c.spend(len(v)/64) && c.within(word, arg, utf8.RuneCountInString(v))
	case "pattern":
		return c.matches(arg, v)
	}
	return true
}

// within reports whether a count is within the bound of a keyword that begins with min or max.
func (c *checker) within(word string, arg any, n int) bool {
	bound, ok := arg.(float64)
	if !ok || bound < 0 || bound != math.Trunc(bound) {
		return c.malformed(word)
	}
	if strings.HasPrefix(word, "min") {
		return float64(n) >= bound
	}
	return float64(n) <= bound
}

func (c *checker) array(s map[string]any, word string, arg any, v []any) bool {
	switch word {
	case "minItems", "maxItems":
		return c.within(word, arg, len(v))
	case "uniqueItems":
		wanted, ok := arg.(bool)
		if !ok {
			return c.malformed(word)
		}
		for i := range v {
			if wanted && c.contains(v[:i], v[i]) {
				return false
			}
		}
	case "prefixItems":
		list, ok := arg.([]any)
		if !ok {
			return c.malformed(word)
		}
		fits := true
		for i := range min(len(list), len(v)) {
			fits = c.fits(list[i], v[i]) && fits
		}
		return fits
	case "items":
		before, _ := s["prefixItems"].([]any)
		return c.all(arg, v[min(len(before), len(v)):])
	case "contains":
		n := 0
		for _, e := range v {
			if c.fits(arg, e) {
				n++
			}
		}
		least, bounded := s["minContains"]
		if !bounded {
			least = 1.0
		}
		most, bounded := s["maxContains"]
		return c.within("minContains", least, n) && (!bounded || c.within("maxContains", most, n))
	}
	return true
}

func (c *checker) object(s map[string]any, word string, arg any, v map[string]any) bool {
	switch word {
	case "minProperties", "maxProperties":
		return c.within(word, arg, len(v))
	case "required":
		return c.has(word, arg, v)
	case "propertyNames":
		fits := true
		for name := range v {
			fits = c.fits(arg, name) && fits
		}
		return fits
	case "additionalProperties":
		return c.additional(s, arg, v)
	case "properties", "patternProperties", "dependentRequired", "dependentSchemas":
	default:
		return true
	}
	members, ok := arg.(map[string]any)
	if !ok {
		return c.malformed(word)
	}
	fits := c.spend(len(members))
	for name, member := range members {
		value, has := v[name]
		switch word {
		case "properties":
			fits = (!has || c.fits(member, value)) && fits
		case "dependentRequired":
			fits = (!has || c.has(word, member, v)) && fits
		case "dependentSchemas":
			fits = (!has || c.fits(member, v)) && fits
		case "patternProperties":
			c.compiled(name) // reports a malformed pattern even if v has no properties
			for property, value := range v {
				fits = (!c.matches(name, property) || c.fits(member, value)) && fits
			}
		}
	}
	return fits
}

// has reports whether an object has the properties of a list.
func (c *checker) has(word string, arg any, v map[string]any) bool {
	list, ok := arg.([]any)
	fits := c.spend(len(list))
	for _, e := range list {
		name, isText := e.(string)
		ok = ok && isText
		_, has := v[name]
		fits = fits && has
	}
	return ok && fits || !ok && c.malformed(word)
}

// additional applies a schema to the properties that neither properties nor patternProperties name.
func (c *checker) additional(s map[string]any, schema any, v map[string]any) bool {
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	fits := true
	for name, value := range v {
		_, named := properties[name]
		for p := range patterns {
			named = c.matches(p, name) || named
		}
		fits = (named || c.fits(schema, value)) && fits
	}
	return fits
}
