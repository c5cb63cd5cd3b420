package paidmcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// message is the part of a JSON-RPC message that the HTTP layer reads. The SDK decodes the same bytes again. Both reject duplicate
// names and match names exactly, so they agree.
type message struct {
	id       json.RawMessage // nil: a notification
	method   string          // "": a response to a request of ours
	name     string          // name of the tool or prompt, or uri of the resource
	isNew    bool            // params._meta names a protocol version, as from 2026-07-28
	isPaid   bool            // params._meta carries a payment
	isNotice bool            // the method begins with "notifications/"
}

// messageFault is the response to a message that the SDK must not see.
type messageFault struct {
	status int
	code   int64
	text   string
	id     json.RawMessage
}

func (f *messageFault) write(w http.ResponseWriter) {
	id := f.id
	if id == nil {
		id = json.RawMessage("null")
	}
	writeJSON(w, f.status, struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   any             `json:"error"`
	}{"2.0", id, struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}{f.code, f.text}})
}

func invalid(id json.RawMessage, text string) *messageFault {
	return &messageFault{http.StatusBadRequest, jsonrpc.CodeInvalidRequest, text, id}
}

const (
	maxBodies = 64 << 20 // maximum bytes of bodies in memory, over all requests
	freeBody  = 64 << 10 // bytes of each body that do not count
)

// readBody reads a JSON body of at most most bytes. done releases its memory. If ok is false, it has written a response.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, done func(), ok bool) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset, named := params["charset"]
	if err != nil || kind != "application/json" || named && !strings.EqualFold(charset, "utf-8") || len(r.Header.Values("Content-Type")) > 1 ||
		r.Header.Get("Content-Encoding") != "" {
		refuse(w, http.StatusUnsupportedMediaType, "invalid_request", "The body must be application/json.")
		return nil, nil, false
	}
	var taken int64
	done = func() { s.bodies.Release(taken) }
	for in := http.MaxBytesReader(w, r.Body, most); err == nil; {
		if len(body) == cap(body) {
			// The buffer grows with the received bytes, not with Content-Length.
			size := min(max(4<<10, 2*int64(cap(body))), most+512)
			more := max(size-freeBody, 0) - taken
			if !s.bodies.TryAcquire(more) {
				done()
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "5")
				refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable",
					"The server cannot accept a request of this size now. Retry in 5 seconds.")
				return nil, nil, false
			}
			taken += more
			body = append(make([]byte, 0, size), body...)
		}
		var n int
		n, err = in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	if errors.Is(err, io.EOF) {
		return body, done, true
	}
	done()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, "invalid_request", "The body is larger than "+strconv.FormatInt(most, 10)+" bytes.")
		return nil, nil, false
	}
	refuse(w, http.StatusBadRequest, "invalid_request", "The body could not be read.")
	return nil, nil, false
}

// readMessage parses one message. It rejects batches, ids that are neither strings nor integers, and requests without an id:
// every call has a response, and every response its payment.
func readMessage(body []byte) (*message, *messageFault) {
	var in struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  *string         `json:"method"`
		Params  json.RawMessage `json:"params"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	text := bytes.TrimLeft(body, " \t\r\n")
	if !json.Valid(text) {
		return nil, &messageFault{http.StatusBadRequest, jsonrpc.CodeParseError, "Parse error: the body is not JSON.", nil}
	}
	if text[0] == '[' {
		return nil, invalid(nil, "Batches are not supported.")
	}
	if err := x402.Decode(text, &in); err != nil {
		return nil, invalid(nil, "The message is not strict JSON-RPC: "+err.Error())
	}
	if in.Version != "2.0" {
		return nil, invalid(nil, "jsonrpc must be 2.0.")
	}
	if in.ID != nil && !isID(in.ID) {
		return nil, invalid(nil, "The id must be a string or an integer.")
	}
	m := &message{id: in.ID}
	if in.Method == nil {
		if in.ID == nil || in.Result == nil && in.Error == nil {
			return nil, invalid(in.ID, "The message must have a method, or an id and a result or error.")
		}
		return m, nil
	}
	m.method = *in.Method
	m.isNotice = strings.HasPrefix(m.method, "notifications/")
	switch {
	case m.method == "":
		return nil, invalid(in.ID, "The method is empty.")
	case m.id == nil && !m.isNotice:
		return nil, invalid(nil, "The id is missing: "+shown(m.method)+" is a request.")
	case m.id != nil && m.isNotice:
		return nil, invalid(in.ID, "The id must be absent: "+shown(m.method)+" is a notification.")
	}
	return m, m.readParams(in.Params)
}

// readParams reads the parameters that the HTTP layer depends on. The methods check the remaining parameters.
func (m *message) readParams(params json.RawMessage) *messageFault {
	if len(params) == 0 || string(params) == "null" {
		return nil
	}
	var in map[string]json.RawMessage
	if x402.Decode(params, &in) != nil {
		return invalid(m.id, "params must be an object.")
	}
	name := "name"
	if m.method == methodReadResource {
		name = "uri"
	}
	// The method itself rejects a name of a wrong type.
	if x402.Decode(in[name], &m.name) != nil {
		m.name = ""
	}
	var meta map[string]json.RawMessage
	if in["_meta"] != nil && x402.Decode(in["_meta"], &meta) != nil {
		return nil
	}
	m.isNew = meta[mcp.MetaKeyProtocolVersion] != nil
	m.isPaid = isPayment(meta[metaPayment])
	return nil
}

const (
	methodInitialize   = "initialize"
	methodCallTool     = "tools/call"
	methodListTools    = "tools/list"
	methodReadResource = "resources/read"
	methodGetPrompt    = "prompts/get"
	methodListen       = "subscriptions/listen"
)

// runs maps the methods that run an item to the type of the item.
var runs = map[string]Type{methodCallTool: Tools, methodReadResource: Resources, methodGetPrompt: Prompts}

// isID reports whether raw is a string, or an integer within ±(2^53-1), which every language represents exactly.
func isID(raw json.RawMessage) bool {
	if raw[0] == '"' {
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && n <= maxExact && n >= -maxExact
}

const maxExact = 1<<53 - 1
