package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/gateway"
)

// hostSetting is how hosts write an MCP server.
type hostSetting struct {
	Command string
	Args    []string
	Type    string
	URL     string
	Headers map[string]string
}

// withHeaders adds the headers of a setting.
type withHeaders map[string]string

func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestGateway_Hosts: a stock MCP client finds the tools by each setting that docs/CHAT.md shows.
func TestGateway_Hosts(t *testing.T) {
	page, err := os.ReadFile("../../docs/CHAT.md")
	if err != nil {
		t.Fatal(err)
	}
	const token = "the-core-token"
	core, err := gateway.New(gateway.Options{Dir: t.TempDir(), CoreToken: token})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(core.Handler())
	defer h.Close()

	rows := regexp.MustCompile("(?m)^\\| ([A-Z][A-Za-z ]+) \\| `[^|]*\\| `(\\{.*\\})` \\|$").FindAllSubmatch(page, -1)
	if len(rows) != 4 {
		t.Fatalf("%d settings", len(rows))
	}
	variable := regexp.MustCompile(`\$\{[^}]*\}`)
	for _, row := range rows {
		host := string(row[1])
		var settings struct{ MCPServers, Servers map[string]hostSetting }
		if err := json.Unmarshal(row[2], &settings); err != nil {
			t.Fatal(host, err)
		}
		servers := settings.MCPServers
		if host == "VS Code" {
			servers = settings.Servers
		}
		s, ok := servers["toll"]
		if !ok {
			t.Fatalf("%s: %s", host, row[2])
		}
		var transport mcp.Transport
		if s.Command != "" {
			// The program of this test is toll under that name, see TestMain.
			c := exec.Command(os.Args[0], s.Args...)
			c.Args[0] = s.Command
			c.Env = append(os.Environ(), "TOLL_GATEWAY_DATA="+t.TempDir())
			transport = &mcp.CommandTransport{Command: c}
		} else {
			for name, value := range s.Headers {
				s.Headers[name] = variable.ReplaceAllLiteralString(value, token)
			}
			if !strings.HasPrefix(s.URL, "http://"+gateway.DefaultListen+"/") {
				t.Errorf("%s: %s", host, s.URL)
			}
			transport = &mcp.StreamableClientTransport{
				Endpoint:   strings.Replace(s.URL, "http://"+gateway.DefaultListen, h.URL, 1),
				HTTPClient: &http.Client{Transport: withHeaders(s.Headers)},
			}
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(host, err)
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 11 {
			t.Errorf("%s: %+v, %v", host, list, err)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}
