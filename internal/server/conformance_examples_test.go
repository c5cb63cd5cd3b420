package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/big"
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

var writeExamples = flag.Bool("examples", false, "write internal/api/examples.json anew")

var examplesFile = filepath.Join("..", "api", "examples.json")

// documented is an exchange as internal/api/examples.json keeps it.
type documented struct {
	From    string          `json:"from"`
	Path    string          `json:"path"`
	Request json.RawMessage `json:"request,omitempty"`
	Status  string          `json:"status"`
	Answer  json.RawMessage `json:"answer,omitempty"`

	rank string // the least of an operation is kept
}

// keepExample keeps the first success of each operation, by name of the file and place of the case, whose body is in the form of the document.
func (s *suite) keepExample(t *testing.T, r *run, place int, c *conformanceCase, a caseAnswer) {
	op := s.operations[c.Operation]
	failed := a.status >= 400
	if c.Operation == "" || r.version != "1.1" || failed != op.retired || c.Request.RawBody != nil || atReceiver(c) {
		return
	}
	old := 0 // members of forms that the document does not show
	var body map[string]any
	if len(c.Request.Body) > 0 {
		body, _ = r.filledJSON(t, c.Request.Body).(map[string]any)
	}
	for name := range body {
		if !slices.Contains(op.members, name) {
			old++
		}
	}
	e := documented{
		From: r.file.Name + "/" + c.Name, Status: strconv.Itoa(a.status),
		rank: fmt.Sprintf("%02d %d %s %04d", old, poor(a.body), r.file.Name, place),
	}
	s.mu.Lock()
	kept, there := s.examples[c.Operation]
	s.mu.Unlock()
	if there && kept.rank < e.rank {
		return
	}
	n := &normaliser{run: r, seen: map[string]string{}}
	e.Path = n.text(r.text(t, c.Request.Path))
	if len(c.Request.Body) > 0 {
		e.Request = n.json(t, encoded(t, r.filledJSON(t, c.Request.Body)))
	}
	if body, err := parseJSON(a.body); err == nil && a.isJSON() {
		e.Answer = n.json(t, body)
	} else if len(a.body) > 0 {
		e.Answer = n.json(t, string(a.body[:min(len(a.body), 500)]))
	}
	if c.Operation == "readOpenAPI" {
		e.Answer = json.RawMessage(`{"openapi":"3.1.0"}`) // the document is long, and the reader has it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept, there := s.examples[c.Operation]; !there || e.rank < kept.rank {
		s.examples[c.Operation] = e
	}
}

// poor says how little an answer shows: a refusal, or a list of nothing.
func poor(body []byte) (n int) {
	var answer map[string]any
	_ = json.Unmarshal(body, &answer) // other answers show what they are
	for name, v := range answer {
		list, isList := v.([]any)
		if v == false && (name == "success" || name == "isValid") || isList && len(list) == 0 && name != "warnings" {
			n++
		}
	}
	return min(n, 9)
}

// checkExamples wants the request of each example to be what its case sends, or writes the file anew. Examples that no file can make are
// kept.
func (s *suite) checkExamples(t *testing.T) {
	t.Helper()
	text := must.Get(os.ReadFile(examplesFile))(t)
	var have map[string]documented
	must.Do(t, json.Unmarshal(text, &have))
	for op, made := range s.examples {
		if old := have[op]; !*writeExamples && (old.From != made.From || old.Path != made.Path || !sameJSON(t, old.Request, made.Request)) {
			t.Errorf("the example of %s is not %s (go test ./internal/server -run TestConformance_Brand -examples writes it):\n%s %s\n%s %s",
				op, made.From, old.Path, old.Request, made.Path, made.Request)
		}
		have[op] = made
	}
	for op, e := range have {
		if _, made := s.examples[op]; !made && e.From != "" {
			t.Errorf("no case makes the example of %s, which is said to be %s", op, e.From)
		}
	}
	if !*writeExamples {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must.Do(t, enc.Encode(have))
	must.Do(t, os.WriteFile(examplesFile, b.Bytes(), 0o644))
}

func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	compact := func(text json.RawMessage) string {
		var out bytes.Buffer
		if len(text) > 0 {
			must.Do(t, json.Compact(&out, text))
		}
		return out.String()
	}
	return compact(a) == compact(b)
}

// normaliser writes an exchange as it would be written again: values that are new in each run become numbered ones, words of the brand
// placeholders, and what is long is cut.
type normaliser struct {
	run   *run
	seen  map[string]string
	began time.Time // the first time that was seen
}

// These are of [TestConformance_Brand], so that each word of the brand can be told from the others.
const (
	brandScheme, brandHeader, brandWordOf, brandPrefix = "acmescheme", "Acme", "acmeword", "acme-sandbox"
)

var volatile = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|` + // time
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|` + // uuid
	`0x[0-9a-fA-F]{40,}|` + // address, hash, signature
	`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+|` + // JWT
	`eyJ[A-Za-z0-9_+/-]{60,}={0,2}|` + // JSON in base64
	`req_[0-9a-v]{20,}|` +
	`\b\d{60,78}\b|` + // plan, agent
	`[A-Za-z0-9_-]{40,}`) // another secret

func (n *normaliser) text(s string) string {
	for _, pair := range [][2]string{
		{fmt.Sprint(n.run.vars["publicURL"]), "https://toll.example.com"}, {fmt.Sprint(n.run.vars["receiver"]), "https://receiver.example.com"},
		{fmt.Sprint(n.run.vars["runNumber"]), "42"}, {fmt.Sprint(n.run.vars["run"]), "1"},
		{brandPrefix, string(toll.Sandbox)}, {brandScheme, "{{scheme}}"}, {brandWordOf, "{{word}}"}, {brandHeader, "{{Header}}"},
		{strings.ToLower(brandHeader), "{{header}}"},
	} {
		s = strings.ReplaceAll(s, pair[0], pair[1])
	}
	return volatile.ReplaceAllStringFunc(s, n.stable)
}

// stable returns the numbered value in the place of one that is new in each run. Equal values stay equal.
func (n *normaliser) stable(found string) string {
	if at, err := time.Parse(time.RFC3339Nano, found); err == nil {
		if n.began.IsZero() {
			n.began = at
		}
		layout := "2006-01-02T15:04:05Z"
		if strings.Contains(found, ".") {
			layout = "2006-01-02T15:04:05.000Z"
		}
		return time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC).Add(at.Sub(n.began).Round(time.Minute)).Format(layout)
	}
	key := strings.ToLower(found)
	if v, ok := n.seen[key]; ok {
		return v
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(len(n.seen))))
	v := found
	switch {
	case strings.HasPrefix(found, "0x") && len(found) == 42:
		v = toll.Address(sum[:20]).String()
		if found == strings.ToLower(found) {
			v = strings.ToLower(v)
		}
		if found == toll.Sandbox.USDC().String() || (toll.Address{}).String() == found {
			v = found
		}
	case strings.HasPrefix(found, "0x"):
		v = "0x" + strings.Repeat(hex.EncodeToString(sum[:]), len(found)/64+1)[:len(found)-2]
	case strings.HasPrefix(found, "eyJ") && !strings.Contains(found, "."):
		v = "eyJ4NDAyVmVyc2lvbiI6Mn0="
	case strings.HasPrefix(found, "eyJ"):
		v = "eyJhbGciOiJFZERTQSJ9.eyJpYXQiOjE3Njg0Nzg0MDB9.c2lnbmF0dXJl"
	case strings.HasPrefix(found, "req_"):
		v = "req_06gvq6krrhoc7co8g0qtsvci65ms"[:min(len(found), 32)]
	case len(found) == 36 && found[8] == '-':
		h := hex.EncodeToString(sum[:])
		v = h[:8] + "-" + h[8:12] + "-7" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
	case strings.Trim(found, "0123456789") == "":
		v = new(big.Int).SetBytes(sum[:]).String()
	default:
		v = hex.EncodeToString(sum[:20])
		if prefix := "whsec_"; strings.HasPrefix(found, prefix) {
			v = prefix + v
		}
	}
	n.seen[key] = v
	return v
}

// json returns a value with stable texts; of a list one item is kept.
func (n *normaliser) json(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	must.Do(t, enc.Encode(n.value(v)))
	return bytes.TrimSpace(b.Bytes())
}

func (n *normaliser) value(v any) any {
	switch v := v.(type) {
	case string:
		return n.text(v)
	case []any:
		out := make([]any, min(len(v), 2))
		for i := range out {
			out[i] = n.value(v[i])
		}
		return out
	case map[string]any:
		// In the order of the names, so that the numbers are the same each time.
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[n.text(name)] = n.value(v[name])
		}
		return out
	}
	return v
}
