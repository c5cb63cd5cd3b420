package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
)

// hostSetting is an MCP server as chat hosts write it.
type hostSetting struct {
	Command string
	Args    []string
	Env     map[string]string
	URL     string
	Headers map[string]string
}

// hostSettings are what the file of a host holds, under the name that the host has for it.
type hostSettings struct {
	MCPServers map[string]hostSetting // Claude Desktop, Cursor, LibreChat
	Servers    map[string]hostSetting // VS Code
	Inputs     []struct{ ID string }  // VS Code
	MCP        struct{ Servers map[string]hostSetting }
}

var (
	hostRow  = regexp.MustCompile("(?m)^\\| ([A-Z][^|]+) \\| `[^|]*\\| `(\\{.*\\})` \\|$")
	variable = regexp.MustCompile(`\$\{([^}]*)\}`)
)

// TestChatHosts: the stock client of the TypeScript SDK connects with each setting of docs/CHAT.md,
// lists the tools and calls one. Only the addresses, the core token and the file of the program are
// those of the test.
func TestChatHosts(t *testing.T) {
	mcpClients.find(t)
	page := must.Get(os.ReadFile(filepath.Join("..", "docs", "CHAT.md")))(t)
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("ann"))(t)
	c := newCore(t)
	token := must.Get(os.ReadFile(c.tokenFile))(t)
	rows := hostRow.FindAllSubmatch(page, -1)
	if len(rows) != 5 {
		t.Fatalf("%d settings", len(rows))
	}
	for _, row := range rows {
		t.Run(string(row[1]), func(t *testing.T) {
			s := settingOf(t, row[2])
			command := map[string]any{"calls": []rpc{{"tools/call", map[string]any{"name": toolWord + "listPlans", "arguments": map[string]any{}}}}}
			if s.Command != "" {
				if s.Command != "toll" || s.URL != "" {
					t.Fatalf("%+v", s)
				}
				s.Env["TOLL_URL"], s.Env["TOLL_API_KEY"], s.Env["HOME"] = svc.URL(), key.Key, t.TempDir()
				command["command"], command["args"], command["env"] = servertest.Program(t), s.Args, s.Env
			} else {
				for name, value := range s.Headers {
					s.Headers[name] = variable.ReplaceAllLiteralString(value, gateway.MCPToken(strings.TrimSpace(string(token))))
				}
				command["url"], command["headers"] = strings.Replace(s.URL, "http://127.0.0.1:8791", c.url, 1), s.Headers
			}
			lines := typescript(t, command, nil)
			if len(lines) != 2 || len(lines[0].Tools) != 11 || lines[1].Result == nil {
				t.Fatalf("%+v", lines)
			}
			// A core that was given a key lists plans; the other one has none and says so.
			_, plans := lines[1].Result.StructuredContent["plans"]
			e, _ := lines[1].Result.StructuredContent["error"].(map[string]any)
			if plans != (s.Command != "") || !plans && e["code"] != "not_authenticated" {
				t.Errorf("%+v", lines[1].Result)
			}
		})
	}
}

// settingOf reads the one server of a setting, whose variables the host or its inputs give.
func settingOf(t *testing.T, text []byte) hostSetting {
	t.Helper()
	var all hostSettings
	must.Do(t, json.Unmarshal(text, &all))
	given := map[string]bool{"TOLL_GATEWAY_MCP_TOKEN": true, "env:TOLL_GATEWAY_MCP_TOKEN": true}
	for _, in := range all.Inputs {
		given["input:"+in.ID] = true
	}
	for _, v := range variable.FindAllSubmatch(text, -1) {
		if !given[string(v[1])] {
			t.Errorf("nobody gives %s", v[0])
		}
	}
	for _, servers := range []map[string]hostSetting{all.MCPServers, all.Servers, all.MCP.Servers} {
		if s, ok := servers["toll"]; ok {
			return s
		}
	}
	t.Fatalf("no server toll in %s", text)
	return hostSetting{}
}
