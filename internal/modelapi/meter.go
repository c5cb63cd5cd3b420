package modelapi

import (
	"bytes"
	"maps"
	"math"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxEvent bounds an event or a line of a stream, in bytes. A longer one passes unread, and makes the usage unknown.
const maxEvent = 1 << 20

// Usage is the usage in one response.
type Usage struct {
	Counts map[string]int64 // by quantity; a missing one was not reported, and 0 was reported as 0; nil if nothing is known
	Bad    bool             // the figures are negative, not integers, contradictory, or repeated
}

// reader reads the usage of the responses of one operation.
type reader struct {
	want []string // members for event, each a name or two names with a dot
	// event reads the wanted members of a response, or of one event of a stream. It reports whether to hide the event if the caller
	// did not request it.
	event func(m *Meter, found map[string]jsontext.Value, streamed bool) (hide bool)
	count func(f *figures) // sets the counts
}

// Meter reads the usage of one response while it passes. It keeps at most one event of a stream, up to 1 MiB, and otherwise only the
// members with usage, up to 64 KiB.
type Meter struct {
	call    *Call
	mode    byte // a constant below
	find    finder
	figures figures
	known   bool // usage was reported
	final   bool // the figures are final
	partial bool // output is missing in the figures
	done    bool // the end marker was read
	unknown bool // an event was too long

	buf  []byte // the incomplete event
	line int    // start of the incomplete line in buf
	next int    // where to look for the next newline
	long bool   // the start of the event was sent
}

const (
	pass  byte = iota // no usage: an error, or a coded body
	whole             // one JSON value
	sse               // server-sent events
	lines             // a JSON value on each line
)

// Meter returns a reader for the response with this status and header. Only a response with status 200 reports usage.
func (c *Call) Meter(status int, h http.Header) *Meter {
	m := &Meter{call: c, find: finder{want: c.op.read.want}}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	coding := h.Get("Content-Encoding")
	switch {
	case status != http.StatusOK || coding != "" && coding != "identity":
	case kind == "text/event-stream":
		m.mode = sse
	case kind == "application/x-ndjson" || c.Stream && c.op.streamed:
		m.mode = lines
	case kind == "application/json" || !c.Stream:
		m.mode = whole
	default:
		m.mode = sse
	}
	return m
}

// Write reads the next bytes of the response and returns the bytes to send, which are valid until the next call and may be part of p.
// Events of a stream are returned complete, except for an event above 1 MiB. An event with the usage that the caller did not request is
// removed.
func (m *Meter) Write(p []byte) []byte {
	switch m.mode {
	case pass:
		return p
	case whole:
		m.find.write(p)
		return p
	}
	data := p
	if len(m.buf) > 0 {
		m.buf = append(m.buf, p...)
		data = m.buf
	}
	var out []byte // events before a removed one
	removed, start := false, 0
	from := 0 // events from here are not in out
	for {
		i := bytes.IndexByte(data[m.next:], '\n')
		if i < 0 {
			break
		}
		end := m.next + i + 1
		blank := len(bytes.TrimRight(data[m.line:end], "\r\n")) == 0
		m.line, m.next = end, end
		if m.mode == sse && !blank {
			continue
		}
		m.unknown = m.unknown || end-start > maxEvent
		if !m.long && end-start <= maxEvent && m.event(data[start:end]) {
			out = append(out, data[from:start]...)
			from, removed = end, true
		}
		start, m.long = end, false
	}
	rest := data[start:]
	m.line, m.next = m.line-start, len(rest)
	if len(rest) > maxEvent || m.long {
		start, rest = len(data), nil
		m.long, m.unknown, m.line, m.next = true, true, 0, 0
	}
	if removed {
		out = append(out, data[from:start]...)
	} else {
		out = data[from:start]
	}
	if start > 0 || len(m.buf) == 0 { // else buf is the same event, and longer
		m.buf = bytes.Clone(rest)
	}
	return out
}

// event reads one event, and reports whether to remove it.
func (m *Meter) event(event []byte) bool {
	var data []byte
	if m.mode == lines {
		data = bytes.TrimSpace(event)
	} else {
		for line := range bytes.Lines(event) {
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, value...)
			}
		}
		data = bytes.TrimSpace(data)
	}
	if len(data) == 0 {
		return false
	}
	if m.mode == sse && string(data) == "[DONE]" {
		m.done = true
		return false
	}
	f := finder{want: m.call.op.read.want}
	f.write(data)
	if !f.complete() {
		return false
	}
	m.figures.bad = m.figures.bad || f.twice
	return m.call.op.read.event(m, f.found, true) && m.call.hide
}

// End ends the response. rest are the last bytes to send. complete reports whether the response has its end, or the end marker of a stream. Without
// it, the usage is the running usage if the API sends it.
func (m *Meter) End() (rest []byte, u Usage, complete bool) {
	switch m.mode {
	case pass:
		return nil, Usage{}, true
	case whole:
		if complete = m.find.complete(); complete {
			m.figures.bad = m.find.twice
			m.call.op.read.event(m, m.find.found, false)
		}
	default:
		rest, m.buf = m.buf, nil
		if len(rest) > 0 && !m.long && m.event(rest) {
			rest = nil
		}
		complete = m.done
	}
	if m.figures.bad {
		return rest, Usage{Bad: true}, complete
	}
	if !m.known || m.unknown {
		return rest, Usage{}, complete
	}
	f := &m.figures
	f.counts = map[string]int64{}
	m.call.op.read.count(f)
	if m.partial {
		for _, q := range []string{Output, Reasoning, OutputAudio, OutputImage} {
			delete(f.counts, q)
		}
	}
	if f.bad {
		return rest, Usage{Bad: true}, complete
	}
	return rest, Usage{Counts: f.counts}, complete
}

func present(v jsontext.Value) bool { return len(v) > 0 && string(v) != "null" }

// report reads a usage object. It replaces the figures, or completes them.
func (m *Meter) report(usage jsontext.Value, replace bool) {
	if !present(usage) {
		return
	}
	now := map[string]jsontext.Value{}
	if err := flatten(now, "", usage); err != nil {
		m.figures.bad = true
		return
	}
	m.known = true
	if replace || m.figures.values == nil {
		m.figures.values = now
		return
	}
	maps.Copy(m.figures.values, now)
}

// flatten collects the members of an object, and of objects in it, by their dotted names. null is the same as absent.
func flatten(into map[string]jsontext.Value, prefix string, v jsontext.Value) error {
	if !v.IsValid() {
		return errNoObject
	}
	return eachMember(v, func(name string, value jsontext.Value) error {
		if strings.Contains(name, ".") {
			return nil // looks like the path of another figure
		}
		if name = prefix + name; value.Kind() == '{' && strings.Count(name, ".") < 2 {
			return flatten(into, name+".", value)
		}
		if value.Kind() != 'n' {
			into[name] = value
		}
		return nil
	})
}

// figures are the reported numbers of one response, and the counts that they give.
type figures struct {
	values map[string]jsontext.Value
	counts map[string]int64
	source []byte // the reported object
	bad    bool
}

// number returns a figure. Negative numbers and values of another kind are bad.
func (f *figures) number(name string) (n int64, known bool) {
	v, known := f.values[name]
	if !known {
		return 0, false
	}
	n, ok := integer(v)
	f.bad = f.bad || !ok || n < 0
	return n, true
}

// part is a figure that is included in a total. A part that overlaps with earlier parts counts at most the remainder.
type part struct {
	figure, quantity string
	overlaps         bool
}

// divide counts the parts of a total by their quantities, and the remainder as rest. Parts above the total are bad, and so are parts
// without a total.
func (f *figures) divide(total int64, known bool, rest string, parts ...part) {
	for _, p := range parts {
		n, reported := f.number(p.figure)
		if !reported {
			continue
		}
		if p.overlaps {
			n = min(n, total)
		}
		if !known || n > total {
			f.bad = true
			return
		}
		total -= n
		f.counts[p.quantity] += n
	}
	if known {
		f.counts[rest] += total
	}
}

// add returns the sum of two figures.
func (f *figures) add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		f.bad = true
		return a
	}
	return a + b
}
