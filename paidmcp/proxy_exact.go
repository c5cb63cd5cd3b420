package paidmcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// The client of the SDK reads structured content into Go values, in which a number above 2^53 is no longer the number that
// was sent. So its text travels beside it, in the _meta of the result, from where it is put back.
const metaExact = "toll/structured-content"

// exactResult puts the text of the structured content of a result beside it. A result without any stays as it is.
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

// restoreExact puts the text back. Whoever wrote the text wrote the content.
func restoreExact(res *mcp.CallToolResult) {
	if text, ok := res.Meta[metaExact].(string); ok && json.Valid([]byte(text)) {
		res.StructuredContent = json.RawMessage(text)
	}
}

// exactTransport does it for messages of a process. came hears of progress.
type exactTransport struct {
	mcp.Transport
	came func(params json.RawMessage)
}

func (t *exactTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &exactConnection{c, t.came}, nil
}

type exactConnection struct {
	mcp.Connection
	came func(params json.RawMessage)
}

func (c *exactConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		return m, err
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		m.Result = exactResult(m.Result)
	case *jsonrpc.Request:
		if m.Method == methodProgress {
			c.came(m.Params)
		}
	}
	return m, nil
}

// remoteClient does it for messages over HTTP, whose transport the SDK does not let us wrap. It keeps no cookies and sends
// the token to the server that it is for alone.
func remoteClient(endpoint, token string, came func(json.RawMessage)) *http.Client {
	return &http.Client{
		Transport: &exactTripper{base: http.DefaultTransport, endpoint: endpoint, token: token, came: came},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server behind redirects: give its own address")
		},
	}
}

type exactTripper struct {
	base            http.RoundTripper
	endpoint, token string
	came            func(params json.RawMessage)
}

func (t *exactTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if u, err := url.Parse(t.endpoint); t.token != "" && err == nil && u.Scheme == req.URL.Scheme && u.Host == req.URL.Host {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
	case kind == "text/event-stream":
		res.Body = &exactEvents{lines: bufio.NewReader(res.Body), body: res.Body, came: t.came}
		res.ContentLength = -1
	case kind == "application/json":
		text, err := io.ReadAll(io.LimitReader(res.Body, maxBehind+1))
		if err == nil && len(text) > maxBehind {
			err = errors.New("the server behind answered with more than " + strconv.Itoa(maxBehind) + " bytes")
		}
		if err != nil {
			res.Body.Close()
			return nil, err
		}
		text = exactMessage(text, t.came)
		res.Body = &exactEvents{rest: text, body: res.Body}
		res.ContentLength = int64(len(text))
	}
	return res, nil
}

// maxBehind bounds one answer of a server behind, in bytes, as the SDK bounds an event.
const maxBehind = 16 << 20

// exactMessage is exactResult for a whole message.
func exactMessage(text []byte, came func(params json.RawMessage)) []byte {
	told := bytes.Contains(text, []byte(`"`+methodProgress+`"`))
	if !told && !bytes.Contains(text, []byte(`"structuredContent"`)) {
		return text
	}
	var in map[string]json.RawMessage
	if x402.Decode(text, &in) != nil {
		return text
	}
	if told && string(in["method"]) == `"`+methodProgress+`"` {
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

// exactEvents rewrites the data lines of an event stream. The SDK itself bounds an event; a line that is split over several
// fields data is left alone.
type exactEvents struct {
	lines *bufio.Reader // nil: rest is all
	rest  []byte
	body  io.Closer
	came  func(params json.RawMessage)
	err   error
}

func (e *exactEvents) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.lines == nil {
			return 0, io.EOF
		}
		if e.err != nil {
			return 0, e.err
		}
		e.rest, e.err = e.line()
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func (e *exactEvents) line() ([]byte, error) {
	var line []byte
	for {
		part, err := e.lines.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxBehind {
			return nil, errors.New("the server behind sent an event of more than " + strconv.Itoa(maxBehind) + " bytes")
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if ok && err == nil {
			line = append(append([]byte("data: "), exactMessage(bytes.TrimSpace(data), e.came)...), '\n')
		}
		return line, err
	}
}

func (e *exactEvents) Close() error { return e.body.Close() }
