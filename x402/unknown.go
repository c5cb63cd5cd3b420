package x402

import (
	"bytes"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxUnknown bounds what UnknownMembers returns, so that a hostile body cannot make a large answer.
const maxUnknown = 16

// UnknownMembers returns the paths of the members of data that [Decode] passes over, as v, a pointer to a struct, has no
// place for them. data is an object that was decoded before. At most 16 are returned, in the order of the text; long names
// are cut. Members of values that decode themselves are not looked at.
func UnknownMembers(data []byte, v any) []string {
	var u unknown
	u.walk(bytes.TrimSpace(data), reflect.TypeOf(v).Elem(), "")
	return u.paths
}

type unknown struct {
	report
	paths []string
}

func (u *unknown) full() bool { return len(u.paths) >= maxUnknown }

func (u *unknown) walk(raw []byte, t reflect.Type, path string) {
	p := reflect.PointerTo(t)
	if len(raw) == 0 || p.Implements(explainerType) || p.Implements(unmarshalerType) || p.Implements(textUnmarshalerType) {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		u.walk(raw, t.Elem(), path)
	case reflect.Struct:
		members := u.fieldsOf(t)
		eachMember(raw, func(name string, value []byte) bool {
			at := join(path, clip(name))
			if member, ok := members[name]; ok {
				u.walk(value, member, at)
			} else {
				u.paths = append(u.paths, at)
			}
			return !u.full()
		})
	case reflect.Slice:
		dec := jsontext.NewDecoder(bytes.NewReader(raw))
		if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '[' {
			return
		}
		for i := 0; !u.full(); i++ {
			item, err := dec.ReadValue()
			if err != nil {
				return
			}
			u.walk(item, t.Elem(), path+"["+strconv.Itoa(i)+"]")
		}
	}
}
