package double_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
)

// specification is Stripe's OpenAPI document, which stripe-mock carries, and stripe-mock itself.
type specification struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`

	mock *server.StubServer
}

type operation struct {
	Parameters []struct {
		Name   string `json:"name"`
		In     string `json:"in"`
		Schema *node  `json:"schema"`
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]struct {
			Schema *node `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct {
			Schema *node `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

// node is a JSON schema, as far as the document uses them.
type node struct {
	Ref                  string           `json:"$ref"`
	Type                 string           `json:"type"`
	Nullable             bool             `json:"nullable"`
	Enum                 []any            `json:"enum"`
	AnyOf                []*node          `json:"anyOf"`
	Items                *node            `json:"items"`
	Properties           map[string]*node `json:"properties"`
	Required             []string         `json:"required"`
	AdditionalProperties json.RawMessage  `json:"additionalProperties"`
	Discriminator        any              `json:"discriminator"`
}

var specOnce = sync.OnceValues(func() (*specification, error) {
	var s specification
	if err := json.Unmarshal(embedded.OpenAPISpec, &s); err != nil {
		return nil, err
	}
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, err
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		return nil, err
	}
	quietly(func() { s.mock, err = server.NewStubServer(fixtures, spec, false, false) })
	return &s, err
})

// operation finds the operation of a request, and its path in the document.
func (s *specification) operation(method, path string) (operation, string, bool) {
	best, found := "", operation{}
	for p, ops := range s.Paths {
		op, ok := ops[strings.ToLower(method)]
		if ok && matches(p, path) && (best == "" || strings.Contains(best, "{") && !strings.Contains(p, "{")) {
			best, found = p, op
		}
	}
	return found, best, best != ""
}

// matches reports whether a path is one of a pattern such as /v1/charges/{charge}.
func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

// fits returns what of a value a schema does not allow.
func (s *specification) fits(at string, v any, n *node) []string {
	for n != nil && n.Ref != "" {
		n = s.Components.Schemas[strings.TrimPrefix(n.Ref, "#/components/schemas/")]
	}
	if n == nil {
		return nil
	}
	if v == nil {
		if n.Nullable {
			return nil
		}
		return []string{at + " is null"}
	}
	if len(n.AnyOf) > 0 {
		var first []string
		for _, o := range n.AnyOf {
			faults := s.fits(at, v, o)
			if len(faults) == 0 {
				return nil
			}
			if m, ok := v.(map[string]any); first == nil || ok && s.names(o, m["object"]) {
				first = faults
			}
		}
		return first
	}
	if len(n.Enum) > 0 && !slices.Contains(n.Enum, v) {
		return []string{fmt.Sprintf("%s: %v is not in %v", at, v, n.Enum)}
	}
	return s.fitsType(at, v, n)
}

// names reports whether a schema is that of an object with this word in the member "object".
func (s *specification) names(n *node, object any) bool {
	for n.Ref != "" {
		n = s.Components.Schemas[strings.TrimPrefix(n.Ref, "#/components/schemas/")]
	}
	o := n.Properties["object"]
	return o != nil && slices.Contains(o.Enum, object)
}

func (s *specification) fitsType(at string, v any, n *node) []string {
	var faults []string
	ok := true
	switch n.Type {
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "integer":
		number, is := v.(json.Number)
		ok = is && !strings.ContainsAny(number.String(), ".eE")
	case "number":
		_, ok = v.(json.Number)
	case "array":
		items, is := v.([]any)
		ok = is
		for i, item := range items {
			faults = append(faults, s.fits(fmt.Sprintf("%s[%d]", at, i), item, n.Items)...)
		}
	case "object":
		members, is := v.(map[string]any)
		ok = is
		for name, member := range members {
			p, known := n.Properties[name]
			switch {
			case known:
				faults = append(faults, s.fits(at+"."+name, member, p)...)
			case len(n.Properties) > 0 && (n.AdditionalProperties == nil || string(n.AdditionalProperties) == "false"):
				faults = append(faults, at+"."+name+" is unknown")
			}
		}
		for _, name := range n.Required {
			if _, has := members[name]; is && !has {
				faults = append(faults, at+"."+name+" is missing")
			}
		}
	}
	if !ok {
		faults = append(faults, fmt.Sprintf("%s: %v is no %s", at, v, n.Type))
	}
	return faults
}

// checking is a transport that compares each answer of the double with the specification, and sends
// each request that the double took to stripe-mock, which must take it, too.
type checking struct {
	t    *testing.T
	next http.RoundTripper
}

func (c *checking) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	a, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(a.Body)
	a.Body.Close()
	if err != nil {
		return nil, err
	}
	a.Body = io.NopCloser(bytes.NewReader(got))
	c.compare(r, sent, a.StatusCode, got)
	return a, nil
}

func (c *checking) compare(r *http.Request, sent []byte, status int, got []byte) {
	spec, err := specOnce()
	if err != nil {
		c.t.Error(err)
		return
	}
	op, path, ok := spec.operation(r.Method, r.URL.Path)
	if !ok {
		if status != http.StatusNotFound {
			c.t.Errorf("Stripe does not have %s %s", r.Method, r.URL.Path)
		}
		return
	}
	answer := "200"
	if status != http.StatusOK {
		answer = "default"
	}
	dec := json.NewDecoder(bytes.NewReader(got))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		c.t.Errorf("%s %s answers no JSON: %v", r.Method, path, err)
		return
	}
	for _, f := range spec.fits("answer", tree, op.Responses[answer].Content["application/json"].Schema) {
		c.t.Errorf("%s %s, status %d: %s", r.Method, path, status, f)
	}
	if status == http.StatusOK || status == http.StatusPaymentRequired {
		again := httptest.NewRequest(r.Method, r.URL.String(), bytes.NewReader(sent))
		again.Header = r.Header.Clone()
		w := httptest.NewRecorder()
		quietly(func() { spec.mock.HandleRequest(w, again) })
		if w.Code != http.StatusOK {
			c.t.Errorf("stripe-mock refuses %s %s %s: %s", r.Method, r.URL, sent, w.Body)
		}
	}
}

var mockLock sync.Mutex

// quietly keeps what stripe-mock prints off the terminal. Tests of this package do not run in parallel.
func quietly(run func()) {
	mockLock.Lock()
	defer mockLock.Unlock()
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		defer null.Close()
		os.Stdout = null
	}
	run()
}

// query is a form as the tests of parameters write it.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v.Encode()
}
