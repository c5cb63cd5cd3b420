package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const testToken = "test-core-token"

// controlled is a core over HTTP.
type controlled struct {
	t    *testing.T
	core *gateway.Core
	url  string
}

func newControlled(t *testing.T, opts gateway.Options) *controlled {
	t.Helper()
	opts.Dir = t.TempDir()
	core := must.Get(gateway.New(opts))(t)
	s := httptest.NewServer(core.Handler())
	t.Cleanup(s.Close)
	return &controlled{t, core, s.URL}
}

// do sends a request with the core token, unless edit changes that, and returns status and body.
func (c *controlled) do(method, path, body string, edit ...func(*http.Request)) (int, string) {
	c.t.Helper()
	req := must.Get(http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body)))(c.t)
	req.Header.Set("Authorization", "Bearer "+testToken)
	for _, e := range edit {
		e(req)
	}
	res := must.Get(http.DefaultClient.Do(req))(c.t)
	defer res.Body.Close()
	b := must.Get(io.ReadAll(res.Body))(c.t)
	return res.StatusCode, string(b)
}

func (c *controlled) registry() string {
	c.t.Helper()
	_, body := c.do("GET", "/gateway/v1/health", "")
	var h struct{ Registry string }
	if err := json.Unmarshal([]byte(body), &h); err != nil || h.Registry == "" {
		c.t.Fatal(body, err)
	}
	return h.Registry
}

func (c *controlled) hello(config string) (int, string) {
	c.t.Helper()
	return c.do("POST", "/gateway/v1/hello",
		`{"plugin":"p","registry":"`+c.registry()+`","guards":{"write":true,"run":true},"config":`+config+`}`)
}

// TestCoreToken: control paths answer nobody without the core token, and no web page.
// T144
func TestCoreToken(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken, Hosts: []string{"core.example.com"}})
	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for name, test := range map[string]struct {
		path string
		edit func(*http.Request)
		want int
	}{
		"token":            {"/gateway/v1/tools", header("X", "y"), 200},
		"lower-case word":  {"/gateway/v1/tools", header("Authorization", "bearer "+testToken), 200},
		"none":             {"/gateway/v1/tools", header("Authorization"), 401},
		"empty":            {"/gateway/v1/tools", header("Authorization", "Bearer "), 401},
		"wrong":            {"/gateway/v1/tools", header("Authorization", "Bearer "+testToken+"x"), 401},
		"begin of it":      {"/gateway/v1/tools", header("Authorization", "Bearer "+testToken[:5]), 401},
		"two":              {"/gateway/v1/tools", header("Authorization", "Bearer "+testToken, "Bearer "+testToken), 401},
		"other kind":       {"/gateway/v1/tools", header("Authorization", "Basic "+testToken), 401},
		"mcp":              {"/mcp", header("Authorization", "Bearer x"), 401},
		"unknown path":     {"/x", header("Authorization", "Bearer x"), 401},
		"health":           {"/gateway/v1/health", header("Authorization"), 200},
		"foreign host":     {"/gateway/v1/health", host("evil.example.com"), 403},
		"near host":        {"/gateway/v1/health", host("127.0.0.1.example.com"), 403},
		"host of options":  {"/gateway/v1/health", host("core.example.com:8791"), 200},
		"IPv6 loopback":    {"/gateway/v1/health", host("[::1]:8791"), 200},
		"origin":           {"/gateway/v1/tools", header("Origin", "http://127.0.0.1"), 403},
		"origin null":      {"/gateway/v1/health", header("Origin", "null"), 403},
		"origin for mcp":   {"/mcp", header("Origin", "http://localhost"), 403},
		"path with a dot":  {"/gateway/v1/./tools", header("Authorization"), 401},
		"no path at all":   {"/gateway/v2", header("X", "y"), 404},
		"wrong method too": {"/gateway/v1/hello", header("X", "y"), 404},
	} {
		if got, body := c.do("GET", test.path, "", test.edit); got != test.want {
			t.Errorf("%s: %d %s, want %d", name, got, body, test.want)
		}
	}
}

// TestTokenFile: the token is made once, private, and a rotation counts at once.
// T144
func TestTokenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	core := must.Get(gateway.New(gateway.Options{Dir: dir}))(t)
	s := httptest.NewServer(core.Handler())
	defer s.Close()
	c := &controlled{t, core, s.URL}
	with := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	first, err := gateway.CoreToken(dir)
	if again, err2 := gateway.CoreToken(dir); err != nil || err2 != nil || again != first || len(first) != 43 {
		t.Fatal(first, again, err, err2)
	}
	if got, body := c.do("GET", "/gateway/v1/tools", "", with(first)); got != 200 {
		t.Error(got, body)
	}
	second, err := gateway.RotateCoreToken(dir)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	old, _ := c.do("GET", "/gateway/v1/tools", "", with(first))
	if now, _ := c.do("GET", "/gateway/v1/tools", "", with(second)); old != 401 || now != 200 {
		t.Error(old, now)
	}
	file := filepath.Join(dir, "gateway.token")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	must.Do(t, os.Chmod(dir, 0o777))
	if _, err := gateway.New(gateway.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "0777") {
		t.Error("a directory in which others can put a token:", err)
	}
	must.Do(t, os.Chmod(dir, 0o700))
	for name, spoil := range map[string]func() error{
		"mode 0644": func() error { return os.Chmod(file, 0o644) },
		"other text": func() error {
			return os.WriteFile(file, []byte("short"), 0o600)
		},
	} {
		must.Get(gateway.RotateCoreToken(dir))(t)
		must.Do(t, spoil())
		if _, err := gateway.New(gateway.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
		must.Do(t, os.Chmod(file, 0o600))
	}
}

// TestControl_Bodies pushes the bounds of a control request.
func TestControl_Bodies(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	const tool = "/gateway/v1/tools/service_listPlans"
	long := strings.Repeat("x", 257)
	for name, test := range map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"largest":           {tool, `{"params":{}}` + strings.Repeat(" ", 1<<20-13), 200, "not_authenticated"},
		"too large":         {tool, `{"params":{}}` + strings.Repeat(" ", 1<<20-12), 413, "too_large"},
		"not JSON":          {tool, `{`, 400, "bad_request"},
		"no object":         {tool, `[]`, 400, "bad_request"},
		"twice":             {tool, `{"params":{},"params":{}}`, 400, "bad_request"},
		"unknown tool":      {"/gateway/v1/tools/service_x", `{}`, 404, "unknown_tool"},
		"short name":        {"/gateway/v1/tools/listPlans", `{}`, 404, "unknown_tool"},
		"unknown command":   {"/gateway/v1/commands/svc_x", `{}`, 404, "not_found"},
		"long session":      {tool, `{"caller":{"sessionKey":"` + long + `"}}`, 200, "caller.sessionKey must be at most 256"},
		"long sender":       {"/gateway/v1/context", `{"caller":{"senderId":"` + long + `"}}`, 400, "caller.senderId must be"},
		"long channel":      {"/gateway/v1/commands/svc_login", `{"caller":{"channel":"` + long + `"}}`, 400, "caller.channel must be"},
		"long call id":      {tool, `{"callId":"` + long + `"}`, 200, "callId must be"},
		"context of nobody": {"/gateway/v1/context", `{}`, 200, `{}`},
	} {
		if got, body := c.do("POST", test.path, test.body); got != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %.300s, want %d %s", name, got, body, test.status, test.want)
		}
	}
}

// TestControl_Hello: another registry is refused, and a plugin's configuration counts above that of
// the core.
func TestControl_Hello(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken, Config: gateway.Config{PlanID: "5", PublicURL: "https://a.example.com"}})
	if got, body := c.do("POST", "/gateway/v1/hello", `{"registry":"sha256:00","config":{"planId":"7"}}`); got != 409 ||
		!strings.Contains(body, "registry_mismatch") || !strings.Contains(body, "Update the plugin or the core") {
		t.Error(got, body)
	}
	if s := c.core.Settings(); s.PlanID != "5" {
		t.Errorf("a refused hello has set planId %s", s.PlanID)
	}
	if got, body := c.hello(`{"planId":"7"}`); got != 200 || body != `{"ok":true,"warnings":[]}` {
		t.Error(got, body)
	}
	if s := c.core.Settings(); s.PlanID != "7" || s.PublicURL != "https://a.example.com" {
		t.Errorf("%+v", s)
	}
	if got, body := c.hello(`{"planId":"8","nope":1}`); got != 400 || !strings.Contains(body, "nope") {
		t.Error(got, body)
	}
	if got, body := c.hello(`null`); got != 200 || c.core.Settings().PlanID != "5" {
		t.Error(got, body, c.core.Settings().PlanID)
	}
	got, body := c.do("POST", "/gateway/v1/hello", `{"registry":"`+c.registry()+`"}`)
	if got != 200 || !strings.Contains(body, "because the plugin cannot keep them out of prompts and transcripts") {
		t.Error("without guards:", got, body)
	}
}

// TestControl_Caps: a plugin lowers the caps of the core, and raises none. 0 is no cap of orders, and
// a cap of limits that allows none.
func TestControl_Caps(t *testing.T) {
	const unset = toll.Cents(-1)
	cents := func(n toll.Cents) *toll.Cents {
		if n == unset {
			return nil
		}
		return &n
	}
	for _, test := range []struct{ core, plugin, order, limit toll.Cents }{
		{unset, unset, unset, unset},
		{500, unset, 500, 500},
		{500, 400, 400, 400},
		{500, 600, 500, 500},
		{500, 0, 500, 0},
		{0, 500, 500, 0},
		{unset, 600, 600, 600},
	} {
		c := newControlled(t, gateway.Options{CoreToken: testToken, Config: gateway.Config{
			MaxOrderCents:         cents(test.core),
			MaxSpendingLimitCents: cents(test.core),
		}})
		config := "{}"
		if test.plugin != unset {
			config = fmt.Sprintf(`{"maxOrderCents":%d,"maxSpendingLimitCents":%[1]d}`, test.plugin)
		}
		if got, body := c.hello(config); got != 200 {
			t.Fatal(config, got, body)
		}
		s := c.core.Settings()
		if !reflect.DeepEqual(s.MaxOrderCents, cents(test.order)) ||
			!reflect.DeepEqual(s.MaxSpendingLimitCents, cents(test.limit)) {
			t.Errorf("%+v: %v, %v", test, s.MaxOrderCents, s.MaxSpendingLimitCents)
		}
	}
}

// TestControl_HelloKeepsKey: the core sends its key only to its own address. A hello changes the address only if it also
// has a key, and the core then sends that key. A core without a key and an address uses the address of the plugin.
func TestControl_HelloKeepsKey(t *testing.T) {
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, r.Header.Get("Authorization"))
		http.NotFound(w, r)
	}))
	defer thief.Close()
	r := newRig(t, nil)
	s := httptest.NewServer(r.core.Handler())
	t.Cleanup(s.Close)
	c := &controlled{t, r.core, s.URL}
	for _, config := range []string{
		`{"baseUrl":"` + thief.URL + `"}`,
		`{"baseUrl":"` + thief.URL + `","environment":"live"}`,
	} {
		got, body := c.hello(config)
		if got != 200 || !strings.Contains(body, "baseUrl of the plugin was ignored") {
			t.Error(config, got, body)
		}
		r.run("checkBalance", `{}`)
		c.do("POST", "/gateway/v1/context", `{}`)
		c.do("POST", "/gateway/v1/commands/svc_login", `{"caller":{"senderIsOwner":true}}`)
	}
	if stolen != nil {
		t.Error("the core sent", stolen)
	}
	key := must.Get(r.svc.NewKey("bob"))(t)
	c.hello(`{"apiKey":"` + key.Key + `","baseUrl":"` + thief.URL + `"}`)
	_, _ = r.try(owner, "", "checkBalance", `{}`)
	for _, header := range stolen {
		if header != "" && header != "Bearer "+key.Key {
			t.Error("the core sent", header)
		}
	}
	if len(stolen) == 0 {
		t.Error("the plugin's own key and address are not used together")
	}
	// A core without a key and an address takes the address of the plugin.
	bare := newControlled(t, gateway.Options{CoreToken: testToken})
	if got, body := bare.hello(`{"baseUrl":"` + thief.URL + `"}`); got != 200 || bare.core.Settings().BaseURL != thief.URL {
		t.Error(got, body)
	}
}

// TestControl_HelloKeepsLogins: a hello with a key and an address of its own does not move the logins of a core that has an address.
// Browser logins begin at the service of the core, and a key that the owner pastes goes to it alone.
func TestControl_HelloKeepsLogins(t *testing.T) {
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, r.URL.Path+" "+r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"environment":"sandbox"}`)
	}))
	defer thief.Close()
	r := newRig(t, nil)
	s := httptest.NewServer(r.core.Handler())
	t.Cleanup(s.Close)
	t.Cleanup(r.core.Close)
	c := &controlled{t, r.core, s.URL}
	own := must.Get(r.svc.NewKey("bob"))(t)
	pasted := must.Get(r.svc.NewKey("cid"))(t)
	if got, body := c.hello(`{"apiKey":"` + own.Key + `","baseUrl":"` + thief.URL + `"}`); got != 200 {
		t.Fatal(got, body)
	}
	for _, login := range [][2]string{{"", "Open " + r.svc.URL()}, {pasted.Key, "Logged in to sandbox as " + pasted.Address.String()}} {
		got, body := c.do("POST", "/gateway/v1/commands/svc_login", `{"args":"`+login[0]+`","caller":{"senderIsOwner":true}}`)
		if got != 200 || !strings.Contains(body, login[1]) {
			t.Errorf("%q: %d %s", login[1], got, body)
		}
	}
	r.run("checkBalance", `{}`)
	if stolen != nil {
		t.Error("the core sent", stolen)
	}
}

// TestControl_HelloNarrows: a plugin can narrow each bound of the core and its defaults, and widens none.
func TestControl_HelloNarrows(t *testing.T) {
	yes, no, one := true, false, toll.Cents(500)
	for name, test := range map[string]struct {
		core   gateway.Config
		plugin string
		looser bool
		holds  func(gateway.Config) bool
	}{
		"owner by default": {gateway.Config{}, `{"ownerOnlySpending":false}`, true, func(c gateway.Config) bool { return *c.OwnerOnlySpending }},
		"owner":            {gateway.Config{OwnerOnlySpending: &yes}, `{"ownerOnlySpending":false}`, true, func(c gateway.Config) bool { return *c.OwnerOnlySpending }},
		"owner narrowed":   {gateway.Config{OwnerOnlySpending: &no}, `{"ownerOnlySpending":true}`, false, func(c gateway.Config) bool { return *c.OwnerOnlySpending }},
		"owner kept":       {gateway.Config{OwnerOnlySpending: &no}, `{"ownerOnlySpending":false}`, false, func(c gateway.Config) bool { return !*c.OwnerOnlySpending }},
		"approval":         {gateway.Config{SpendApproval: "host"}, `{"spendApproval":"confirm"}`, true, func(c gateway.Config) bool { return c.SpendApproval == "host" }},
		"approval asked":   {gateway.Config{}, `{"spendApproval":"host"}`, false, func(c gateway.Config) bool { return c.SpendApproval == "host" }},
		"paste":            {gateway.Config{AllowKeyPaste: &no}, `{"allowKeyPaste":true}`, true, func(c gateway.Config) bool { return !*c.AllowKeyPaste }},
		"private":          {gateway.Config{AllowPrivateAgents: &no}, `{"allowPrivateAgents":true}`, true, func(c gateway.Config) bool { return !*c.AllowPrivateAgents }},
		"private on live":  {gateway.Config{Environment: toll.Live}, `{"allowPrivateAgents":true}`, true, func(c gateway.Config) bool { return !*c.AllowPrivateAgents }},
		"limit by default": {gateway.Config{}, `{"maxSpendingLimitCents":5000,"defaultSpendingLimitCents":5000}`, true, func(c gateway.Config) bool {
			return *c.MaxSpendingLimitCents == 1000 && *c.DefaultSpendingLimitCents == 1000
		}},
		"order":       {gateway.Config{MaxOrderCents: &one}, `{"maxOrderCents":600}`, true, func(c gateway.Config) bool { return *c.MaxOrderCents == 500 }},
		"environment": {gateway.Config{APIKey: "live:a.b.c"}, `{"environment":"sandbox"}`, true, func(c gateway.Config) bool { return c.Environment == toll.Live }},
	} {
		c := newControlled(t, gateway.Options{CoreToken: testToken, Config: test.core})
		got, body := c.hello(test.plugin)
		if got != 200 || strings.Contains(body, "was ignored") != test.looser || !test.holds(c.core.Settings()) {
			t.Errorf("%s: %d %s: %+v", name, got, body, c.core.Settings())
		}
	}
}

// TestMCPToken: the token of MCP hosts opens /mcp only, and ends with the core token.
// T144
func TestMCPToken(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	with := func(token string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
		}
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, token := range []string{gateway.MCPToken(testToken), testToken} {
		if got, body := c.do("POST", "/mcp", list, with(token)); got != 200 || !strings.Contains(body, "service_checkBalance") {
			t.Error(got, body)
		}
	}
	for _, path := range []string{"hello", "tools/service_checkBalance", "approval", "commands/svc_login", "context"} {
		if got, body := c.do("POST", "/gateway/v1/"+path, `{}`, with(gateway.MCPToken(testToken))); got != 401 {
			t.Error(path, got, body)
		}
	}
	for _, path := range []string{"/mcp/", "/MCP", "/mcp/../gateway/v1/tools", "/gateway/v1/tools"} {
		if got, body := c.do("GET", path, "", with(gateway.MCPToken(testToken))); got == 200 {
			t.Error(path, body)
		}
	}
	if got, _ := c.do("POST", "/mcp", list, with(gateway.MCPToken(testToken+"x"))); got != 401 {
		t.Error("another MCP token:", got)
	}
}

// TestControl_Registry: calls of a plugin with other tools are refused on every path, and it spends
// nothing before the core has its configuration.
func TestControl_Registry(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	from := func(registry string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Toll-Registry", registry) }
	}
	for _, path := range []string{"tools/service_checkBalance", "approval", "commands/svc_login", "context"} {
		if got, body := c.do("POST", "/gateway/v1/"+path, `{}`, from("sha256:00")); got != 409 || !strings.Contains(body, "registry_mismatch") {
			t.Error(path, got, body)
		}
	}
	same := from(c.registry())
	for _, test := range []struct{ tool, before, after string }{
		{"service_checkBalance", "not_authenticated", "not_authenticated"},
		{"service_orderPlan", "service_unavailable", "not_authenticated"},
		{"service_createPlan", "service_unavailable", "not_authenticated"},
	} {
		call := func() string {
			_, body := c.do("POST", "/gateway/v1/tools/"+test.tool, `{"caller":{"senderIsOwner":true}}`, same)
			return body
		}
		if body := call(); !strings.Contains(body, test.before) {
			t.Error(test.tool, body)
		}
		defer func() {
			if body := call(); !strings.Contains(body, test.after) {
				t.Error(test.tool, body)
			}
		}()
	}
	if got, body := c.hello(`{}`); got != 200 {
		t.Error(got, body)
	}
}

// TestControl_Tools: the registry as a host gets it.
func TestControl_Tools(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	_, body := c.do("GET", "/gateway/v1/tools", "")
	var got struct {
		Registry string
		Tools    []struct {
			Name, Title, Description, Effect string
			InputSchema                      struct {
				Type       string
				Properties map[string]any
				Required   []string
			}
			OutputSchema struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err, body)
	}
	effects := map[string]string{}
	for _, tool := range got.Tools {
		effects[tool.Name] = tool.Effect
		if tool.InputSchema.Type != "object" || tool.Title == "" || tool.Description == "" || len(tool.Description) > 500 {
			t.Errorf("%+v", tool)
		}
		for name, schema := range tool.OutputSchema.Properties {
			if _, object := schema.(map[string]any); !object {
				t.Errorf("%s: the schema of %s is %v: MCP clients in TypeScript refuse the whole list", tool.Name, name, schema)
			}
		}
	}
	want := map[string]string{
		"service_checkBalance":       "read",
		"service_getAccessToken":     "spend",
		"service_orderPlan":          "spend",
		"service_orderFiatPlan":      "spend",
		"service_listPaymentMethods": "read",
		"service_queryAgent":         "spend",
		"service_registerAgent":      "write",
		"service_createPlan":         "write",
		"service_listPlans":          "read",
	}
	if a, b := encoded(t, effects), encoded(t, want); a != b || got.Registry != c.registry() {
		t.Errorf("%s, want %s", a, b)
	}
}

// TestControl_OwnerRule: only the owner uses tools that spend or write, unless the operator says
// otherwise. An unknown sender is not the owner.
func TestControl_OwnerRule(t *testing.T) {
	no := false
	for name, test := range map[string]struct {
		config gateway.Config
		tool   string
		owner  string
		want   string
	}{
		"reads":     {gateway.Config{}, "service_listPlans", "false", "not_authenticated"},
		"spends":    {gateway.Config{}, "service_orderPlan", "false", "not_owner"},
		"writes":    {gateway.Config{}, "service_createPlan", "null", "not_owner"},
		"owner":     {gateway.Config{}, "service_orderPlan", "true", "not_authenticated"},
		"everybody": {gateway.Config{OwnerOnlySpending: &no}, "service_orderPlan", "false", "not_authenticated"},
	} {
		c := newControlled(t, gateway.Options{CoreToken: testToken, Config: test.config})
		got, body := c.do("POST", "/gateway/v1/tools/"+test.tool, `{"caller":{"senderIsOwner":`+test.owner+`}}`)
		if got != 200 || !strings.Contains(body, `"code":"`+test.want+`"`) {
			t.Errorf("%s: %d %s", name, got, body)
		}
	}
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	if got, body := c.do("POST", "/gateway/v1/tools/service_orderPlan", `{"caller":{"senderIsOwner":"true"}}`); got != 400 {
		t.Error("a text as owner:", got, body)
	}
}

// TestControl_Namespace: another namespace has tools and paths under its own words alone.
func TestControl_Namespace(t *testing.T) {
	c := newControlled(t, gateway.Options{
		CoreToken: testToken,
		Names:     x402.Namespace{Scheme: "zzz", Header: "Acme", Word: "acme"},
	})
	_, body := c.do("GET", "/gateway/v1/tools", "")
	if !strings.Contains(body, `"acme_checkBalance"`) || strings.Contains(body, "service_") || strings.Contains(body, "svc") {
		t.Error(body)
	}
	if s := c.core.Settings(); s.AgentEndpointPath != "/acme/agent" {
		t.Error(s.AgentEndpointPath)
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, json.NewEncoder(&b).Encode(v))
	return b.String()
}
