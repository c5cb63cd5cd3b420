package mcpproxy

import (
	"errors"
	"strconv"
)

const (
	// maxBehind bounds one message of the upstream server, in bytes.
	maxBehind = 16 << 20
	// maxSkipped bounds a longer message, whose end is sought, in bytes.
	maxSkipped = 256 << 20
)

var errEndless = errors.New("the upstream server sent a message of more than " + strconv.Itoa(maxSkipped) + " bytes")

// capped collects one message of the upstream server. If the message exceeds [maxBehind], it keeps only the id, so that only the
// call with this id fails.
type capped struct {
	text []byte
	size int
	over *idReader // nil up to maxBehind
}

// Write implements [io.Writer]. It fails for a message above [maxSkipped].
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

// message returns the text. For a response that was too large it returns an error for its call, and nil for any other such message.
func (c *capped) message() []byte {
	switch {
	case c.over == nil:
		return c.text
	case c.over.id == "" || c.over.isRequest:
		return nil
	}
	return []byte(`{"jsonrpc":"2.0","id":` + c.over.id + `,"error":{"code":-32603,"message":"The answer of the upstream server is larger than ` +
		strconv.Itoa(maxBehind) + ` bytes."}}`)
}

// idReader finds the id in a message of any size: the integer under "id" in the outermost object, as in our requests. It reads the
// message in pieces and stores only a few bytes.
type idReader struct {
	id        string
	isRequest bool // the message has a method

	depth             int
	inString, escaped bool
	word              []byte // current name, string or number in the outermost object, cut at 24 bytes
	name              string // name of the member whose value is being read, quoted
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

// keep appends a byte to the current word of the outermost object, up to 24 bytes.
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
