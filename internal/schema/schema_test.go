package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/schema"
)

func decoded(t interface{ Fatalf(string, ...any) }, text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestCheck(t *testing.T) {
	const fits, not = "", "the value does not match the schema"
	for _, c := range []struct{ schema, value, want string }{
		{`true`, `1`, fits}, {`false`, `1`, not}, {`{}`, `null`, fits}, {`7`, `1`, "a part of the schema is neither"},
		{`{"type":"object"}`, `{}`, fits}, {`{"type":["string","null"]}`, `null`, fits}, {`{"type":"integer"}`, `1.5`, not},
		{`{"type":"integer"}`, `2.0`, fits}, {`{"type":7}`, `1`, "type is malformed"}, {`{"type":"text"}`, `1`, "type is malformed"},
		{`{"enum":[1,{"a":[2]}]}`, `{"a":[2]}`, fits}, {`{"enum":[1]}`, `"1"`, not}, {`{"enum":1}`, `1`, "enum is malformed"},
		{`{"const":null}`, `null`, fits}, {`{"const":false}`, `0`, not}, {`{"const":{"a":1}}`, `{"a":1,"b":2}`, not},
		{`{"minimum":2,"exclusiveMaximum":3}`, `2`, fits}, {`{"exclusiveMinimum":2}`, `2`, not}, {`{"maximum":1}`, `2`, not},
		{`{"multipleOf":2}`, `4`, fits}, {`{"multipleOf":0}`, `4`, "multipleOf is malformed"}, {`{"minimum":"1"}`, `4`, "minimum is malformed"},
		{`{"minLength":2,"maxLength":2}`, `"éé"`, fits}, {`{"maxLength":1}`, `"éé"`, not}, {`{"minLength":-1}`, `""`, "minLength is malformed"},
		{`{"pattern":"^a+$"}`, `"aaa"`, fits}, {`{"pattern":"^a+$"}`, `"ab"`, not}, {`{"pattern":"("}`, `"ab"`, "pattern that is not supported"},
		{`{"pattern":"(?=a)"}`, `"ab"`, "pattern that is not supported"}, {`{"pattern":1}`, `"ab"`, "pattern is malformed"},
		{`{"minItems":1,"maxItems":2,"uniqueItems":true}`, `[1,2]`, fits}, {`{"uniqueItems":true}`, `[[1],[1]]`, not},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"number"}}`, `["a",1]`, fits}, {`{"prefixItems":[{"type":"string"}]}`, `[1]`, not},
		{`{"prefixItems":[true],"items":false}`, `[1,2]`, not}, {`{"contains":{"const":1}}`, `[2,1]`, fits}, {`{"contains":{"const":1}}`, `[2]`, not},
		{`{"contains":{"const":1},"minContains":0}`, `[2]`, fits}, {`{"contains":{"const":1},"maxContains":1}`, `[1,1]`, not},
		{`{"properties":{"a":{"type":"string"}},"required":["a"]}`, `{"a":"x"}`, fits}, {`{"required":["a"]}`, `{}`, not},
		{`{"required":"a"}`, `{}`, "required is malformed"}, {`{"properties":[]}`, `{}`, "properties is malformed"},
		{`{"properties":{"a":true},"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`, `{"a":1,"x-b":"c"}`, fits},
		{`{"properties":{"a":true},"additionalProperties":{"type":"string"}}`, `{"b":1}`, not}, {`{"patternProperties":{"^x-":false}}`, `{"x-b":1}`, not},
		{`{"patternProperties":{"(":{}}}`, `{}`, "pattern that is not supported"}, {`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, not},
		{`{"minProperties":1,"maxProperties":1}`, `{"ab":1}`, fits}, {`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, not},
		{`{"dependentSchemas":{"a":{"required":["b"]}}}`, `{"a":1,"b":2}`, fits},
		{`{"allOf":[{"minimum":1},{"maximum":3}]}`, `2`, fits}, {`{"anyOf":[{"const":1},{"const":2}]}`, `3`, not}, {`{"oneOf":[true,true]}`, `3`, not},
		{`{"oneOf":[false,true]}`, `3`, fits}, {`{"not":{"const":1}}`, `1`, not}, {`{"allOf":[]}`, `1`, "allOf is malformed"},
		{`{"if":{"const":1},"then":{"type":"string"},"else":true}`, `1`, not}, {`{"if":{"const":1},"then":{"type":"string"}}`, `2`, fits},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, `"x"`, fits}, {`{"$ref":"#/$defs/b","$defs":{"a":{}}}`, `"x"`, "missing definition"},
		{`{"$defs":{"t":{"properties":{"n":{"$ref":"#/$defs/t"}},"required":["v"]}},"$ref":"#/$defs/t"}`, `{"v":1,"n":{"v":2}}`, fits},
		{`{"$ref":"https://x.example/s.json"}`, `1`, "does not point to its own $defs"}, {`{"$ref":"#"}`, `1`, "does not point to its own $defs"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `1`, "must use draft 2020-12"}, {`{"$schema":"` + schema.Dialect + `"}`, `1`, fits},
		{`{"$id":"https://x.example/"}`, `1`, "has $id"}, {`{"unevaluatedProperties":false}`, `{}`, "has unevaluatedProperties"},
		{`{"properties":{"$id":{"type":"string"}}}`, `{"$id":"x"}`, fits}, {`{"title":7,"format":"uri","x-other":{}}`, `"x"`, fits},
	} {
		got := ""
		if err := schema.Check(decoded(t, c.schema), decoded(t, c.value), schema.Budget); err != nil {
			got = err.Error()
		}
		if c.want == fits && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %q, want %q", c.schema, c.value, got, c.want)
		}
	}
}

// What a schema multiplies is counted before it is done: no schema of 8 KB takes longer than a moment.
// T182
func TestWorkIsBounded(t *testing.T) {
	times := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	wide := func(leaf string) string {
		return `{"allOf":[` + times(3, `{"$ref":"#/$defs/a"}`) + `],"$defs":{"a":{"allOf":[` + times(3, `{"$ref":"#/$defs/b"}`) +
			`]},"b":{"allOf":[` + times(2, `{"$ref":"#/$defs/c"}`) + `]},"c":` + leaf + `}}`
	}
	numbers := make([]string, 1500)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	zeros, text := "["+times(1900, "0")+"]", `"`+strings.Repeat("a", 3000)+`"`
	for name, c := range map[string]struct{ schema, value string }{
		"values times branches": {wide(`{"items":{"anyOf":[` + times(300, `{"const":1}`) + `,{}]}}`), zeros},
		"repetitions":           {wide(`{"allOf":[` + times(150, `{"pattern":"(a?){1000}$"}`) + `]}`), text},
		"one repetition":        {`{"pattern":"((a?){30}){30}$"}`, text},
		"classes":               {`{"pattern":"(?i)` + strings.Repeat(`\\PL`, 1900) + `"}`, text},
		"names times patterns":  {`{"items":{"patternProperties":{` + times(1, `"a{900}":{}`) + `}}}`, `[` + times(600, `{"aaaaaaa":0}`) + `]`},
		"circle":                {`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`, `1`},
		"tree":                  {`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}}`, `1`},
		"unique":                {`{"uniqueItems":true}`, "[" + strings.Join(numbers, ",") + "]"},
		"enum":                  {`{"items":{"enum":[` + strings.Join(numbers, ",") + `]}}`, "[" + times(1900, "-1") + "]"},
		"required":              {`{"items":{"required":[` + times(900, `"a"`) + `]}}`, `[` + times(900, "{}") + `]`},
		"unknown words":         {`{"items":{` + words(600) + `}}`, zeros},
	} {
		s, v := decoded(t, c.schema), decoded(t, c.value)
		began := time.Now()
		if err := schema.Check(s, v, schema.Budget); !errors.Is(err, schema.ErrWork) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

func words(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"w%d":0,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// An ordinary description of a resource has much room.
func TestBudgetIsAmple(t *testing.T) {
	const input = `{"type":"object","properties":{"type":{"const":"http"},"method":{"enum":["POST"]},"bodyType":{"enum":["json"]},"body":{"type":"object","properties":{` +
		`"email":{"type":"string","format":"email","pattern":"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$"},"tags":{"type":"array","items":{"type":"string","maxLength":64}}},` +
		`"required":["email"],"additionalProperties":false}},"required":["type","method"]}`
	const value = `{"input":{"type":"http","method":"POST","bodyType":"json","body":{"email":"somebody@example.com","tags":["a","b","c"]}}}`
	s := decoded(t, `{"$schema":"`+schema.Dialect+`","type":"object","properties":{"input":`+input+`},"required":["input"]}`)
	if err := schema.Check(s, decoded(t, value), schema.Budget/10); err != nil {
		t.Error(err)
	}
}

// Where both take a schema, the verdict is that of another implementation.
func TestVerdictsOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, v := anySchema(3).Draw(t, "schema"), anyValue(3).Draw(t, "value")
		other := new(jsonschema.Schema)
		if err := other.UnmarshalJSON([]byte(s)); err != nil {
			return // it refuses the schema itself
		}
		resolved, err := other.Resolve(nil)
		if err != nil {
			return // it refuses the schema itself
		}
		value := decoded(t, v)
		want, got := resolved.Validate(value), schema.Check(decoded(t, s), value, schema.Budget)
		if got != nil && !errors.Is(got, schema.ErrMisfit) || (got == nil) != (want == nil) {
			t.Fatalf("%s of %s: %v, another says %v", s, v, got, want)
		}
	})
}

func anyValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return "null"
		case 1:
			return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
		case 2:
			return rapid.SampledFrom([]string{"0", "1", "2", "1.5", "-3"}).Draw(t, "number")
		case 3:
			return rapid.SampledFrom([]string{`""`, `"a"`, `"ab"`, `"é"`}).Draw(t, "text")
		case 4:
			return "[" + strings.Join(rapid.SliceOfN(anyValue(depth-1), 0, 3).Draw(t, "list"), ",") + "]"
		}
		return objectOf(t, "object", anyValue(depth-1))
	})
}

func objectOf(t *rapid.T, label string, member *rapid.Generator[string]) string {
	var members []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "ab"}), 0, 3, rapid.ID).Draw(t, label) {
		members = append(members, `"`+name+`":`+member.Draw(t, name))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func anySchema(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if depth == 0 {
			return rapid.SampledFrom([]string{"true", "false", "{}", `{"type":"string"}`, `{"type":["number","null"]}`, `{"const":1}`}).Draw(t, "leaf")
		}
		sub := anySchema(depth - 1)
		list := func(label string) string {
			return "[" + strings.Join(rapid.SliceOfN(sub, 1, 3).Draw(t, label), ",") + "]"
		}
		count := func(label string) string { return fmt.Sprint(rapid.IntRange(0, 3).Draw(t, label)) }
		var members []string
		for _, word := range rapid.SliceOfNDistinct(rapid.SampledFrom(strings.Fields(
			"type enum const minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern minItems maxItems uniqueItems items prefixItems contains "+
				"properties patternProperties additionalProperties propertyNames required minProperties maxProperties dependentRequired dependentSchemas allOf anyOf oneOf not if then else",
		)), 0, 4, rapid.ID).Draw(t, "words") {
			arg := ""
			switch word {
			case "type":
				arg = rapid.SampledFrom([]string{`"null"`, `"boolean"`, `"string"`, `"number"`, `"integer"`, `"array"`, `"object"`}).Draw(t, word)
			case "enum":
				arg = "[" + strings.Join(rapid.SliceOfN(anyValue(1), 1, 3).Draw(t, word), ",") + "]"
			case "const":
				arg = anyValue(1).Draw(t, word)
			case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
				arg = count(word)
			case "pattern":
				arg = rapid.SampledFrom([]string{`"^a"`, `"b$"`, `"."`}).Draw(t, word)
			case "uniqueItems":
				arg = "true"
			case "prefixItems", "allOf", "anyOf", "oneOf":
				arg = list(word)
			case "properties", "patternProperties", "dependentSchemas":
				arg = objectOf(t, word, sub)
			case "required":
				arg = rapid.SampledFrom([]string{`["a"]`, `["a","b"]`, `[]`}).Draw(t, word)
			case "dependentRequired":
				arg = objectOf(t, word, rapid.Just(`["a"]`))
			default:
				arg = sub.Draw(t, word)
			}
			members = append(members, `"`+word+`":`+arg)
		}
		return "{" + strings.Join(members, ",") + "}"
	})
}
