package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/gzipped"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/traces"
	"github.com/tollhq/toll/x402"
)

type call struct {
	h *handler
	w http.ResponseWriter
	r *http.Request

	resource *resource // nil: no such path
	route    *route    // nil until the method is known
	params   [2]param

	caller  auth.Caller
	known   bool           // the caller is in a workspace: by an API key that is valid, or by a session
	authErr error          // why there is no caller
	browser *auth.Page     // who uses a page of the service, which calls inside the process; nil: a call from the network
	signed  *people.Signed // the session of a person in place of an API key, where the route takes one; nil: none

	version     apiversion.Version
	from        apiversion.From
	correlation traces.Context
	context     context.Context // of the work: that of the request, with the id for the log
	body        []byte          // as sent, once it was decoded

	status int // of a success, 0 for the status of the route
	// Of a call that is remembered: when it began, the status that was written, and the code of an error.
	began    time.Time
	answered int
	code     toll.Code
	refused  *x402.SettleResponse // a refusal that is answered as an error
	written  bool
	current  []byte   // the body in the current shape
	unknown  []string // members of a creating request that were passed over
	warnings []toll.Warning
}

type param struct{ name, value string }

// union says which members an error needs beside those of every error.
type union int

const (
	unionNone union = iota
	unionVerify
	unionSettle
)

func (c *call) union() union {
	if c.resource == nil {
		return unionNone
	}
	return c.resource.union
}

func (c *call) op() string {
	if c.route == nil {
		return ""
	}
	return c.route.op
}

func (c *call) param(name string) string {
	for _, p := range c.params {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// decode reads the body into v: size, media type, older shapes, then the strict decoder.
func (c *call) decode(v any) error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	c.body = body
	if c.version.Before(apiversion.Current) {
		if body, err = apiversion.Up(c.route.op, c.version, body); err != nil {
			return toll.NewError(toll.CodeVersionGateFailed).WithCause(err)
		}
	}
	c.current = body
	switch v.(type) {
	case *x402.VerifyRequest, *x402.SettleRequest:
		return c.h.bodies.Decode(c.caller.Address, body, v)
	}
	if r, ok := v.(interface{ required() []string }); ok {
		return x402.DecodeRequired(body, v, r.required()...)
	}
	return x402.Decode(body, v)
}

func (c *call) readBody() ([]byte, error) {
	body, err := c.readRaw(maxBodyBytes)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return body, checkMediaType(c.r.Header)
}

// readRaw returns a body of at most limit bytes that arrives in time. A body that is refused closes the connection, as what
// follows it there cannot be trusted to be a request.
func (c *call) readRaw(limit int64) (body []byte, err error) {
	switch n := c.r.ContentLength; {
	case n > limit:
		err = toll.NewError(toll.CodeBodyTooLarge)
	case n > 0:
		body = make([]byte, n)
		if _, err = io.ReadFull(c.r.Body, body); err != nil {
			err = bodyError(err)
		}
	case n < 0:
		if body, err = io.ReadAll(io.LimitReader(c.r.Body, limit+1)); err != nil {
			err = bodyError(err)
		} else if int64(len(body)) > limit {
			err = toll.NewError(toll.CodeBodyTooLarge)
		}
	}
	if err != nil {
		c.w.Header()["Connection"] = closing
		return nil, err
	}
	return body, nil
}

func bodyError(err error) error {
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return toll.NewError(toll.CodeRequestTimeout)
	}
	return toll.Errorf(toll.CodeBadRequest, "The body could not be read.").WithCause(err)
}

// checkMediaType takes JSON in UTF-8, as it is, or no type at all.
func checkMediaType(h http.Header) error {
	if len(h["Content-Encoding"]) > 0 && !strings.EqualFold(h["Content-Encoding"][0], "identity") {
		return toll.Errorf(toll.CodeMediaType, "Compressed request bodies are not supported.")
	}
	types := h["Content-Type"]
	if len(types) == 0 || len(types) == 1 && (types[0] == "application/json" || types[0] == "") {
		return nil
	}
	if len(types) == 1 {
		media, params, err := mime.ParseMediaType(types[0])
		charset := params["charset"]
		if err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")) && (charset == "" || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return toll.NewError(toll.CodeMediaType)
}

// document is an answer that is not JSON of ours.
type document struct {
	contentType []string
	rendered
}

// forClient returns the text in a form that the client takes, and says in the header which one.
func (t rendered) forClient(w http.ResponseWriter, r *http.Request) []byte {
	w.Header().Add("Vary", "Accept-Encoding")
	if t.gzip == nil || !gzipped.Taken(r, "gzip") {
		return t.plain
	}
	w.Header().Set("Content-Encoding", "gzip")
	return t.gzip
}

// stored is a JSON answer that leaves byte for byte as it is.
type stored []byte

// encoded is a JSON answer in its current shape.
type encoded []byte

func encode(answer any) ([]byte, error) {
	if e, ok := answer.(encoded); ok {
		return e, nil
	}
	return x402.Encode(answer)
}

func (c *call) reply(answer any) {
	status := c.status
	if status == 0 {
		status = c.route.success()
	}
	switch a := answer.(type) {
	case served:
		return
	case document:
		c.write(status, a.contentType, a.forClient(c.w, c.r))
		return
	case stored:
		c.write(status, jsonType, a)
		return
	}
	body, err := encode(answer)
	if err != nil {
		c.fail(toll.NewError(toll.CodeInternal).WithCause(err))
		return
	}
	if c.version.Before(apiversion.Current) {
		if body, err = apiversion.Down(c.route.op, c.version, body); err != nil {
			c.fail(toll.NewError(toll.CodeVersionGateFailed).WithCause(err))
			return
		}
	}
	if code, refused := verdictOf(answer); refused {
		c.h.Refused(code)
	}
	c.write(status, jsonType, body)
}

// verdictOf returns the code of an answer with status 200 that says no, which verify gives, and settle to a stock body.
func verdictOf(answer any) (code toll.Code, refused bool) {
	switch a := answer.(type) {
	case *x402.VerifyResponse:
		return a.Code, !a.IsValid
	case *x402.SettleResponse:
		return a.Code, !a.Success
	}
	return "", false
}

// shortAnswer is how long an answer may be of which net/http finds the length by itself, its buffer. One header less keeps the map
// of headers in its first group.
const shortAnswer = 2048

func (c *call) write(status int, contentType []string, body []byte) {
	c.written, c.answered = true, status
	header := c.w.Header()
	header["Content-Type"] = contentType
	if len(body) > shortAnswer {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // the caller has gone; there is nobody to tell
}

// unknownMembers returns the paths of members of a creating request that were passed over.
func unknownMembers(body []byte, in any) []string {
	if own, ok := in.(interface{ UnknownMembers(data []byte) []string }); ok {
		return own.UnknownMembers(body)
	}
	return x402.UnknownMembers(body, in)
}

// warned returns an answer with the unknown members of its request in warnings, after those that it has. It keeps a typed
// nil out of the answer.
func (c *call) warned(out any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	warnings := c.warnings
	for _, path := range c.unknown {
		warnings = append(warnings, toll.Warning{Message: path})
	}
	if len(warnings) == 0 {
		return out, nil
	}
	if t, ok := out.(*toll.AccessToken); ok {
		token := *t
		token.Warnings = append(slices.Clip(t.Warnings), warnings...)
		return &token, nil
	}
	body, err := encode(out)
	if err != nil {
		return nil, err
	}
	list, err := x402.Encode(warnings)
	if err != nil {
		return nil, err
	}
	members, isObject := bytes.CutSuffix(body, []byte("}"))
	if !isObject || len(members) < 2 {
		return encoded(body), nil
	}
	return encoded(slices.Concat(members, []byte(`,"warnings":`), list, []byte("}"))), nil
}
