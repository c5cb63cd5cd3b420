package modelapi

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// maxFound bounds the value of a member that a finder keeps, in bytes. The rest is dropped, which leaves invalid JSON.
const maxFound = 64 << 10

// finder reads JSON as it arrives and keeps the values of some members, in bounded memory. It finds members of the top-level object and
// of its objects; in a top-level array of objects, members of the last object count. It does not check literals and numbers: the values
// that it keeps have no space outside of strings, and their readers check them.
type finder struct {
	want  []string // each a name, or two names with a dot
	found map[string]jsontext.Value
	twice bool // a wanted member is repeated
	wrong bool // brackets do not match, or there is more than one value

	base     int    // 1 inside a top-level array
	open     []byte // open brackets at the two depths above base, and at base
	depth    int    // all open brackets
	names    [2]string
	started  bool
	inString bool
	escaped  bool
	isName   bool   // the string or the next string is a name at depth base+1 or base+2
	name     []byte // the name that is being read
	path     string // the wanted member that is being read, or ""
	level    int    // depth of the object of this member
	value    []byte
}

// complete reports whether a whole value was read.
func (f *finder) complete() bool { return f.started && f.depth == 0 && !f.inString && !f.wrong }

func (f *finder) write(p []byte) {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if f.inString {
			if !f.escaped && f.path == "" && !f.isName { // skip text
				n := bytes.IndexAny(p[i:], `"\`)
				if n < 0 {
					return
				}
				i += n
				c = p[i]
			}
			f.keep(c)
			switch {
			case f.escaped:
				f.escaped = false
			case c == '\\':
				f.escaped = true
			case c == '"':
				f.inString = false
				f.endName()
			}
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			f.wrong = f.wrong || f.depth == 0
			f.inString = true
			f.keep(c)
		case '{', '[':
			f.keep(c)
			f.push(c)
		case '}', ']':
			if f.path != "" && f.depth == f.level {
				f.endValue()
			}
			f.keep(c)
			f.pop(c)
		case ',':
			if f.path != "" && f.depth == f.level {
				f.endValue()
			}
			f.keep(c)
			f.isName = f.inObject()
		case ':':
			if f.path == "" && f.inObject() {
				f.startValue()
			} else {
				f.keep(c)
			}
		default:
			f.wrong = f.wrong || f.depth == 0
			f.keep(c)
		}
	}
}

// keep appends a byte to the name or the value that is being read.
func (f *finder) keep(c byte) {
	if f.path != "" {
		if len(f.value) < maxFound {
			f.value = append(f.value, c)
		}
	} else if f.isName && f.inString && len(f.name) < maxName {
		f.name = append(f.name, c)
	}
}

// inObject reports whether the innermost bracket is an object whose members may be wanted.
func (f *finder) inObject() bool {
	return f.depth > f.base && f.depth <= f.base+2 && f.open[f.depth-1] == '{'
}

func (f *finder) push(c byte) {
	f.wrong = f.wrong || f.depth == 0 && f.started
	if !f.started && c == '[' {
		f.base = 1
	}
	f.started = true
	if f.depth++; f.depth <= 3 {
		f.open = append(f.open[:f.depth-1], c)
	}
	if f.depth == f.base+1 && f.base == 1 {
		f.found = nil
	}
	f.isName, f.name = f.inObject(), f.name[:0]
}

func (f *finder) pop(c byte) {
	if f.depth == 0 || f.depth <= 3 && f.open[f.depth-1] != c-2 {
		f.wrong = true
		return
	}
	f.depth--
	f.isName = false
}

func (f *finder) endName() {
	if !f.isName || f.path != "" {
		return
	}
	f.isName = false
	name, err := jsontext.AppendUnquote(nil, f.name)
	if err != nil || bytes.IndexByte(name, '.') >= 0 { // too long, or like the path of another member
		name = nil
	}
	f.names[f.depth-f.base-1], f.name = string(name), f.name[:0]
}

func (f *finder) startValue() {
	path := f.names[0]
	if f.depth == f.base+2 {
		path += "." + f.names[1]
	}
	if slices.Contains(f.want, path) {
		f.path, f.level, f.value = path, f.depth, nil
	}
}

func (f *finder) endValue() {
	if f.found == nil {
		f.found = map[string]jsontext.Value{}
	}
	_, twice := f.found[f.path]
	f.twice = f.twice || twice
	f.found[f.path] = f.value
	f.path = ""
}
