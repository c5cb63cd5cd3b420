package chaintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// Double is a JSON-RPC endpoint that stands in front of a chain and passes everything on, except for the faults that it is told
// to have: it is late, loses requests and answers, sends pages, and lies. Its methods may be used while it is asked.
type Double struct {
	// URL is its address, on loopback.
	URL string

	chain *rpc.Client
	end   chan struct{}

	mu    sync.Mutex
	way   func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) // fault of the way; nil: none
	lies  []lie
	calls map[string]int
	asked int
}

// lie answers a request in place of the chain, or passes it on. It is the newest that is asked first.
type lie func(ctx context.Context, method string, params []json.RawMessage, pass answerer) (json.RawMessage, error)

type answerer func(ctx context.Context, method string, params []json.RawMessage) (json.RawMessage, error)

// Refusal is a JSON-RPC error.
type Refusal struct {
	Code    int
	Message string
	Data    any
}

func (r *Refusal) Error() string  { return r.Message }
func (r *Refusal) ErrorCode() int { return r.Code }
func (r *Refusal) ErrorData() any { return r.Data }

// NewDouble starts a double of a chain. It ends with the test.
func NewDouble(t testing.TB, chain *rpc.Client) *Double {
	d := &Double{chain: chain, end: make(chan struct{}), calls: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(d.serve))
	d.URL = server.URL
	t.Cleanup(func() {
		close(d.end)
		server.CloseClientConnections()
		server.Close()
	})
	return d
}

// Calls counts the requests with this method that reached the double, "" all HTTP requests.
func (d *Double) Calls(method string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if method == "" {
		return d.asked
	}
	return d.calls[method]
}

// Clear ends all faults and lies.
func (d *Double) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.way, d.lies = nil, nil
}

func (d *Double) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.asked++
	way := d.way
	d.mu.Unlock()
	if way != nil {
		way(w, r, d.pass)
		return
	}
	d.pass(w, r)
}

type request struct {
	Version string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Method  string            `json:"method"`
	Params  []json.RawMessage `json:"params"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *problem        `json:"error,omitempty"`
}

type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (d *Double) pass(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	var answer any
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		var all []request
		err = json.Unmarshal(body, &all)
		answers := make([]response, len(all))
		for i, one := range all {
			answers[i] = d.answer(r.Context(), one)
		}
		answer = answers
	} else {
		var one request
		if err = json.Unmarshal(body, &one); err == nil {
			answer = d.answer(r.Context(), one)
		}
	}
	if err != nil {
		http.Error(w, "no JSON-RPC", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func (d *Double) answer(ctx context.Context, req request) response {
	d.mu.Lock()
	d.calls[req.Method]++
	lies := d.lies
	d.mu.Unlock()
	ask := d.forward
	for _, l := range lies {
		next := ask
		ask = func(ctx context.Context, method string, params []json.RawMessage) (json.RawMessage, error) {
			return l(ctx, method, params, next)
		}
	}
	resp := response{Version: "2.0", ID: req.ID}
	result, err := ask(ctx, req.Method, req.Params)
	if err != nil {
		resp.Error = problemOf(err)
		return resp
	}
	resp.Result = result
	if resp.Result == nil {
		resp.Result = json.RawMessage("null")
	}
	return resp
}

func (d *Double) forward(ctx context.Context, method string, params []json.RawMessage) (json.RawMessage, error) {
	args := make([]any, len(params))
	for i, p := range params {
		args[i] = p
	}
	var result json.RawMessage
	err := d.chain.CallContext(ctx, &result, method, args...)
	return result, err
}

func problemOf(err error) *problem {
	p := &problem{Code: -32603, Message: err.Error()}
	if coded, ok := errors.AsType[rpc.Error](err); ok {
		p.Code = coded.ErrorCode()
	}
	if data, ok := errors.AsType[rpc.DataError](err); ok {
		p.Data = data.ErrorData()
	}
	return p
}

func (d *Double) setFault(way func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.way = way
}

// Delay makes every answer late.
func (d *Double) Delay(by time.Duration) {
	d.setFault(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		select {
		case <-time.After(by):
			pass(w, r)
		case <-d.end:
		}
	})
}

// Hang answers nothing until the test ends.
func (d *Double) Hang() {
	d.setFault(func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		// The server sees that the client has gone only when the body is read.
		io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-d.end:
		}
	})
}

// Drop cuts the connections of the next n requests before they reach the chain, and of all with a negative n.
func (d *Double) Drop(n int) { d.setFault(d.times(n, func(http.ResponseWriter, *http.Request) {})) }

// LoseAnswers passes the next n requests on and cuts the connection in place of their answers, of all with a negative n.
func (d *Double) LoseAnswers(n int) {
	d.setFault(d.times(n, func(_ http.ResponseWriter, r *http.Request) { d.pass(httptest.NewRecorder(), r) }))
}

// times cuts the connection of the next n requests after f.
func (d *Double) times(n int, f http.HandlerFunc) func(http.ResponseWriter, *http.Request, http.HandlerFunc) {
	left := n
	return func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		d.mu.Lock()
		cut := left != 0
		if left > 0 {
			left--
		}
		d.mu.Unlock()
		if !cut {
			pass(w, r)
			return
		}
		f(w, r)
		panic(http.ErrAbortHandler)
	}
}

// Page answers everything with this status and a page of HTML.
func (d *Double) Page(status int) {
	d.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		io.WriteString(w, "<!doctype html><title>It works</title>")
	})
}

// Redirect sends every request to another address.
func (d *Double) Redirect(to string) {
	d.setFault(func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	})
}

// Flood answers with a JSON string that does not end before size bytes.
func (d *Double) Flood(size int64) {
	d.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"`)
		block := bytes.Repeat([]byte("0"), 1<<16)
		for sent := int64(0); sent < size; sent += int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		io.WriteString(w, `"}`)
	})
}

// Status answers everything with this status and this body of JSON.
func (d *Double) Status(status int, body string) {
	d.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func (d *Double) Watch(f func(r *http.Request)) {
	d.setFault(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		f(r)
		pass(w, r)
	})
}
