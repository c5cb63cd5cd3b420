package x402

import (
	"bytes"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
)

// MaxDepth is the deepest nesting of arrays and objects that Decode takes (wire contract, section 1).
const MaxDepth = 32

// maxFaults bounds the faults in a report, so that a hostile body cannot cause a large response.
const maxFaults = 64

// Decode reads strict JSON into v, a pointer to a zero value. It rejects duplicate names, invalid UTF-8 (including lone surrogates and a
// byte order mark), bytes after the value, and nesting beyond [MaxDepth]. Names are case-sensitive and unknown members are ignored. null is
// the same as absent; in an array it is the zero value. To distinguish null from absent, decode into a map of json.RawMessage first.
//
// The error is a *toll.Error whose params.errors lists every member of a wrong type. Its code describes the first malformed
// id, address, number, or UUID, else it is [toll.CodeBadRequest]. After an error, the contents of v are undefined.
func Decode(data []byte, v any) error {
	if err := checkDepth(data); err != nil {
		return err
	}
	if b, ok := v.(body); ok {
		return b.decodeBody(data)
	}
	return decode(data, v)
}

// DecodeRequired is Decode for a body in which the named members are required and not null. A name may be dotted, for example
// "plan.priceConfig". Missing members are reported beside the wrong ones.
func DecodeRequired(data []byte, v any, required ...string) error {
	err := Decode(data, v)
	if e, ok := errors.AsType[*toll.Error](err); ok && (e.Params["errors"] == nil || e.Hint == syntaxHint) {
		return err // text that cannot be read has no members to miss
	}
	var r report
	r.add("", err)
	for _, path := range required {
		if !isPresent(data, path) {
			r.add(path, errMissing)
		}
	}
	return r.err()
}

var errMissing = toll.Errorf(toll.CodeBadRequest, "is required")

// body is an object with dialects or with JSON in strings: it decodes itself in one pass, without the validating pass of UnmarshalJSON.
type body interface{ decodeBody(data []byte) error }

func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil && !startsNull(data) {
		return nil
	}
	return explain(data, v, err)
}

// explain finds all faults of data, which did not decode into v.
func explain(data []byte, v any, cause error) error {
	if err := checkSyntax(data); err != nil {
		return err
	}
	t := reflect.TypeOf(v).Elem()
	var r report
	if isNull(data) {
		if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
			return nil
		}
		r.add("", toll.Errorf(toll.CodeBadRequest, "must be an object"))
		return r.err()
	}
	r.walk(bytes.TrimSpace(data), t, "")
	if err := r.err(); err != nil {
		return err
	}
	return toll.NewError(toll.CodeBadRequest).WithCause(cause)
}

// startsNull expects valid JSON.
func startsNull(data []byte) bool {
	for _, c := range data {
		if c > ' ' {
			return c == 'n'
		}
	}
	return false
}

func isNull(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }

// checkDepth counts brackets without parsing, and skips strings only if there are enough brackets to matter.
func checkDepth(data []byte) error {
	if bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")) <= MaxDepth {
		return nil
	}
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return syntaxFault("", "is nested deeper than "+strconv.Itoa(MaxDepth))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// checkSyntax reads the whole text, because the fast path stops at its first fault.
func checkSyntax(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	_, err := dec.ReadValue()
	if err == nil {
		if _, err = dec.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		return syntaxFault("", "has data after the JSON value")
	}
	path := ""
	why := err
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		path, why = dotted(syn.JSONPointer), syn.Err
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return syntaxFault(path, "is duplicated")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return syntaxFault("", "is not complete JSON")
	}
	return syntaxFault(path, "is not strict JSON ("+clip(why.Error())+")")
}

const syntaxHint = "Send UTF-8 JSON (RFC 8259) without duplicate names, at most 32 levels deep."

func syntaxFault(path, message string) error {
	var r report
	r.add(path, &toll.Error{Code: toll.CodeBadRequest, Message: message})
	e := r.error()
	e.Hint = syntaxHint
	return e
}

// report collects faults in the order of the text.
type report struct {
	faults   []toll.Fault
	specific *toll.Error // first fault with a code other than CodeBadRequest
	at       string      // path of specific
	unknown  []string    // paths of members that have no place, at most maxUnknown
	fields   map[reflect.Type]map[string]reflect.Type
}

func (r *report) full() bool { return len(r.faults) >= maxFaults }

func (r *report) add(path string, err error) {
	if err == nil || r.full() {
		return
	}
	var e *toll.Error
	if !errors.As(err, &e) {
		r.faults = append(r.faults, toll.Fault{Path: path, Message: "has the wrong type"})
		return
	}
	at := path
	if sub, ok := e.Params["errors"].([]toll.Fault); ok {
		for i, f := range sub {
			f.Path = join(path, f.Path)
			if i == 0 {
				at = f.Path
			}
			r.faults = append(r.faults, f)
		}
	} else {
		r.faults = append(r.faults, toll.Fault{Path: path, Message: e.Text()})
	}
	if r.specific == nil && e.Code != toll.CodeBadRequest {
		r.specific, r.at = e, at
	}
}

func (r *report) err() error {
	if e := r.error(); e != nil {
		return e
	}
	return nil
}

func (r *report) error() *toll.Error {
	e := toll.Faults(r.faults)
	if e == nil {
		return nil
	}
	if r.faults[0].Path == "" {
		e.Message = strings.Replace(e.Message, ": ", "The body ", 1)
	}
	if s := r.specific; s != nil {
		e.Code, e.Details, e.Hint = s.Code, s.Details, s.Hint
		e.Message = s.Text()
		if len(r.faults) > 1 && s.Params["errors"] == nil {
			e.Message = fmt.Sprintf("%s: %s (and %d more)", r.at, s.Text(), len(r.faults)-1)
		}
	}
	return e
}

// explainer is a value with several forms that explains its own faults.
type explainer interface{ explain(raw []byte) error }

var (
	explainerType       = reflect.TypeFor[explainer]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	unmarshalerType     = reflect.TypeFor[stdjson.Unmarshaler]()
)

// Members returns the members of data, a decoded object, whose names wanted accepts.
func Members(data []byte, wanted func(name string) bool) map[string]stdjson.RawMessage {
	members := make(map[string]stdjson.RawMessage)
	eachMember(bytes.TrimSpace(data), func(name string, value []byte) bool {
		if wanted(name) {
			members[name] = bytes.Clone(value)
		}
		return true
	})
	return members
}

// maxUnknown bounds the result of UnknownMembers, so that a hostile body cannot cause a large response.
const maxUnknown = 16

// UnknownMembers returns the paths of the members of data, a decoded object, that [Decode] ignores for v, a pointer to a
// struct. At most 16 are returned, in the order of the text; long names are cut. Values with their own decoder are skipped.
func UnknownMembers(data []byte, v any) []string {
	var r report
	r.walk(bytes.TrimSpace(data), reflect.TypeOf(v).Elem(), "")
	return r.unknown
}

// walk compares raw, valid JSON, with the type member by member.
func (r *report) walk(raw []byte, t reflect.Type, path string) {
	if r.full() || isNull(raw) {
		return
	}
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(explainerType):
		r.add(path, reflect.New(t).Interface().(explainer).explain(raw))
		return
	case p.Implements(unmarshalerType):
		r.add(path, reflect.New(t).Interface().(stdjson.Unmarshaler).UnmarshalJSON(raw))
		return
	case p.Implements(textUnmarshalerType):
		r.leaf(raw, t, path, "must be a string")
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		r.walk(raw, t.Elem(), path)
	case reflect.Struct:
		r.walkObject(raw, path, func(name string) reflect.Type { return r.fieldsOf(t)[name] })
	case reflect.Map:
		r.walkObject(raw, path, func(string) reflect.Type { return t.Elem() })
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			r.leaf(raw, t, path, "must be base64 text")
			return
		}
		r.walkArray(raw, t.Elem(), path)
	case reflect.String:
		r.leaf(raw, t, path, "must be a string")
	case reflect.Bool:
		r.leaf(raw, t, path, "must be true or false")
	case reflect.Interface:
		r.leaf(raw, t, path, "has the wrong type")
	default:
		r.leaf(raw, t, path, "must be a number in range")
	}
}

func (r *report) leaf(raw []byte, t reflect.Type, path, message string) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return
	}
	var e *toll.Error
	if !errors.As(err, &e) {
		e = &toll.Error{Code: toll.CodeBadRequest, Message: message}
		if k := t.Kind(); k >= reflect.Int && k <= reflect.Float64 {
			e.Code = toll.CodeBadNumber
		}
	}
	r.add(path, e)
}

func (r *report) walkObject(raw []byte, path string, typeOf func(name string) reflect.Type) {
	if raw[0] != '{' {
		r.add(path, &toll.Error{Code: toll.CodeBadRequest, Message: "must be an object"})
		return
	}
	eachMember(raw, func(name string, value []byte) bool {
		at := join(path, clip(name))
		if t := typeOf(name); t != nil {
			r.walk(value, t, at)
		} else if len(r.unknown) < maxUnknown {
			r.unknown = append(r.unknown, at)
		}
		return !r.full()
	})
}

func (r *report) walkArray(raw []byte, elem reflect.Type, path string) {
	if raw[0] != '[' {
		r.add(path, &toll.Error{Code: toll.CodeBadRequest, Message: "must be an array"})
		return
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.ReadToken()
	for i := 0; !r.full(); i++ {
		v, err := dec.ReadValue()
		if err != nil {
			return
		}
		r.walk(v, elem, path+"["+strconv.Itoa(i)+"]")
	}
}

// fieldsOf returns the members of a struct by name, including the members of embedded structs.
func (r *report) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if m, ok := r.fields[t]; ok {
		return m
	}
	m := make(map[string]reflect.Type)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name != "":
			m[name] = f.Type
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			for n, ft := range r.fieldsOf(f.Type) {
				if _, ok := m[n]; !ok {
					m[n] = ft
				}
			}
		case f.IsExported():
			m[f.Name] = f.Type
		}
	}
	if r.fields == nil {
		r.fields = make(map[reflect.Type]map[string]reflect.Type)
	}
	r.fields[t] = m
	return m
}

// eachMember calls f for each member of a valid object until f returns false.
func eachMember(raw []byte, f func(name string, value []byte) bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true)) // valid objects have no duplicates
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return
	}
	for {
		tok, err := dec.ReadToken()
		if err != nil || tok.Kind() != '"' {
			return
		}
		name := tok.String()
		v, err := dec.ReadValue()
		if err != nil || !f(name, v) {
			return
		}
	}
}

// isPresent reports whether the member at the dotted path exists and is not null.
func isPresent(raw []byte, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	found := false
	eachMember(raw, func(n string, value []byte) bool {
		if n != name {
			return true
		}
		found = !isNull(value) && (!more || isPresent(value, rest))
		return false
	})
	return found
}

func join(path, name string) string {
	if path == "" || name == "" || name[0] == '[' {
		return path + name
	}
	return path + "." + name
}

func dotted(p jsontext.Pointer) string {
	path := ""
	for tok := range p.Tokens() {
		if _, err := strconv.Atoi(tok); err == nil {
			tok = "[" + tok + "]"
		}
		path = join(path, clip(tok))
	}
	return path
}

// clip bounds text of a caller in an error: at most 80 bytes of visible ASCII.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strings.Map(func(c rune) rune {
		if c < 0x20 || c > 0x7e {
			return '?'
		}
		return c
	}, s)
}

// Encode writes v as compact JSON: struct members in their order, map members sorted, no HTML escaping, invalid UTF-8 replaced.
// A nil slice is [] and a nil map {}.
func Encode(v any) ([]byte, error) {
	if a, ok := v.(appender); ok {
		if b, err := a.appendJSON(nil); err != errUnusual {
			return b, err
		}
	}
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, toll.NewError(toll.CodeInternal).WithCause(err)
	}
	return b, nil
}
