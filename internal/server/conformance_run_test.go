package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// The shapes of a conformance file. What they mean is in testdata/conformance/README.md.
type (
	conformanceFile struct {
		Name  string            `json:"-"`
		About string            `json:"about"`
		Needs []string          `json:"needs"`
		Cases []conformanceCase `json:"cases"`
	}
	conformanceCase struct {
		Name      string         `json:"name"`
		Operation string         `json:"operation"`
		As        string         `json:"as"`
		Only      string         `json:"only"`
		RetrySecs int            `json:"retrySecs"`
		Times     int            `json:"times"`
		Request   caseRequest    `json:"request"`
		Expect    caseExpectancy `json:"expect"`
	}
	caseRequest struct {
		Method  string          `json:"method"`
		Path    string          `json:"path"`
		Headers map[string]any  `json:"headers"`
		Body    json.RawMessage `json:"body"`
		RawBody *string         `json:"rawBody"`
		Stream  bool            `json:"stream"`
	}
	caseExpectancy struct {
		Status  any             `json:"status"`
		Code    string          `json:"code"`
		Headers map[string]any  `json:"headers"`
		Body    json.RawMessage `json:"body"`
		Text    any             `json:"text"`
		SameAs  string          `json:"sameAs"`
	}
)

// parseJSON reads one value, with numbers as they are written.
func parseJSON(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON value")
	}
	return v, nil
}

// conformanceFiles reads every file of the suite.
func conformanceFiles(t *testing.T) []conformanceFile {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(conformanceDir, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no conformance files", err)
	}
	var files []conformanceFile
	for _, path := range paths {
		text := must.Get(os.ReadFile(path))(t)
		f := conformanceFile{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		dec.UseNumber()
		must.Do(t, dec.Decode(&f), path)
		names := map[string]bool{}
		for _, c := range f.Cases {
			key := c.Name + "/" + c.Only
			if c.Name == "" || names[key] || names[c.Name+"/"] {
				t.Errorf("%s: a case without a name of its own: %q", path, c.Name)
			}
			names[key] = true
		}
		files = append(files, f)
	}
	return files
}

// run is one pass through one file on one service, in one API version.
type run struct {
	on      *conformanceService
	file    *conformanceFile
	version string
	vars    map[string]any // names that a file can use: brand words, actors, captured values
	actors  map[string]toll.APIKey
	answers map[string]caseAnswer
	serial  int
}

type caseAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a caseAnswer) isJSON() bool { return a.header.Get("Content-Type") == "application/json" }

func newRun(s *conformanceService, f *conformanceFile, version string) *run {
	unique := toll.NewHash().String()[2:18]
	number, _ := strconv.ParseUint(unique, 16, 64)
	r := &run{on: s, file: f, version: version, actors: map[string]toll.APIKey{}, answers: map[string]caseAnswer{}}
	r.vars = map[string]any{
		"scheme": s.brand.Scheme, "Header": s.brand.Header, "header": strings.ToLower(s.brand.Header), "word": s.brand.Word, "keyPrefix": s.prefix, "publicURL": s.url,
		"version": version, "run": unique, "runNumber": strconv.FormatUint(number|1, 10), "receiver": s.receiver,
		"long": strings.Repeat("0123456789", 26),
	}
	return r
}

// roles are who can make a request. A stranger has an account and owns nothing; nobody has no API key.
var roles = []string{"builder", "otherBuilder", "subscriber", "stranger", "operator"}

const nobody = "nobody"

func (r *run) actor(t *testing.T, role string) toll.APIKey {
	t.Helper()
	if key, ok := r.actors[role]; ok {
		return key
	}
	if !slices.Contains(roles, role) {
		t.Fatalf("there is no role %q", role)
	}
	key := r.on.newKey(t, role+" of "+r.file.Name+" "+r.version+" "+fmt.Sprint(r.vars["run"]), role == "operator")
	r.actors[role] = key
	_, jwt, _ := strings.Cut(key.Key, ":")
	r.vars[role+".address"], r.vars[role+".keyId"] = key.Address.String(), key.ID.String()
	r.vars[role+".key"], r.vars[role+".jwt"] = key.Key, jwt
	return key
}

var placeholder = regexp.MustCompile(`\{\{([A-Za-z][\w.]*)\}\}`)

// fill puts values in place of {{names}}. A text that is one placeholder becomes the value itself, whatever its type.
func (r *run) fill(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case string:
		if m := placeholder.FindStringSubmatch(v); m != nil && m[0] == v {
			return r.variable(t, m[1])
		}
		return r.text(t, v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			if name == "$capture" {
				out[name] = member
				continue
			}
			out[r.text(t, name)] = r.fill(t, member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.fill(t, v[i])
		}
		return out
	}
	return v
}

func (r *run) text(t *testing.T, s string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(s, func(m string) string {
		v := r.variable(t, m[2:len(m)-2])
		if text, ok := v.(string); ok {
			return text
		}
		return show(v, true)
	})
}

func (r *run) variable(t *testing.T, name string) any {
	t.Helper()
	if role, _, ok := strings.Cut(name, "."); ok && slices.Contains(roles, role) {
		r.actor(t, role)
	}
	v, ok := r.vars[name]
	if !ok {
		t.Fatalf("{{%s}} was not captured before", name)
	}
	return v
}

func (r *run) filledJSON(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	v := must.Get(parseJSON(raw))(t)
	return r.fill(t, v)
}

// encoded makes texts of what a request wants as JSON inside a text, or as base64 of it.
func encoded(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, encode := range map[string]func([]byte) string{
			"$json": func(b []byte) string { return string(b) }, "$base64": base64.StdEncoding.EncodeToString, "$base64url": base64.RawURLEncoding.EncodeToString,
		} {
			if inner, ok := v[name]; ok && len(v) == 1 {
				text := must.Get(json.Marshal(encoded(t, inner)))(t)
				return encode(text)
			}
		}
		for name := range v {
			v[name] = encoded(t, v[name])
		}
	case []any:
		for i := range v {
			v[i] = encoded(t, v[i])
		}
	}
	return v
}

func (r *run) request(t *testing.T, c *conformanceCase, correlation string) *http.Request {
	t.Helper()
	var body []byte
	switch {
	case c.Request.RawBody != nil:
		body = []byte(r.text(t, *c.Request.RawBody))
	case len(c.Request.Body) > 0:
		var err error
		if body, err = json.Marshal(encoded(t, r.filledJSON(t, c.Request.Body))); err != nil {
			t.Fatal(err)
		}
	}
	url := r.text(t, c.Request.Path)
	if !atReceiver(c) {
		url = r.on.url + url
	}
	req := must.Get(http.NewRequestWithContext(t.Context(), c.Request.Method, url, bytes.NewReader(body)))(t)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.As != nobody {
		req.Header.Set("Authorization", "Bearer "+r.actor(t, c.As).Key)
	}
	req.Header.Set(r.on.brand.HeaderVersion(), r.version)
	req.Header.Set("X-Correlation-Id", correlation)
	for name, value := range c.Request.Headers {
		name = http.CanonicalHeaderKey(r.text(t, name))
		req.Header.Del(name)
		switch value := r.fill(t, value).(type) {
		case nil:
		case []any:
			for _, line := range value {
				req.Header.Add(name, fmt.Sprint(line))
			}
		default:
			req.Header.Set(name, fmt.Sprint(value))
		}
	}
	return req
}

// atReceiver reports whether a case asks the runner's own web server.
func atReceiver(c *conformanceCase) bool { return strings.HasPrefix(c.Request.Path, "{{receiver}}") }

var conformanceClient = &http.Client{
	Timeout:       patience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send returns the whole answer, or of a stream the part that comes until it is quiet for a moment.
func (r *run) send(t *testing.T, req *http.Request, stream bool) caseAnswer {
	t.Helper()
	res, err := conformanceClient.Do(req)
	must.Do(t, err)
	defer func() { _ = res.Body.Close() }()
	var body []byte
	if stream && res.StatusCode == http.StatusOK {
		body = readMoment(res.Body)
	} else if body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	a := caseAnswer{res.StatusCode, res.Header, body}
	r.on.record(a)
	return a
}

// readMoment reads what an endless body brings until it is quiet for a second.
func readMoment(body io.ReadCloser) []byte {
	timer := time.AfterFunc(patience, func() { _ = body.Close() })
	defer timer.Stop()
	var text []byte
	part := make([]byte, 4096)
	for {
		n, err := body.Read(part)
		text = append(text, part[:n]...)
		if err != nil {
			return text // that of the closed body
		}
		timer.Reset(time.Second)
	}
}

// do makes one case and returns the last answer, with the faults of the first that has some.
func (r *run) do(t *testing.T, c *conformanceCase) (a caseAnswer, faults []string) {
	t.Helper()
	for range max(c.Times, 1) {
		if a, faults = r.once(t, c); len(faults) > 0 {
			break
		}
	}
	return a, faults
}

func (r *run) once(t *testing.T, c *conformanceCase) (caseAnswer, []string) {
	t.Helper()
	retry := time.Duration(c.RetrySecs) * time.Second
	if retry > 0 {
		retry = max(retry, patience) // on a slow machine that is busy
	}
	deadline := time.Now().Add(retry)
	for {
		r.serial++
		correlation := fmt.Sprintf("case-%s-%d", r.vars["run"], r.serial)
		a := r.send(t, r.request(t, c, correlation), c.Request.Stream)
		m := &matcher{captured: map[string]any{}}
		r.check(t, m, c, a, correlation)
		if len(m.faults) == 0 || time.Now().After(deadline) {
			maps.Copy(r.vars, m.captured)
			return a, m.faults
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r *run) check(t *testing.T, m *matcher, c *conformanceCase, a caseAnswer, correlation string) {
	t.Helper()
	statuses, ok := c.Expect.Status.([]any)
	if !ok {
		statuses = []any{c.Expect.Status}
	}
	if !slices.ContainsFunc(statuses, func(s any) bool { return fmt.Sprint(s) == strconv.Itoa(a.status) }) {
		m.faults = append(m.faults, fmt.Sprintf("status %d, wanted %v: %.900s", a.status, c.Expect.Status, a.body))
		return
	}
	if _, own := c.Request.Headers["x-correlation-id"]; !atReceiver(c) {
		r.everyAnswer(m, a, correlation, own)
	}
	for name, want := range c.Expect.Headers {
		name = r.text(t, name)
		var got any
		lines := a.header.Values(name)
		if len(lines) == 1 {
			got = lines[0]
		} else if len(lines) > 1 {
			got = strings.Join(lines, ", ")
		}
		m.value("header "+name, r.fill(t, want), got, len(lines) > 0)
	}
	if c.Expect.Text != nil {
		m.value("the text", r.fill(t, c.Expect.Text), string(a.body), true)
	}
	if c.Expect.SameAs != "" && !bytes.Equal(a.body, r.answers[c.Expect.SameAs].body) {
		m.fault("", "differs from that of %q: %s", c.Expect.SameAs, a.body)
	}
	if c.Expect.Code == "" && len(c.Expect.Body) == 0 {
		return
	}
	got, err := parseJSON(a.body)
	if err != nil || !a.isJSON() {
		m.fault("", "is not JSON: %s", a.body)
		return
	}
	if c.Expect.Code != "" {
		m.value("", map[string]any{"code": c.Expect.Code}, got, true)
	}
	if len(c.Expect.Body) > 0 {
		m.value("", r.filledJSON(t, c.Expect.Body), got, true)
	}
}

// everyAnswer is what wire.md asks of all answers: headers of section 2 and the error shape of section 3.
func (r *run) everyAnswer(m *matcher, a caseAnswer, correlation string, own bool) {
	for _, name := range []string{r.on.brand.HeaderVersion(), r.on.brand.HeaderResolvedFrom(), "X-Correlation-Id", "Cache-Control", "Access-Control-Allow-Origin"} {
		if v := a.header.Values(name); len(v) != 1 || v[0] == "" {
			m.fault("header "+name, "wanted one line, got %q", v)
		}
	}
	if echo := a.header.Get("X-Correlation-Id"); !own && echo != correlation {
		m.fault("header x-correlation-id", "wanted %s, got %s", correlation, echo)
	}
	if (a.status == 429 || a.status == 503) && a.header.Get("Retry-After") == "" {
		m.fault("header Retry-After", "is not there")
	}
	if a.status < 400 || !a.isJSON() || len(a.body) == 0 {
		return
	}
	v, err := parseJSON(a.body)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		m.fault("", "is not a JSON object: %s", a.body)
		return
	}
	if _, ready := object["checks"]; ready && a.status == 503 {
		return
	}
	code, _ := object["code"].(string)
	known, ok := r.on.suite.codes[code]
	if !ok {
		m.fault("code", "%q is not in the table of codes", code)
		return
	}
	if !slices.Contains(known.Status, a.status) {
		m.fault("code", "%s came with status %d, wanted %v", code, a.status, known.Status)
	}
	m.value("", map[string]any{
		"code": code, "message": map[string]any{"$type": "text"}, "httpStatus": json.Number(strconv.Itoa(a.status)), "category": known.Category,
		"correlationId": a.header.Get("X-Correlation-Id"),
	}, v, true)
	for member, kind := range map[string]string{"hint": "text", "details": "text", "retryable": "bool", "docsUrl": "url"} {
		if value, there := object[member]; there {
			m.value(member, map[string]any{"$type": kind}, value, there)
		}
	}
	if params, there := object["params"]; there {
		m.value("params", map[string]any{"$json": map[string]any{}}, params, true)
	}
}
