package modelapi

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is the deepest nesting of a request. Schemas of tools nest two levels for each object.
const maxDepth = 128

// member is one member of an object. The value is compact.
type member struct {
	name  string
	value jsontext.Value
}

// normalize reads strict JSON and returns it compact: strings are decoded and encoded again, numbers keep their digits.
func normalize(body []byte) (jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	var b bytes.Buffer
	b.Grow(len(body))
	enc := jsontext.NewEncoder(&b, jsontext.AllowDuplicateNames(true)) // dec has checked the names
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(err)
		}
		if dec.StackDepth() > maxDepth {
			return nil, errors.New("is nested deeper than " + strconv.Itoa(maxDepth))
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, errors.New("is not valid JSON")
		}
		if dec.StackDepth() == 0 {
			break
		}
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errors.New("has data after the JSON value")
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func syntaxError(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return &ruleError{path: clip(strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")), why: "is duplicated"}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("is not complete JSON")
	}
	return errors.New("is not valid JSON in UTF-8")
}

// clip shortens a text of the caller for a message.
func clip(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s[:min(len(s), 100)])
}

// split returns the members of an object.
func split(v jsontext.Value) (members []member, err error) {
	err = eachMember(v, func(name string, value jsontext.Value) error {
		members = append(members, member{name, value})
		return nil
	})
	return members, err
}

var errNoObject, errNoList = errors.New("must be an object"), errors.New("must be a list")

// eachMember calls f for the members of an object. Values are parts of v.
func eachMember(v jsontext.Value, f func(name string, value jsontext.Value) error) error {
	if v.Kind() != '{' {
		return errNoObject
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	dec.ReadToken()
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := next(dec, v)
		if err != nil {
			return err
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	return nil
}

// eachItem calls f for the items of an array.
func eachItem(v jsontext.Value, f func(i int, value jsontext.Value) error) error {
	if v.Kind() != '[' {
		return errNoList
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	dec.ReadToken()
	for i := 0; dec.PeekKind() != ']'; i++ {
		value, err := next(dec, v)
		if err != nil {
			return err
		}
		if err := f(i, value); err != nil {
			return err
		}
	}
	return nil
}

// next returns the next value of dec, which reads v, as a part of v.
func next(dec *jsontext.Decoder, v jsontext.Value) (jsontext.Value, error) {
	value, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := dec.InputOffset()
	return v[end-int64(len(value)) : end : end], nil
}

// get returns a member of an object, or nil. null is the same as absent.
func get(v jsontext.Value, name string) (found jsontext.Value) {
	eachMember(v, func(n string, value jsontext.Value) error {
		if n == name && value.Kind() != 'n' {
			found = value
		}
		return nil
	})
	return found
}

// scalar returns a string, a number, or a boolean as text.
func scalar(v jsontext.Value) (string, bool) {
	switch v.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, v)
		return string(b), err == nil
	case '0', 't', 'f':
		return string(v), true
	}
	return "", false
}

func text(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	s, _ := scalar(v)
	return s
}

// integer reads an integer without fraction and exponent.
func integer(v jsontext.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil && v.Kind() == '0'
}

func encode(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("modelapi: cannot encode an error: " + err.Error()) // maps of strings and numbers
	}
	return b
}

// walk collects facts about one request.
type walk struct {
	call    *Call
	limits  map[string]int64
	prompts int64
	tools   int64 // 1 for tools at all, and 1 for each built-in tool
	usage   bool  // the caller requested usage of the stream
}

// ruleError is a wrong member.
type ruleError struct{ path, why string }

func (e *ruleError) Error() string { return e.path + " " + e.why }

// at puts a name or an index before the path of an error.
func at(name string, err error) error {
	e, ok := err.(*ruleError)
	if !ok {
		return &ruleError{path: name, why: err.Error()}
	}
	if e.path != "" && e.path[0] != '[' {
		name += "."
	}
	return &ruleError{path: clip(name + e.path), why: e.why}
}

func wrong(why string) error { return &ruleError{why: why} }

// A rule checks one value and collects facts about it. A nil rule accepts everything. Members that are null are not checked.
type rule func(w *walk, v jsontext.Value) error

// object accepts an object with these members. required are names, separated by spaces.
func object(required string, members map[string]rule) rule {
	return func(w *walk, v jsontext.Value) error {
		missing := strings.Fields(required)
		err := eachMember(v, func(name string, value jsontext.Value) error {
			r, known := members[name]
			if !known {
				return &ruleError{path: clip(name), why: unknown(name, members)}
			}
			if value.Kind() == 'n' {
				return nil
			}
			if i := slices.Index(missing, name); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			}
			if r != nil {
				if err := r(w, value); err != nil {
					return at(name, err)
				}
			}
			return nil
		})
		if err == nil && len(missing) > 0 {
			return &ruleError{path: missing[0], why: "is required"}
		}
		return err
	}
}

func unknown(name string, members map[string]rule) string {
	for known := range members {
		if strings.EqualFold(known, name) {
			return "must be spelled " + known
		}
	}
	if tool := billedApart(name); tool != "" {
		return "uses " + tool + ", which is billed apart and not sold here"
	}
	return "is not supported by this service"
}

// members returns a table of members: names without a rule, separated by spaces, and names with rules.
func members(names string, rules ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for name := range strings.FieldsSeq(names) {
		all[name] = nil
	}
	for _, r := range rules {
		maps.Copy(all, r)
	}
	return all
}

// list accepts an array.
func list(r rule) rule {
	return func(w *walk, v jsontext.Value) error {
		return eachItem(v, func(i int, value jsontext.Value) error {
			if err := r(w, value); err != nil {
				return at("["+strconv.Itoa(i)+"]", err)
			}
			return nil
		})
	}
}

// stringOr accepts a string, or a list that r accepts.
func stringOr(r rule) rule {
	return func(w *walk, v jsontext.Value) error {
		switch v.Kind() {
		case '"':
			return nil
		case '[':
			return r(w, v)
		}
		return wrong("must be a string or a list")
	}
}

// typed accepts an object with the rule of its member "type". fallback is the type of an object without one.
func typed(fallback string, types map[string]rule) rule {
	return func(w *walk, v jsontext.Value) error {
		if v.Kind() != '{' {
			return errNoObject
		}
		kind := fallback
		if t := get(v, "type"); t != nil {
			kind = text(t)
		}
		r, ok := types[kind]
		if !ok {
			why := "has a value that this service does not support: " + strconv.Quote(clip(kind))
			if tool := billedApart(kind); tool != "" {
				why = "is " + tool + ", which is billed apart and not sold here"
			}
			return &ruleError{path: "type", why: why}
		}
		return r(w, v)
	}
}

// counted adds the bytes of a value to the input.
func counted(r rule) rule {
	return func(w *walk, v jsontext.Value) error {
		w.call.Input += int64(len(v))
		if r == nil {
			return nil
		}
		return r(w, v)
	}
}

func isString(_ *walk, v jsontext.Value) error {
	if v.Kind() != '"' {
		return wrong("must be a string")
	}
	return nil
}

// file returns a rule for the data or the URL of a file, of which every share bytes count as a byte of input. 0 counts none.
func file(share int64) rule {
	return func(w *walk, v jsontext.Value) error {
		size := int64(len(v))
		w.call.Files++
		w.call.Input -= size
		if share > 0 {
			w.call.Input += (size + share - 1) / share
		}
		return isString(w, v)
	}
}

var image, audio, document = file(0), file(audioShare), file(1)

// remote accepts the URL of a document.
func remote(w *walk, v jsontext.Value) error {
	w.call.Input += remoteDocument
	return document(w, v)
}

// stored refuses a reference to data that the server keeps.
func stored(*walk, jsontext.Value) error {
	return wrong("refers to stored data, which this service does not offer")
}

// never accepts only false.
func never(_ *walk, v jsontext.Value) error {
	if v.Kind() != 'f' {
		return wrong("must be false, because this service does not keep responses")
	}
	return nil
}

// apart refuses a tool that is billed apart.
func apart(tool string) rule {
	return func(*walk, jsontext.Value) error {
		return wrong("uses " + tool + ", which is billed apart and not sold here")
	}
}

// only accepts these texts, separated by spaces.
func only(texts string) rule {
	return func(_ *walk, v jsontext.Value) error {
		if s := text(v); s == "" || !slices.Contains(strings.Fields(texts), s) {
			return wrong("must be " + strings.ReplaceAll(texts, " ", " or "))
		}
		return nil
	}
}

// surcharge records a member whose values change the seller's cost, except for the values that do not, separated by spaces.
func surcharge(name, free string) rule {
	return func(w *walk, v jsontext.Value) error {
		s := text(v)
		if s == "" || len(s) > maxName {
			return wrong("must be a short string")
		}
		if !slices.Contains(strings.Fields(free), s) {
			w.call.Surcharges = append(w.call.Surcharges, name)
		}
		return nil
	}
}

func isModel(_ *walk, v jsontext.Value) error {
	if s := text(v); s == "" || len(s) > maxName {
		return wrong("must be a string of 1 to 256 bytes")
	}
	return nil
}

func isBool(_ *walk, v jsontext.Value) error {
	if k := v.Kind(); k != 't' && k != 'f' {
		return wrong("must be true or false")
	}
	return nil
}

func isStream(w *walk, v jsontext.Value) error {
	w.call.Stream = v.Kind() == 't'
	return isBool(w, v)
}

// streamUsage is stream_options.include_usage.
func streamUsage(w *walk, v jsontext.Value) error {
	w.usage = v.Kind() == 't'
	return isBool(w, v)
}

func answers(w *walk, v jsontext.Value) error {
	n, ok := integer(v)
	if !ok || n < 1 || n > maxAnswers {
		return wrong("must be an integer from 1 to " + strconv.Itoa(maxAnswers))
	}
	w.call.N = max(w.call.N, n)
	return nil
}

// limit reads the output limit at the path. Integers from least to 0 mean no limit.
func limit(path string, least int64) rule {
	return func(w *walk, v jsontext.Value) error {
		n, ok := integer(v)
		if !ok || n < least {
			return wrong("must be an integer of at least " + strconv.FormatInt(least, 10))
		}
		if n > 0 {
			if w.limits == nil {
				w.limits = map[string]int64{}
			}
			w.limits[path] = n
		}
		return nil
	}
}

// prompts counts the prompts of a completion: a text, tokens, or a list of them.
func prompts(w *walk, v jsontext.Value) error {
	if v.Kind() == '"' {
		return nil
	}
	return eachItem(v, func(_ int, value jsontext.Value) error {
		if value.Kind() != '0' {
			if w.prompts++; w.prompts > maxPrompts {
				return wrong("has more than " + strconv.Itoa(maxPrompts) + " prompts")
			}
		}
		return nil
	})
}

// tools accepts tools of these types; a type that ends with * means every type with that prefix, and is built in. Tools without
// type have the first type.
func tools(types ...string) rule {
	return counted(func(w *walk, v jsontext.Value) error {
		return list(func(w *walk, v jsontext.Value) error {
			w.tools = max(w.tools, 1)
			kind := types[0]
			if t := get(v, "type"); t != nil {
				kind = text(t)
			}
			for _, t := range types {
				prefix, builtIn := strings.CutSuffix(t, "*")
				if builtIn && strings.HasPrefix(kind, prefix) {
					w.tools++
					return nil
				}
				if kind == t && v.Kind() == '{' {
					return nil
				}
			}
			return typed("", nil)(w, v)
		})(w, v)
	})
}

// paid are tools that servers bill apart from tokens, and the prefixes of their types and members.
var paid = []struct {
	name     string
	prefixes []string
}{
	{"web_search", []string{"web_search", "googleSearch", "google_search"}},
	{"web_fetch", []string{"web_fetch", "urlContext", "url_context"}},
	{"file_search", []string{"file_search", "fileSearch"}},
	{"code_execution", []string{"code_interpreter", "code_execution", "codeExecution", "bash_code_execution", "shell"}},
	{"computer_use", []string{"computer", "browser"}},
	{"image_generation", []string{"image_generation"}},
	{"mcp", []string{"mcp"}},
	{"maps", []string{"googleMaps", "google_maps"}},
	{"audio_output", []string{"audio", "speech"}},
	{"advisor", []string{"advisor"}},
}

// billedApart returns the name of a paid tool, by its type or member, or "".
func billedApart(kind string) string {
	for _, tool := range paid {
		for _, prefix := range tool.prefixes {
			if strings.HasPrefix(kind, prefix) {
				return tool.name
			}
		}
	}
	return ""
}
