package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

const conformanceDir = "../../testdata/conformance"

// disagreements are cases in which the service does not answer as the wire contract says, with the reason why that is
// not mended yet. A case that passes must leave the list.
var disagreements = map[string]string{}

// unreachable are outcomes that no caller can bring about yet.
var unreachable = map[string]string{
	"buyPlan success":             "needs the signature of a wallet, which a file cannot make",
	"signInToPlan success":        "needs the signature of a wallet, which a file cannot make",
	"receiveStripeEvent success":  "needs an event that the card processor has signed",
	"refundOrder success":         "needs a payment by card, which a person makes on a page",
	"deletePaymentMethod success": "needs a card, which a person enrols on a page",
}

// suite is what the passes have in common: the table of codes, and what has been seen of each operation.
type suite struct {
	codes      map[string]codeRow
	operations map[string]operation // by id

	mu       sync.Mutex
	seen     map[string]bool       // operation/version/success or failure
	examples map[string]documented // by operation; nil: none are kept
}

type codeRow struct {
	Status   []int  `json:"status"`
	Category string `json:"category"`
}

// operation is a row of the OpenAPI document.
type operation struct {
	method  string
	path    *regexp.Regexp
	codes   []string
	retired bool
	members []string // of the body that it takes
}

var bckCode = regexp.MustCompile(`BCK\.[A-Z0-9]+\.\d+`)

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{codes: map[string]codeRow{}, operations: map[string]operation{}, seen: map[string]bool{}}
	text := must.Get(os.ReadFile(filepath.Join(conformanceDir, "tables", "codes.json")))(t)
	must.Do(t, json.Unmarshal(text, &s.codes))
	return s
}

// learn reads the operations from the OpenAPI document of a service.
func (s *suite) learn(t *testing.T, url string) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Deprecated  bool
			Responses   map[string]struct{ Description string }
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	res := must.Get(http.Get(url + "/openapi.json"))(t)
	defer func() { _ = res.Body.Close() }()
	must.Do(t, json.NewDecoder(res.Body).Decode(&document))
	for path, methods := range document.Paths {
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
		for method, op := range methods {
			row := operation{method: strings.ToUpper(method), path: pattern, retired: op.Deprecated}
			for _, res := range op.Responses {
				row.codes = append(row.codes, bckCode.FindAllString(res.Description, -1)...)
			}
			body := strings.TrimPrefix(op.RequestBody.Content["application/json"].Schema.Ref, "#/components/schemas/")
			row.members = slices.Collect(maps.Keys(document.Components.Schemas[body].Properties))
			s.operations[op.OperationID] = row
		}
	}
}

// conformanceService is a running service on which files run.
type conformanceService struct {
	suite    *suite
	server   *server.Server
	url      string
	brand    x402.Namespace
	prefix   string
	receiver string

	mu       sync.Mutex
	bytes    []string // what has left the service, answer by answer
	received []received
}

// received is a call of the service to the runner's web server.
type received struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"` // names in lower case
	Body    json.RawMessage   `json:"body"`
}

// receive is that web server: it answers 204 to everything, and at /received what came to a path.
func (s *conformanceService) receive(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/received" {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := []received{}
		for _, c := range s.received {
			if c.Path == r.URL.Query().Get("path") {
				list = append(list, c)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the runner sees what is missing
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	call := received{Path: r.URL.Path, Headers: map[string]string{}, Body: body}
	for name, values := range r.Header {
		call.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	s.record(caseAnswer{0, r.Header, body})
	s.mu.Lock()
	s.received = append(s.received, call)
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (s *suite) start(t *testing.T, v storetest.Variant, brand x402.Namespace, prefix string, cfg server.Config) *conformanceService {
	t.Helper()
	database := storetest.Config(t, v)
	cfg.Data, cfg.Database, cfg.Namespace, cfg.KeyPrefix, cfg.Release = database.Data, database.Database, brand, prefix, "1.1.0"
	cfg.LoopbackWebhooks = true
	if cfg.Database != "" {
		cfg.Data, cfg.MasterKeyFile = storetest.Dir(t), freshMasterKey(t)
	}
	if prefix == "" {
		prefix = string(toll.Sandbox)
	}
	service := &conformanceService{suite: s, brand: brand, prefix: prefix}
	receiver := httptest.NewServer(http.HandlerFunc(service.receive))
	t.Cleanup(receiver.Close)
	srv, url := start(t, cfg)
	s.learn(t, url)
	service.server, service.url, service.receiver = srv, url, receiver.URL
	return service
}

func (s *conformanceService) newKey(t *testing.T, account string, operator bool) toll.APIKey {
	t.Helper()
	return keyOf(t, s.server, server.KeyRequest{Account: account, Operator: operator})
}

func (s *conformanceService) record(a caseAnswer) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", a.status)
	_ = a.header.Write(&b) // a builder takes everything
	b.Write(a.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes = append(s.bytes, b.String())
}

// all runs every file on a service that has what the file needs, and returns everything that left the services.
func (s *suite) all(t *testing.T, v storetest.Variant, brand x402.Namespace, prefix string) (left []string) {
	t.Helper()
	page := railtest.New()
	page.Behave(railtest.Behaviour{Person: true})
	files := conformanceFiles(t)
	for _, kind := range []struct {
		need string
		cfg  server.Config
	}{
		{"", server.Config{Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainOff}, Card: rails.CardConfig{Mode: rails.CardOff}}}},
		{"embedded-chain", server.Config{Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainEmbedded, Mirror: true}}}},
		{"rail", server.Config{Rails: rails.Config{Given: rail.Rails{rail.Crypto: railtest.New(), rail.Card: page}}}},
		{"rate-limit", server.Config{RateLimitKey: 1, RateLimitIP: 1, Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainOff}, Card: rails.CardConfig{Mode: rails.CardOff}}}},
	} {
		service := s.start(t, v, brand, prefix, kind.cfg)
		service.run(t, slices.DeleteFunc(slices.Clone(files), func(f conformanceFile) bool {
			need := ""
			for _, n := range f.Needs {
				if n == "rail" || n == "embedded-chain" || n == "rate-limit" {
					need = n
				}
			}
			return need != kind.need
		}))
		left = append(left, service.bytes...)
	}
	return left
}

// run makes the files, in both API versions, at the same time; those that move the clock of the service come last.
func (s *conformanceService) run(t *testing.T, files []conformanceFile) {
	t.Helper()
	for _, group := range []string{"at once", "clock"} {
		t.Run(group, func(t *testing.T) {
			for i := range files {
				f := &files[i]
				if slices.Contains(f.Needs, "clock") != (group == "clock") {
					continue
				}
				for _, version := range []string{"1.0", "1.1"} {
					t.Run(f.Name+" "+version, func(t *testing.T) {
						if group != "clock" {
							t.Parallel()
						}
						for try := 1; newRun(s, f, version).all(t, try == 3); try++ {
						}
					})
				}
			}
		})
	}
}

// all makes the cases of a file. It reports whether the file has to be run again from its first case, as the service said in the midst
// of it, in place of what was wanted, that it cannot answer now.
func (r *run) all(t *testing.T, last bool) (again bool) {
	for i := range r.file.Cases {
		if r.runCase(t, i, last) {
			return true
		}
	}
	return false
}

// passing are codes of what a service needs and does not reach now.
var passing = regexp.MustCompile(`"code":"(BCK\.COMMON\.0029|BCK\.CHAIN\.0001|BCK\.HTTP\.503)"`)

func (r *run) runCase(t *testing.T, place int, last bool) (away bool) {
	c := &r.file.Cases[place]
	if c.Only != "" && c.Only != r.version {
		return false
	}
	name := r.file.Name + "/" + c.Name
	done := false
	defer func() {
		if !done {
			t.Errorf("%s could not be made", name)
		}
	}()
	a, faults := r.do(t, c)
	done = true
	if len(faults) > 0 && !last && a.status == http.StatusServiceUnavailable && passing.Match(a.body) {
		t.Logf("%s: %s", name, a.body)
		return true
	}
	r.answers[c.Name] = a
	faults = append(faults, r.on.suite.see(r, c, a)...)
	if len(faults) == 0 && r.on.suite.examples != nil {
		r.on.suite.keepExample(t, r, place, c, a)
	}
	reason, known := disagreements[name]
	switch {
	case known && len(faults) == 0 && r.version == "1.1":
		t.Errorf("%s agrees now: strike it from the disagreements (%s)", name, reason)
	case !known && len(faults) > 0:
		t.Errorf("%s:\n\t%s", name, strings.Join(faults, "\n\t"))
	}
	return false
}

// undocumented codes may come from every operation, and the document does not repeat them.
var undocumented = regexp.MustCompile(`^BCK\.(HTTP\.(4(00|04|05|08|13|14|15|29|31)|50[03])|COMMON\.00(29|34))$`)

// see notes what was seen of an operation, and holds the case and the answer to the OpenAPI document.
func (s *suite) see(r *run, c *conformanceCase, a caseAnswer) (faults []string) {
	if c.Operation == "" {
		return nil
	}
	op, ok := s.operations[c.Operation]
	if !ok {
		return []string{"the OpenAPI document has no operation " + c.Operation}
	}
	path, _, _ := strings.Cut(c.Request.Path, "?")
	if path = strings.TrimRight(path, "/"); path == "" {
		path = "/"
	}
	if c.Request.Method != op.method && a.status != http.StatusMethodNotAllowed || !op.path.MatchString(path) {
		faults = append(faults, fmt.Sprintf("%s %s is not the operation %s", c.Request.Method, path, c.Operation))
	}
	outcome := "success"
	if a.status >= 400 {
		outcome = "failure"
		var e struct{ Code string }
		if json.Unmarshal(a.body, &e) == nil && !slices.Contains(op.codes, e.Code) && !undocumented.MatchString(e.Code) {
			faults = append(faults, fmt.Sprintf("the OpenAPI document does not say that %s may answer %s", c.Operation, e.Code))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[c.Operation+" "+r.version+" "+outcome] = true
	return faults
}

// TestConformance runs the language-neutral files of testdata/conformance against a service, over HTTP.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			s := newSuite(t)
			s.all(t, v, x402.Default, "")
			s.checkCoverage(t)
		})
	}
}

// checkCoverage wants of every operation a success and a failure, in both API versions. A retired one only fails.
func (s *suite) checkCoverage(t *testing.T) {
	for id, op := range s.operations {
		for _, version := range []string{"1.0", "1.1"} {
			for _, outcome := range []string{"success", "failure"} {
				if op.retired && outcome == "success" || unreachable[id+" "+outcome] != "" {
					continue
				}
				if key := id + " " + version + " " + outcome; !s.seen[key] {
					t.Errorf("no case: %s", key)
				}
			}
		}
	}
	for name := range disagreements {
		file, _, _ := strings.Cut(name, "/")
		if _, err := os.Stat(filepath.Join(conformanceDir, file+".json")); err != nil {
			t.Errorf("the disagreement %s is in no file", name)
		}
	}
}

// TestConformance_Brand runs the files against a service with other brand words: not one byte of the default brand may
// leave it.
func TestConformance_Brand(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.examples = map[string]documented{}
	brand := x402.Namespace{Scheme: brandScheme, Header: brandHeader, Word: brandWordOf}
	for _, answer := range s.all(t, storetest.SQLite, brand, brandPrefix) {
		if at := brandWord(answer); at != "" {
			t.Errorf("a word of the default brand leaves the service: %s", at)
		}
	}
	s.checkExamples(t)
}

// TestConformance_BrandWords shows that the search finds what it must and passes over chance.
func TestConformance_BrandWords(t *testing.T) {
	inside := base64.RawURLEncoding.EncodeToString([]byte(`{"accepted":{"scheme":"svc:erc4337"}}`))
	for text, found := range map[string]bool{
		`{"scheme":"svc:erc4337"}`: true, "Service-Version: 1.1\n": true, "service-version: 1.1": true, `"/service/agent"`: true,
		`{"token":"e30.` + inside + `.AAAA"}`: true, `{"token":"` + base64.StdEncoding.EncodeToString([]byte(`{"reason":"invalid_svc_plan_mismatch"}`)) + `"}`: true,
		`{"message":"This service has no such plan."}`: false, `{"token":"e30.e30.Asvc` + strings.Repeat("xY9", 20) + `"}`: false,
		`{"scheme":"acme:erc4337"}`: false, `{"key":"acme-sandbox:e30.` + inside + `.AAAA"}`: true, `{"tail":"aaSvc9"}`: false, `{"codes":["2a5i-2ml4-svci-u4cf"]}`: false, `{"code":"2a5i-2ml4-svci"}`: true,
		`{"agentRequestId":"req_06gvq6krrhoc7co8g0qtsvci65ms"}`: false,
	} {
		if at := brandWord(text); (at != "") != found {
			t.Errorf("%s: %q", text, at)
		}
	}
}

var (
	tokenRun  = regexp.MustCompile(`[A-Za-z0-9_+/=-]{8,}`)
	chance    = regexp.MustCompile(`"tail":\s*"[^"]{6}"|req_[0-9a-v]{20,}|"[a-z2-7]{4}(-[a-z2-7]{4}){3}"`)
	brandText = regexp.MustCompile(`(?i)svc|service-|service/`)
)

// brandWord returns the place of a word of the default brand, in the text or inside what it encodes. Signatures and
// other random texts may spell anything.
func brandWord(text string) string {
	text = chance.ReplaceAllString(text, "")
	found := ""
	rest := tokenRun.ReplaceAllStringFunc(text, func(run string) string {
		if plain, ok := decoded(run); ok {
			if at := brandWord(plain); at != "" && found == "" {
				found = at
			}
			return " "
		}
		if len(run) >= 40 && strings.ContainsAny(run, "0123456789") && strings.ToLower(run) != run {
			return " "
		}
		return run
	})
	if found != "" {
		return found
	}
	if at := brandText.FindStringIndex(rest); at != nil {
		return rest[max(0, at[0]-80):min(len(rest), at[1]+40)]
	}
	return ""
}

// decoded returns the text inside base64 of either alphabet, when it is JSON.
func decoded(run string) (string, bool) {
	run = strings.TrimRight(run, "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if plain, err := e.DecodeString(run); err == nil && utf8.Valid(plain) && json.Valid(plain) && len(plain) > 2 {
			return string(plain), true
		}
	}
	return "", false
}
