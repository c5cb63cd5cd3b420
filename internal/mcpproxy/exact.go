package mcpproxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// metaExact is the member of _meta with the text of the structured content. The client of the SDK decodes structured content into
// Go values, which rounds numbers above 2^53; restoreExact restores the text.
const metaExact = "toll/structured-content"

// exactResult returns a result with the text of its structured content in _meta. A result without it, or a malformed result, is unchanged.
func exactResult(result json.RawMessage) json.RawMessage {
	if !bytes.Contains(result, []byte(`"structuredContent"`)) {
		return result
	}
	var in map[string]json.RawMessage
	if x402.Decode(result, &in) != nil || in["structuredContent"] == nil {
		return result
	}
	var meta map[string]json.RawMessage
	if in["_meta"] != nil && x402.Decode(in["_meta"], &meta) != nil {
		return result
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	text, err := json.Marshal(string(in["structuredContent"]))
	if err != nil {
		return result
	}
	meta[metaExact] = text
	if in["_meta"], err = json.Marshal(meta); err != nil {
		return result
	}
	out, err := json.Marshal(in)
	if err != nil {
		return result
	}
	return out
}

// restoreExact replaces the structured content of a result by the text in its _meta.
func restoreExact(res *mcp.CallToolResult) {
	if text, ok := res.Meta[metaExact].(string); ok && json.Valid([]byte(text)) {
		res.StructuredContent = json.RawMessage(text)
	}
}

// remoteClient returns a client that applies exactMessage to responses, because the SDK transport cannot be wrapped. It does not
// store cookies, fails on redirects, and sends the headers only to the origin of endpoint.
func remoteClient(endpoint string, header http.Header, came func(json.RawMessage)) *http.Client {
	return &http.Client{
		Transport: &exactTripper{base: http.DefaultTransport, endpoint: endpoint, header: header, came: came},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the upstream server redirects to another URL: configure that URL instead")
		},
	}
}

type exactTripper struct {
	base     http.RoundTripper
	endpoint string
	header   http.Header
	came     func(params json.RawMessage)
}

func (t *exactTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if u, err := url.Parse(t.endpoint); len(t.header) > 0 && err == nil && u.Scheme == req.URL.Scheme && u.Host == req.URL.Host {
		req = req.Clone(req.Context())
		maps.Copy(req.Header, t.header)
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
	case kind == "text/event-stream":
		e := &exactEvents{lines: bufio.NewReaderSize(res.Body, 64<<10), came: t.came}
		res.Body = rewritten{&pieces{next: e.event}, res.Body}
		res.ContentLength = -1
	case kind == "application/json":
		var m capped
		_, err := io.Copy(&m, res.Body)
		text := exactMessage(m.message(), t.came)
		if err == nil && len(text) == 0 {
			err = errors.New("the upstream server answered with an invalid message")
		}
		if err != nil {
			res.Body.Close()
			return nil, err
		}
		res.Body = rewritten{bytes.NewReader(text), res.Body}
		res.ContentLength = int64(len(text))
	}
	return res, nil
}

// exactMessage applies exactResult to a message, and passes progress to came. It returns nil for invalid JSON: the caller drops it.
func exactMessage(text []byte, came func(params json.RawMessage)) []byte {
	isProgress := bytes.Contains(text, []byte(`"`+methodProgress+`"`))
	if !isProgress && !bytes.Contains(text, []byte(`"structuredContent"`)) {
		if !json.Valid(text) {
			return nil
		}
		return text
	}
	var in map[string]json.RawMessage
	if x402.Decode(text, &in) != nil {
		return nil
	}
	if isProgress && string(in["method"]) == `"`+methodProgress+`"` {
		came(in["params"])
	}
	if in["result"] == nil {
		return text
	}
	in["result"] = exactResult(in["result"])
	out, err := json.Marshal(in)
	if err != nil {
		return text
	}
	return out
}

// rewritten is a body with another reader.
type rewritten struct {
	io.Reader
	io.Closer
}

// pieces reads what next returns until it returns an error.
type pieces struct {
	next func() ([]byte, error)
	rest []byte
	err  error
}

// Read implements [io.Reader].
func (r *pieces) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// exactEvents rewrites the messages of an event stream. It drops invalid messages, and replaces a response that is too large by an
// error for its call.
type exactEvents struct {
	lines *bufio.Reader
	came  func(params json.RawMessage)
}

// event reads one event and returns it with its data in one line. It fails if a field or message is too long to skip.
func (e *exactEvents) event() ([]byte, error) {
	var fields []byte
	var data capped
	for {
		part, err := e.lines.ReadSlice('\n')
		value, isData := bytes.CutPrefix(part, []byte("data:"))
		if isData {
			_, tooLong := data.Write(value)
			for errors.Is(err, bufio.ErrBufferFull) && tooLong == nil {
				value, err = e.lines.ReadSlice('\n')
				_, tooLong = data.Write(value)
			}
			if tooLong != nil {
				return nil, tooLong
			}
		} else if errors.Is(err, bufio.ErrBufferFull) || len(fields) > maxFields {
			return nil, errors.New("the upstream server sent an event with a field that is too long")
		} else if bytes.IndexByte(part, ':') >= 0 { // the SDK fails on lines without a colon
			fields = append(append(fields, bytes.TrimSpace(part)...), '\n')
		}
		if err == nil && len(bytes.TrimSpace(part)) > 0 {
			continue
		}
		text := bytes.TrimSpace(data.message())
		if bytes.ContainsAny(text, "\r\n") { // white space between the lines of its data
			text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte{'\r'}, []byte{' '}), []byte{'\n'}, []byte{' '})
		}
		if text = exactMessage(text, e.came); len(text) > 0 {
			fields = append(append(append(fields, "data: "...), text...), '\n')
		}
		return append(fields, '\n'), err
	}
}

// maxFields bounds the other fields of an event, in bytes.
const maxFields = 64 << 10
