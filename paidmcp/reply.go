package paidmcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tollhq/toll/x402"
)

// reply turns the event stream of the SDK into plain JSON if its first event is the response of the call, so that clients see
// events only for calls that stream.
type reply struct {
	w       http.ResponseWriter
	streams bool   // the client accepts events
	always  bool   // the client accepts only events
	begun   bool   // the headers were sent
	answer  []byte // response of the call, if it was the first event
	status  int
	before  func(h http.Header) // called before the headers are sent, may change them
	opens   func() []byte       // called before a stream is sent, returns its first bytes
}

// accepts parses the Accept headers. Without a header it returns true for both types. If neither type is accepted, it returns JSON.
func accepts(values []string) (asJSON, asEvents bool) {
	if len(values) == 0 {
		return true, true
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json", "application/*":
				asJSON = true
			case "text/event-stream", "text/*":
				asEvents = true
			case "*/*":
				asJSON, asEvents = true, true
			}
		}
	}
	return asJSON || !asEvents, asEvents
}

func (a *reply) Header() http.Header { return a.w.Header() }

func (a *reply) Unwrap() http.ResponseWriter { return a.w }

func (a *reply) WriteHeader(status int) {
	a.status = status
	if !a.isStream() {
		a.begin(status)
	}
}

func (a *reply) isStream() bool { return a.Header().Get("Content-Type") == "text/event-stream" }

func (a *reply) begin(status int) {
	if a.begun {
		return
	}
	a.begun, a.status = true, status
	a.Header().Set("X-Content-Type-Options", "nosniff")
	if a.before != nil {
		a.before(a.Header())
	}
	var prime []byte
	if a.opens != nil && a.isStream() {
		prime = a.opens()
	}
	a.w.WriteHeader(status)
	if prime != nil {
		_, _ = a.w.Write(prime) // if it fails, the next write fails as well
	}
}

// Write writes bytes of a plain response, or one event. The SDK writes each event in a single call.
func (a *reply) Write(b []byte) (int, error) { return a.write(nil, b) }

// write writes an event after its id line, which it sends only in a stream.
func (a *reply) write(id, event []byte) (int, error) {
	if a.isStream() && !a.begun && !a.always {
		if text := eventData(event); isAnswer(text) {
			a.answer = bytes.Clone(text)
			return len(event), nil
		}
		if !a.streams {
			return len(event), nil // the client accepts only JSON, so events before the response are dropped
		}
	}
	a.begin(http.StatusOK)
	if len(id) > 0 {
		if _, err := a.w.Write(id); err != nil {
			return 0, err
		}
	}
	return a.w.Write(event)
}

// Flush sends buffered data to the client.
func (a *reply) Flush() {
	if a.begun {
		_ = http.NewResponseController(a.w).Flush() // best effort, as in the SDK
	}
}

// finish sends a response that was the only event.
func (a *reply) finish() {
	if a.begun || a.answer == nil {
		return
	}
	h := a.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(a.answer)))
	h.Del("Connection")
	a.begin(http.StatusOK)
	_, _ = a.w.Write(a.answer) // fails only if the client has disconnected
}

// eventData returns the data of an event (WHATWG HTML, section 9.2.6).
func eventData(event []byte) []byte {
	var data [][]byte
	for line := range bytes.SplitSeq(event, []byte("\n")) {
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(text, []byte(" ")))
		}
	}
	if len(data) == 1 {
		return data[0]
	}
	return bytes.Join(data, []byte("\n"))
}

// isAnswer reports whether a message is a response, and not a notification or request.
func isAnswer(text []byte) bool {
	var in struct {
		Method json.RawMessage `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	return x402.Decode(text, &in) == nil && in.Method == nil && (in.Result != nil || in.Error != nil)
}
