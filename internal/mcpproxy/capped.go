package mcpproxy

import (
	"errors"
	"strconv"
)

const (
	// maxBehind bounds one message of a server behind, in bytes.
	maxBehind = 16 << 20
	// maxSkipped bounds what is read of a longer message to find its end.
	maxSkipped = 256 << 20
)

var errEndless = errors.New("the server behind sent a message of more than " + strconv.Itoa(maxSkipped) + " bytes")

// capped collects the text of one message of a server behind. Of a message above [maxBehind] it keeps nothing but the id,
// so that the call with this id fails and no other.
type capped struct {
	text []byte
	size int
	over *idReader // nil up to maxBehind
}

// Write implements [io.Writer]. It fails when the message does not end.
func (c *capped) Write(p []byte) (int, error) {
	if c.size += len(p); c.size > maxSkipped {
		return 0, errEndless
	}
	if c.over == nil && c.size <= maxBehind {
		c.text = append(c.text, p...)
		return len(p), nil
	}
	if c.over == nil {
		c.over = new(idReader)
		c.over.read(c.text)
		c.text = nil
	}
	c.over.read(p)
	return len(p), nil
}

// message returns the text. For a message that was too large it is an error for its call, or empty when it answers none.
func (c *capped) message() []byte {
	switch {
	case c.over == nil:
		return c.text
	case c.over.id == "" || c.over.isRequest:
		return nil
	}
	return []byte(`{"jsonrpc":"2.0","id":` + c.over.id + `,"error":{"code":-32603,"message":"The answer of the server behind is larger than ` +
		strconv.Itoa(maxBehind) + ` bytes."}}`)
}

// idReader finds the id of a message of any size while it passes: the whole number under "id" in the outermost object, which
// is what our requests have. It keeps a few bytes.
type idReader struct {
	id        string
	isRequest bool // the message has a method

	depth             int
	inString, escaped bool
	word              []byte // of the outermost object, what is being read: a name, a string or a number, cut
	name              string // of the member whose value is being read
}

func (r *idReader) read(p []byte) {
	for _, c := range p {
		switch {
		case r.inString:
			r.inString = r.escaped || c != '"'
			r.escaped = c == '\\' && !r.escaped
			r.keep(c)
		case c == '"':
			r.inString = true
			r.keep(c)
		case c == '{' || c == '[':
			r.depth++
		case c == '}' || c == ']':
			r.member()
			r.depth--
		case c == ',':
			r.member()
		case c == ':' && r.depth == 1:
			r.name, r.word = string(r.word), r.word[:0]
		case c > ' ':
			r.keep(c)
		}
	}
}

// keep takes a byte of a word. Longer words than an id are cut, and can be none.
func (r *idReader) keep(c byte) {
	if r.depth == 1 && len(r.word) < 24 {
		r.word = append(r.word, c)
	}
}

// member ends a member of the outermost object.
func (r *idReader) member() {
	if r.depth != 1 {
		return
	}
	switch r.name {
	case `"id"`:
		if n, err := strconv.ParseInt(string(r.word), 10, 64); err == nil && r.id == "" {
			r.id = strconv.FormatInt(n, 10)
		}
	case `"method"`:
		r.isRequest = true
	}
	r.name, r.word = "", r.word[:0]
}
