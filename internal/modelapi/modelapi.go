// Package modelapi knows the HTTP APIs of model servers: which requests a gate can sell by usage, how large a request can become, and
// the usage that a response reports. It has no goroutines, no clock, and no I/O.
//
// A request passes only if all of its members are known, because an unknown member may cost the seller money. Members that refer to
// stored data and tools that are billed apart are refused.
package modelapi

import (
	"bytes"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
)

// Quantities of usage. They are disjoint: a token is counted in one of them.
const (
	Input        = "input" // uncached tokens of the request
	CacheRead    = "cache_read"
	CacheWrite   = "cache_write"
	CacheWrite1h = "cache_write_1h"
	InputAudio   = "input_audio"
	InputImage   = "input_image"
	Output       = "output" // visible tokens of the response
	Reasoning    = "reasoning"
	OutputAudio  = "output_audio"
	OutputImage  = "output_image"
)

const (
	maxName    = 256  // bytes of a model's name, and of a text in Call.Members
	maxAnswers = 128  // answers for each prompt
	maxPrompts = 2048 // prompts of one completion request

	// templateTokens and toolTokens are added to Input: tokens that a server adds around the request, and around its tools.
	templateTokens, toolTokens = 256, 1024
	// remoteDocument is the Input of a document behind a URL: its size is unknown.
	remoteDocument = 1 << 20
	// audioShare is the number of bytes of encoded audio for one byte of text. A token of audio takes about 100 ms.
	audioShare = 16
)

// API is the HTTP API of a kind of model server.
type API struct {
	name       string
	operations []*Operation
	free       []string
	seller     []string
	failure    func(status int, text, param string) any
}

var apis = []*API{openAI(), anthropic(), ollama(), gemini()}

// Find returns the API with this name.
func Find(name string) (*API, bool) {
	for _, a := range apis {
		if a.name == name {
			return a, true
		}
	}
	return nil, false
}

// Names returns the names of all APIs.
func Names() (names []string) {
	for _, a := range apis {
		names = append(names, a.name)
	}
	return names
}

// Name returns the name of the API, for example "openai".
func (a *API) Name() string { return a.name }

// Paths returns the method and path of every priced operation, for example "POST /v1/messages". A path may contain {model}.
func (a *API) Paths() (paths []string) {
	for _, o := range a.operations {
		paths = append(paths, "POST "+o.path)
	}
	return paths
}

// FreeRoutes returns the method and path of the routes that cost nothing, for example "GET /v1/models/{id}".
func (a *API) FreeRoutes() []string { return slices.Clone(a.free) }

// SellerHeaders returns the lower-case names of response headers that describe the seller's account. A name that ends with * means
// every header with that prefix.
func (a *API) SellerHeaders() []string {
	return append([]string{"set-cookie", "x-ratelimit-*"}, a.seller...)
}

// Operation is one priced route of an API. The zero value is not usable.
type Operation struct {
	api      *API
	path     string
	members  map[string]rule
	required string                     // names of required members
	limit    string                     // path of the output limit; "a|b" for two names of which the last is the default; "" without output
	streamed bool                       // streams unless the request sets stream to false
	store    bool                       // store: false is sent
	usage    bool                       // streams report usage only if stream_options.include_usage is set
	model    string                     // from the path
	stream   bool                       // from the path
	headers  func(from, to http.Header) // adds request headers to forward
	read     reader
}

// Operation returns the operation of an HTTP method and an unescaped path, or nil. The last segments of the path are compared, so the
// path may have a prefix such as /openai.
func (a *API) Operation(method, path string) *Operation {
	if method != http.MethodPost {
		return nil
	}
	for _, o := range a.operations {
		head, tail, dynamic := strings.Cut(o.path, "{model}")
		if !dynamic {
			if strings.HasSuffix(path, o.path) {
				return o
			}
			continue
		}
		rest, ok := strings.CutSuffix(path, tail)
		i := strings.LastIndex(rest, head)
		if !ok || i < 0 || !validModel(rest[i+len(head):]) {
			continue
		}
		c := *o
		c.model = rest[i+len(head):]
		return &c
	}
	return nil
}

func validModel(s string) bool {
	return s != "" && len(s) <= maxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" &&
		strings.Trim(s, ".") != ""
}

// HasOutput reports whether the operation produces output tokens.
func (o *Operation) HasOutput() bool { return o.limit != "" }

// LimitNames returns the names of members for the output limit, of which the last is the default. A name with a dot is nested.
func (o *Operation) LimitNames() []string { return strings.Split(o.limit, "|") }

// Added returns the names of the members that [Call.Body] adds besides the output limit: store, stream_options, or none.
func (o *Operation) Added() (names []string) {
	if o.store {
		names = append(names, "store")
	}
	if o.usage {
		names = append(names, "stream_options")
	}
	return names
}

// Call is one priced request.
type Call struct {
	// Members are the top-level strings, numbers, and booleans as text, without strings above 256 bytes. "model" is always present.
	Members map[string]string
	// Surcharges are the names of members that change the seller's cost, for example service_tier. Refuse the call unless the price
	// row names each of them.
	Surcharges []string
	Stream     bool
	N          int64 // answers: n or best_of, times the number of prompts
	Input      int64 // bytes of everything the model reads, except images: an upper bound of the tokens
	Files      int64 // image, audio, and document parts. Documents and audio count in Input too.
	Output     int64 // output limit of one answer that the caller set; 0 if unset
	HasOutput  bool
	// LimitName is the member that Body sets to the output limit. The name that the caller used is the default. Set it to another name
	// of LimitNames if the server ignores the default: Ollama and DeepSeek ignore max_completion_tokens, and OpenAI refuses max_tokens
	// for some models.
	LimitName string
	// Omit lists names of [Operation.Added] that Body leaves out, for servers that reject members they do not know.
	Omit []string

	op      *Operation
	members []member
	header  http.Header
	hide    bool  // the caller did not request the usage event
	budget  int64 // thinking tokens, which must stay below the output limit
}

// Parse reads a request strictly: one JSON object in UTF-8 with known members, no name twice, nested at most 128 deep, without content
// coding. body is complete and bounded by the caller of Parse. The error is a *toll.Error with [toll.CodeBadRequest] that names the
// member, also in params.path.
func (o *Operation) Parse(h http.Header, body []byte) (*Call, error) {
	if err := checkHeader(h); err != nil {
		return nil, err
	}
	body, err := normalize(body)
	if err != nil {
		return nil, asFault(err)
	}
	c := &Call{op: o, Members: map[string]string{}, N: 1, Input: templateTokens, Stream: o.streamed || o.stream, HasOutput: o.HasOutput(),
		header: http.Header{"Content-Type": {"application/json"}}}
	if o.headers != nil {
		o.headers(h, c.header)
	}
	w := &walk{call: c}
	if c.members, err = split(body); err != nil {
		return nil, fault("", "must be an object")
	}
	if err := object(o.required, o.members)(w, body); err != nil {
		return nil, asFault(err)
	}
	for _, m := range c.members {
		if s, ok := scalar(m.value); ok && len(s) <= maxName {
			c.Members[m.name] = s
		}
	}
	if o.model != "" {
		c.Members["model"] = o.model
	}
	if err := w.finish(); err != nil {
		return nil, asFault(err)
	}
	return c, nil
}

func checkHeader(h http.Header) error {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault("", "has a Content-Encoding; compressed request bodies are not supported")
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if charset := params["charset"]; err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return fault("", "must have the Content-Type application/json")
	}
	return nil
}

// finish combines members that depend on each other.
func (w *walk) finish() error {
	c, o := w.call, w.call.op
	if c.Members["model"] == "" {
		return &ruleError{path: "model", why: "is required, with at most 256 bytes"}
	}
	c.N *= max(w.prompts, 1)
	c.Input += w.tools * toolTokens
	c.hide = c.Stream && o.usage && !w.usage
	names := o.LimitNames()
	c.LimitName = names[len(names)-1]
	set := 0
	for _, name := range names {
		if n, ok := w.limits[name]; ok {
			c.LimitName, c.Output = name, n
			set++
		}
	}
	if set > 1 {
		return &ruleError{path: names[0], why: "cannot be combined with " + names[1]}
	}
	if c.budget > 0 && c.Output > 0 && c.budget >= c.Output {
		return errBudget(c.Output)
	}
	return nil
}

func errBudget(limit int64) error {
	return &ruleError{path: "thinking.budget_tokens", why: "must be below the output limit, which is " + strconv.FormatInt(limit, 10)}
}

// Body returns the body to forward: the parsed request with the output limit, store false where the API stores answers, and usage
// requested for streams, without the members in Omit. limit is the output limit of one answer, and 0 changes nothing. A lower limit of
// the caller stays. The error is a *toll.Error: the limit is too low for the request.
func (c *Call) Body(limit int64) ([]byte, error) {
	if c.Output > 0 && (limit <= 0 || c.Output < limit) {
		limit = c.Output
	}
	if limit > 0 && c.budget >= limit {
		return nil, asFault(errBudget(limit))
	}
	m := slices.Clone(c.members)
	if limit > 0 && c.HasOutput {
		m = slices.DeleteFunc(m, func(m member) bool { return m.name != c.LimitName && slices.Contains(c.op.LimitNames(), m.name) })
		m = set(m, strings.Split(c.LimitName, "."), strconv.FormatInt(limit, 10))
	}
	if c.op.store {
		m = set(m, []string{"store"}, "false")
	}
	if c.op.usage && c.Stream {
		m = set(m, []string{"stream_options", "include_usage"}, "true")
	}
	return join(slices.DeleteFunc(m, func(m member) bool { return slices.Contains(c.Omit, m.name) })), nil
}

// Header returns the request headers to forward: the content type, and headers of the caller that the API needs.
func (c *Call) Header() http.Header { return c.header.Clone() }

// Error returns an error in the shape of the API. With status 401 or 402 the message contains buyAt, the address where access is sold.
func (a *API) Error(e *toll.Error, buyAt string) (status int, contentType string, body []byte) {
	status = e.HTTPStatus()
	text := e.Text()
	if buyAt != "" && (status == http.StatusUnauthorized || status == http.StatusPaymentRequired) {
		text += " Buy access at " + buyAt
	}
	param, _ := e.Params["path"].(string)
	return status, "application/json", encode(a.failure(status, text, param))
}

// fault returns the error for a caller of the API.
func fault(path, why string) *toll.Error {
	if path == "" {
		return toll.Errorf(toll.CodeBadRequest, "The request body %s.", why)
	}
	return toll.Errorf(toll.CodeBadRequest, "%s %s.", path, why).WithParam("path", path)
}

func asFault(err error) *toll.Error {
	if e, ok := err.(*ruleError); ok {
		return fault(e.path, e.why)
	}
	return fault("", err.Error())
}

// set returns the members with the value at the path, which has one or two names. It changes members, which keep their places.
func set(members []member, path []string, value string) []member {
	v := jsontext.Value(value)
	i := slices.IndexFunc(members, func(m member) bool { return m.name == path[0] })
	if len(path) > 1 {
		var inner []member
		if i >= 0 && members[i].value.Kind() == '{' {
			inner, _ = split(members[i].value)
		}
		v = join(set(inner, path[1:], value))
	}
	if i < 0 {
		return append(members, member{path[0], v})
	}
	members[i].value = v
	return members
}

func join(members []member) []byte {
	var b bytes.Buffer
	for i, m := range members {
		b.WriteByte("{,"[min(i, 1)])
		name, _ := jsontext.AppendQuote(nil, m.name)
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	if len(members) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes()
}
