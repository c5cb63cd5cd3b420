package interop

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/tolltest"
)

// TestOpenClawWays are the other ways to run the plugin, each with a host of its own.
func TestOpenClawWays(t *testing.T) {
	if rounds.Deferred(t) {
		return // four more hosts, in make test-all and make test-gateway
	}
	inOpenClaw(t, func(t *testing.T, plugin string) {
		svc := tolltest.New(t, tolltest.WithPayments())
		key := must.Get(svc.NewKey("buyer"))(t)
		t.Run("packed", func(t *testing.T) { packed(t, svc, key, plugin) })
		t.Run("pasted key", func(t *testing.T) { pastedKey(t, svc, key, plugin) })
		t.Run("without grant", func(t *testing.T) { withoutGrant(t, svc, key, plugin) })
		t.Run("without contracts", func(t *testing.T) { withoutContracts(t, plugin) })
	})
}

// packed installs the plugin from its archive into an empty host, as the README says.
func packed(t *testing.T, svc *tolltest.Service, key toll.APIKey, plugin string) {
	npm := must.Get(exec.LookPath("npm"))(t)
	to := t.TempDir()
	pack := exec.Command(npm, "pack", "--ignore-scripts", "--pack-destination", to) // dist is built
	pack.Dir = plugin
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	archives, err := filepath.Glob(filepath.Join(to, "*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives: %v %v", archives, err)
	}
	h := newHost(t, "", nil, func(config map[string]any) { delete(config, "plugins") })
	source := "npm-pack:" + archives[0]
	if out, code := h.cli("plugins", "install", source); code == 0 || !strings.Contains(out, "--force") {
		t.Errorf("an installation without flags: %d %s", code, out)
	}
	if out, code := h.cli("plugins", "install", source, "--force", "--accept-capabilities"); code != 0 {
		t.Fatalf("the installation: %d %s", code, out)
	}
	// This host also starts the core.
	coreURL := "http://" + servertest.FreeAddress(t)
	fields := must.Get(json.Marshal(map[string]any{
		"startCore": true, "coreBinary": servertest.Program(t), "coreUrl": coreURL, "baseUrl": svc.URL(),
		"apiKey": key.Key, "planId": svc.Plan(),
	}))(t)
	config := "plugins.entries." + pluginID + ".config"
	for _, set := range [][]string{
		{"plugins.allow", `["` + pluginID + `"]`, "--strict-json"},
		{"plugins.entries." + pluginID + ".hooks.allowConversationAccess", "true"},
		{config, string(fields), "--strict-json"},
	} {
		if out, code := h.cli(append([]string{"config", "set"}, set...)...); code != 0 {
			t.Fatalf("config set %s: %d %s", set[0], code, out)
		}
	}
	for _, wrong := range [][2]string{{"environment", "nowhere"}, {"planId", "7"}, {"unknown", "x"}} {
		if out, code := h.cli("config", "set", config+"."+wrong[0], wrong[1]); code == 0 || !strings.Contains(out, "invalid config") {
			t.Errorf("config set %s %s: %d %s", wrong[0], wrong[1], code, out)
		}
	}
	h.begin()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) { // tools are there first
		if status, _ := h.tryInvoke(toolWord + "checkBalance"); status == http.StatusOK || time.Now().After(end) {
			break
		}
	}
	testDirectCalls(t, h)
	h.context(t, "not ordered yet")
	want := manifestTools(t, plugin)
	h.model.asked()
	h.ask("list", "Which tools are there?")
	var ours []string
	for _, name := range h.offered(t) {
		if strings.HasPrefix(name, toolWord) {
			ours = append(ours, name)
		}
	}
	slices.Sort(want)
	slices.Sort(ours)
	if !slices.Equal(ours, want) {
		t.Errorf("tools %v, want %v", ours, want)
	}
	h.stop()
	if res, err := http.Get(coreURL + "/gateway/v1/health"); err == nil {
		_ = res.Body.Close()
		t.Error("the core outlives the host that started it")
	}
	if log := h.log.String(); !strings.Contains(log, "core: ") {
		t.Errorf("no line of the core in the log: %s", log)
	}
	h.secretless(key.Key)
}

// manifestTools returns the tools that the manifest of a plugin declares.
func manifestTools(t *testing.T, plugin string) []string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join(plugin, "openclaw.plugin.json")))(t)
	var m struct{ Contracts struct{ Tools []string } }
	must.Do(t, json.Unmarshal(b, &m))
	return m.Contracts.Tools
}

// offered returns the names of the tools that the model was offered last.
func (h *host) offered(t *testing.T) (names []string) {
	t.Helper()
	asked := h.model.asked()
	if len(asked) == 0 {
		t.Fatal("the model was not asked")
	}
	var in struct {
		Tools []struct{ Function struct{ Name string } }
	}
	must.Do(t, json.Unmarshal([]byte(asked[len(asked)-1]), &in))
	for _, tool := range in.Tools {
		names = append(names, tool.Function.Name)
	}
	return names
}

// pastedKey gives a key to the login command, and by mistake to the model. The core is also an MCP
// server of the host.
func pastedKey(t *testing.T, svc *tolltest.Service, key toll.APIKey, plugin string) {
	core := newCore(t)
	token := must.Get(os.ReadFile(core.tokenFile))(t)
	fields := core.fields(svc, nil)
	h := newHost(t, plugin, fields, func(config map[string]any) {
		config["mcp"] = map[string]any{"servers": map[string]any{"svc": map[string]any{
			"url": core.url + "/mcp", "transport": "streamable-http",
			"headers": map[string]string{"Authorization": "Bearer " + strings.TrimSpace(string(token))},
		}}}
	})
	h.begin()
	_, jwt, _ := strings.Cut(key.Key, ":")
	line := "/svc_login sandbox:" + jwt

	if status, body := h.send("/v1/chat/completions", nil, map[string]any{
		"model": "openclaw", "messages": []any{map[string]any{"role": "user", "content": line}},
	}); status == http.StatusOK {
		t.Errorf("a prompt with a key was answered: %s", body)
	}
	if out, _ := h.cli("agent", "--agent", "main", "--message", line); !strings.Contains(out, "Send /svc_login as a command") {
		t.Errorf("a prompt with a key by the command line: %s", out)
	}
	if out := h.say("main", line); !strings.HasPrefix(out, "Logged in to sandbox as ") {
		t.Errorf("login with a key: %s", out)
	}
	if asked := h.model.asked(); len(asked) > 0 {
		t.Errorf("%d requests to the model", len(asked))
	}
	if all := h.history("main"); strings.Contains(all, jwt) || !strings.Contains(all, "/svc_login [key removed]") {
		t.Errorf("the transcript: %s", all)
	}
	if status, body := h.tryInvoke(toolWord + "checkBalance"); status != http.StatusOK {
		t.Errorf("the balance after the login: %d %s", status, body)
	}

	h.ask("mcp", "Which tools are there?")
	if names := h.offered(t); !slices.Contains(names, "svc__"+toolWord+"checkBalance") {
		t.Errorf("no tool of the MCP server among %v", names)
	}
	said := h.ask("mcp", "CALL svc__"+toolWord+"checkBalance {}")
	if !strings.Contains(said, `"planId": "`+string(svc.Plan())+`"`) {
		t.Errorf("the balance over MCP: %s", said)
	}

	// A new configuration replaces the plugin and keeps the login.
	if out, code := h.cli("config", "set", "plugins.entries."+pluginID+".config.spendApproval", "host"); code != 0 {
		t.Fatalf("config set: %s", out)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(h.log.String(), "config hot reload applied"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the configuration was not applied")
		}
	}
	h.context(t, "not ordered yet")

	// A direct call has nobody who could approve.
	status, body := h.send("/tools/invoke", nil, map[string]any{
		"tool": toolWord + "orderPlan", "args": map[string]any{"confirm": true},
	})
	if n, _ := svc.Paid(); status != http.StatusForbidden || n != 0 {
		t.Errorf("an order that nobody approves: %d %s, %d orders", status, body, n)
	}
	h.stop()
	h.secretless(key.Key)
}

// withoutGrant runs the plugin as an operator leaves it who does not read the README: without the
// grant, and with tools that the model has to search for.
func withoutGrant(t *testing.T, svc *tolltest.Service, key toll.APIKey, plugin string) {
	core := newCore(t)
	h := newHost(t, plugin, core.fields(svc, map[string]any{"apiKey": key.Key}), func(config map[string]any) {
		delete(entry(config), "hooks")
		delete(config, "tools")
	})
	h.begin()
	h.context(t, "")
	if log := h.log.String(); !strings.Contains(log, "hooks.allowConversationAccess true") {
		t.Error("the plugin does not name the missing grant")
	}
	h.model.asked()
	said := h.ask("search", `CALL tool_call {"id":"`+toolWord+`checkBalance","args":{}}`)
	if !strings.Contains(said, string(svc.Plan())) {
		t.Errorf("a tool through the search: %s", said)
	}
	if names := h.offered(t); slices.Contains(names, toolWord+"checkBalance") || !slices.Contains(names, "tool_search") {
		t.Errorf("tools %v", names)
	}
	_, jwt, _ := strings.Cut(key.Key, ":")
	if out := h.say("main", "/svc_login sandbox:"+jwt); !strings.Contains(out, "does not accept keys from this chat") {
		t.Errorf("a key without the guards: %s", out)
	}
}

// withoutContracts shows what the host says about a plugin that does not declare its tools: a later
// version of the host that says something else needs another look at the manifest.
func withoutContracts(t *testing.T, plugin string) {
	bare := filepath.Join(t.TempDir(), "plugin")
	for _, name := range []string{"dist", "package.json", "openclaw.plugin.json"} {
		must.Do(t, os.MkdirAll(bare, 0o755))
		must.Do(t, copyTree(filepath.Join(plugin, name), filepath.Join(bare, name)))
	}
	file := filepath.Join(bare, "openclaw.plugin.json")
	b, err := os.ReadFile(file)
	must.Do(t, err)
	var manifest map[string]any
	must.Do(t, json.Unmarshal(b, &manifest))
	delete(manifest, "contracts")
	if b, err = json.Marshal(manifest); err == nil {
		err = os.WriteFile(file, b, 0o644)
	}
	must.Do(t, err)
	h := newHost(t, bare, map[string]any{}, nil)
	out, code := h.cli("plugins", "inspect", pluginID, "--runtime", "--json")
	if code != 0 || !strings.Contains(out, "plugin must declare contracts.tools before registering agent tools") ||
		!strings.Contains(out, `"toolNames": []`) {
		t.Errorf("%d %s", code, out)
	}
}
