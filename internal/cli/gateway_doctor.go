package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/x402"
)

func gatewayDoctor(a *app) *cobra.Command {
	var f coreAddress
	var host string
	c := command("doctor", "Check the setup of the chat gateway", nil)
	c.Long = `Check the setup of the chat gateway: the core token, the running core, its login, plan, and paid endpoint, and the
settings of OpenClaw on this machine. Each finding includes its fix; nothing is changed.

The exit code is 1 if a check fails; warnings do not count.`
	c.Example = "toll gateway doctor\ntoll gateway doctor --config gateway.json --openclaw-config ~/.openclaw/openclaw.json"
	f.add(c)
	c.Flags().StringVar(&f.config, "config", "", "configuration file of the core")
	c.Flags().StringVar(&host, "openclaw-config", "", "configuration file of OpenClaw; default OPENCLAW_CONFIG_PATH, else openclaw.json in OPENCLAW_STATE_DIR or ~/.openclaw")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
		defer cancel()
		d := &doctor{app: a}
		dir, err := f.dir(a)
		if err != nil {
			return err
		}
		config, err := gatewayConfig(&a.console, f.config)
		if err != nil {
			return err
		}
		plugin := d.openClaw(ctx, host, filepath.Join(dir, gateway.TokenFile))
		if plugin.CoreURL != "" && !cmd.Flags().Changed("core-url") {
			f.url = plugin.CoreURL
		}
		loggedIn := d.core(ctx, &f, dir)
		found := gateway.Inspect(ctx, gateway.Options{Config: config, Dir: dir, Names: a.set.names, Version: release()}, plugin)
		for _, c := range found {
			if c.Name == "login" && c.Status == check.Warning && loggedIn {
				c.Status = check.OK
				c.Detail = "the running core has an API key, but this command does not: to check the key, set --config to the configuration file of the core"
			}
			d.add(c.Name, c.Status, "%s", c.Detail)
		}
		return d.report()
	}
	return c
}

// core checks the core token and the running core, and reports whether the core has an API key.
func (d *doctor) core(ctx context.Context, f *coreAddress, dir string) (loggedIn bool) {
	path := filepath.Join(dir, gateway.TokenFile)
	token := f.token
	switch _, err := os.Stat(path); {
	case token != "":
		d.add("core token", check.OK, "TOLL_GATEWAY_TOKEN")
	case errors.Is(err, fs.ErrNotExist):
		d.add("core token", check.Warning, "%s does not exist: the first start of toll gateway serve creates it", path)
	default:
		if token, err = gateway.CoreToken(dir); err != nil {
			d.add("core token", check.Failed, "%s", err)
			return false
		}
		d.add("core token", check.OK, "%s", path)
	}
	var health struct {
		Version  string `json:"version"`
		LoggedIn bool   `json:"loggedIn"`
	}
	if _, err := f.do(ctx, http.MethodGet, "/gateway/v1/health", token, nil, &health); err != nil {
		d.add("core", check.Failed, "%s", err)
		return false
	}
	if health.Version != release() {
		d.add("core", check.Warning, "release %s at %s, but this program is release %s: restart the core", health.Version, f.url, release())
	} else {
		d.add("core", check.OK, "release %s at %s", health.Version, f.url)
	}
	if token == "" {
		return health.LoggedIn
	}
	var tools json.RawMessage
	if _, err := f.do(ctx, http.MethodGet, "/gateway/v1/tools", token, nil, &tools); err != nil {
		d.add("core token", check.Failed, "the core at %s does not accept this token: %s", f.url, err)
	}
	return health.LoggedIn
}

// hostConfig is what matters here of the configuration of OpenClaw.
type hostConfig struct {
	Plugins struct {
		Enabled *bool    `json:"enabled"`
		Allow   []string `json:"allow"`
		Deny    []string `json:"deny"`
		Entries map[string]struct {
			Enabled *bool `json:"enabled"`
			Hooks   struct {
				AllowConversationAccess bool `json:"allowConversationAccess"`
			} `json:"hooks"`
			Config map[string]json.RawMessage `json:"config"`
		} `json:"entries"`
	} `json:"plugins"`
	Tools struct {
		Profile    string          `json:"profile"`
		ToolSearch json.RawMessage `json:"toolSearch"`
	} `json:"tools"`
	Gateway struct {
		Bind string `json:"bind"`
	} `json:"gateway"`
}

// openClaw checks the settings of OpenClaw and returns the settings of the plugin.
func (d *doctor) openClaw(ctx context.Context, path, tokenFile string) (plugin gateway.Config) {
	named := path != ""
	if path == "" {
		path, named = openClawConfig(&d.app.console)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		d.add("OpenClaw", check.OK, "%s does not exist: OpenClaw was not checked", path)
		return plugin
	}
	var host hostConfig
	if err == nil {
		err = json.Unmarshal(b, &host)
	}
	if err != nil {
		d.add("OpenClaw", check.Warning, "the settings of OpenClaw cannot be read; they must be JSON without comments: %s: %s", path, err)
		return plugin
	}
	d.add("OpenClaw", check.OK, "%s", path)
	d.node(ctx)
	id := d.app.set.names.PluginID()
	d.hostSwitches(&host, id)
	entry := host.Plugins.Entries[id]
	delete(entry.Config, "apiKey") // it may be a reference to a secret of the host
	delete(entry.Config, d.app.set.names.ConfigAPIKey())
	if text, err := x402.Encode(entry.Config); err == nil && entry.Config != nil {
		if plugin, err = gateway.ParseConfig(text, d.app.set.names); err != nil {
			d.add("plugin", check.Failed, "plugins.entries.%s.config: %s", id, err)
		}
	}
	d.hostCore(id, plugin, tokenFile)
	return plugin
}

// hostSwitches checks whether OpenClaw lets the plugin work.
func (d *doctor) hostSwitches(host *hostConfig, id string) {
	p, entry := host.Plugins, host.Plugins.Entries[id]
	set := func(field, value string) string { return "openclaw config set " + field + " " + value }
	off := func(b *bool) bool { return b != nil && !*b }
	switch {
	case off(p.Enabled):
		d.add("plugin", check.Failed, "plugins are disabled: run %s", set("plugins.enabled", "true"))
	case slices.Contains(p.Deny, id):
		d.add("plugin", check.Failed, "plugins.deny contains %s: remove it", id)
	case off(entry.Enabled):
		d.add("plugin", check.Failed, "the plugin is disabled: run %s", set("plugins.entries."+id+".enabled", "true"))
	case !slices.Contains(p.Allow, id):
		list, _ := json.Marshal(append(slices.Clone(p.Allow), id)) // texts always are JSON
		d.add("plugin", check.Failed, "plugins.allow does not contain the plugin: run %s --strict-json", set("plugins.allow", quote(string(list))))
	default:
		d.add("plugin", check.OK, "%s is allowed", id)
	}
	if !entry.Hooks.AllowConversationAccess {
		d.add("grant", check.Failed,
			"without this grant, prompts do not show the balance, and the plugin does not stop prompts that contain a key: run %s",
			set("plugins.entries."+id+".hooks.allowConversationAccess", "true"))
	} else {
		d.add("grant", check.OK, "allowConversationAccess")
	}
	if profile := host.Tools.Profile; profile != "" && !slices.Contains([]string{"coding", "messaging", "full"}, profile) {
		d.add("tool profile", check.Warning, "the profile %q excludes the tools of plugins: run %s", profile, set("tools.profile", "messaging"))
	}
	if string(host.Tools.ToolSearch) != "false" {
		d.add("tool search", check.Warning, "the model finds the tools only through tool_search: run %s", set("tools.toolSearch", "false"))
	}
	if bind := host.Gateway.Bind; bind != "" && bind != "loopback" {
		d.add("address", check.Warning, "gateway.bind is %q: /tools/invoke and /v1 of OpenClaw act for you and must not be public; forward only the paid path", bind)
	}
}

// hostCore checks how the plugin reaches the core.
func (d *doctor) hostCore(id string, plugin gateway.Config, tokenFile string) {
	if u, err := url.Parse(plugin.CoreURL); err == nil && u.Scheme == "http" && !toll.IsLoopback(u.Hostname()) {
		d.add("core address", check.Failed, "coreUrl %s sends the core token unencrypted: use https, or an address of this machine", plugin.CoreURL)
	}
	if plugin.StartCore != nil && *plugin.StartCore {
		return // it gets its token without a file
	}
	usual := filepath.Join(d.app.getenv("HOME"), ".toll", "gateway", gateway.TokenFile)
	if got := cmp.Or(plugin.CoreTokenFile, usual); !sameFile(got, tokenFile) {
		d.add("plugin token", check.Failed,
			"the plugin reads the token in %s, but this core uses %s: run openclaw config set plugins.entries.%s.config.coreTokenFile %s",
			got, tokenFile, id, quote(tokenFile))
	}
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return a == b || errors.Join(err1, err2) == nil && os.SameFile(x, y)
}

// openClawConfig is where OpenClaw has its settings, and whether the environment says so.
func openClawConfig(con *console) (path string, named bool) {
	if p := con.getenv("OPENCLAW_CONFIG_PATH"); p != "" {
		return p, true
	}
	if dir := con.getenv("OPENCLAW_STATE_DIR"); dir != "" {
		return filepath.Join(dir, "openclaw.json"), true
	}
	return filepath.Join(con.getenv("HOME"), ".openclaw", "openclaw.json"), false
}

var nodeVersion = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+\s*$`)

// node checks the version of node in the PATH, on which OpenClaw would run.
func (d *doctor) node(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		d.add("Node", check.Warning, "node is not in the PATH: OpenClaw needs Node 24.16 or a later 24 release, or Node 26.1 or later")
		return
	}
	version := strings.TrimSpace(string(out))
	if !nodeFits(version) {
		d.add("Node", check.Failed, "%s is not supported: OpenClaw needs Node 24.16 or a later 24 release, or Node 26.1 or later", clean(fmt.Sprintf("%.20s", version)))
		return
	}
	d.add("Node", check.OK, "%s", version)
}

// nodeFits reports whether OpenClaw runs on a version of Node.
func nodeFits(version string) bool {
	m := nodeVersion.FindStringSubmatch(version)
	if m == nil {
		return false
	}
	major, err1 := strconv.Atoi(m[1])
	minor, err2 := strconv.Atoi(m[2])
	return errors.Join(err1, err2) == nil && (major == 24 && minor >= 16 || major == 26 && minor >= 1 || major > 26)
}
