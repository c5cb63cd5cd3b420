package toll

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change is a member of an update (PUT and PATCH). The zero value keeps the stored value, [Clear] clears it, and [SetTo]
// replaces it. On the wire these are an absent member, null, and a value.
type Change[T any] struct {
	IsSet bool // the member is present
	Value *T   // nil: null
}

// SetTo returns the change that replaces a member.
func SetTo[T any](v T) Change[T] { return Change[T]{IsSet: true, Value: &v} }

// Clear returns the change that clears a member.
func Clear[T any]() Change[T] { return Change[T]{IsSet: true} }

// IsZero reports whether the member is absent, so that omitzero leaves it out of the JSON.
func (c Change[T]) IsZero() bool { return !c.IsSet }

// MarshalJSON writes the value, or null.
func (c Change[T]) MarshalJSON() ([]byte, error) {
	if c.Value == nil {
		return []byte("null"), nil
	}
	return encode(*c.Value)
}

// UnmarshalJSON accepts null and every form that T accepts.
func (c *Change[T]) UnmarshalJSON(b []byte) error {
	*c = Change[T]{IsSet: true}
	if string(b) == "null" {
		return nil
	}
	c.Value = new(T)
	return json.Unmarshal(b, c.Value)
}

// onto applies the change to an optional member, which is nil when cleared.
func (c Change[T]) onto(member **T) {
	if c.IsSet {
		*member = c.Value
	}
}

// assign applies the change to a member that is cleared by its zero value.
func assign[T any](c Change[T], member *T) {
	if c.IsSet {
		*member = orZero(c.Value)
	}
}

// or returns the change, or other when the change is absent.
func (c Change[T]) or(other Change[T]) Change[T] {
	if c.IsSet {
		return c
	}
	return other
}

// clearer is implemented by every [Change]. It clears each member when the whole object is null.
type clearer interface{ clear() }

func (c *Change[T]) clear() { *c = Change[T]{IsSet: true} }

// decodeChanges reads an object of changes into a struct of them; null clears each. Names are compared exactly, which
// encoding/json does not do. The error names every wrong member.
func decodeChanges(b []byte, changes any) error {
	members := map[string]any{}
	for field, value := range reflect.ValueOf(changes).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		members[name] = value.Addr().Interface()
	}
	if string(b) == "null" {
		for _, m := range members {
			if c, ok := m.(clearer); ok {
				c.clear()
			}
		}
		return nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return Errorf(CodeBadRequest, "must be an object")
	}
	var f faultList
	code := CodeBadRequest
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		into, known := members[name]
		if !known {
			continue
		}
		err := json.Unmarshal(raw[name], into)
		var e *Error
		switch {
		case err == nil:
		case errors.As(err, &e):
			f.add(name, "%s", e.Text())
			if code == CodeBadRequest {
				code = e.Code
			}
		default:
			f.add(name, "has the wrong type")
		}
	}
	if e := Faults(f.faults); e != nil {
		e.Code = code
		return e
	}
	return nil
}
