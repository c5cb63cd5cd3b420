package paidmcp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestRegister: a registration is passed on to the service as it is, and so is the answer.
func TestRegister(t *testing.T) {
	svc := service(t)
	var got map[string]any
	status, body := http.StatusCreated, `{"client_id":"from-the-service"}`
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = map[string]any{}
		if err := json.Unmarshal(text, &got); err != nil || r.Method != http.MethodPost || r.URL.Path != "/oauth/register" || r.Header.Get("Cookie") != "" {
			t.Errorf("%s %s %s", r.Method, r.URL, text)
		}
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer as.Close()
	h := &hosted{t: t, svc: svc}
	pay := paidmcp.New(svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), Clock: svc.Now})
	server, err := paidmcp.NewServer(pay, mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, nil), paidmcp.ServerConfig{ServiceURL: as.URL})
	must.Do(t, err)
	ts := httptest.NewServer(server.Handler())
	defer ts.Close()
	h.url = ts.URL
	register := func(body string) httpAnswer { return h.do(http.MethodPost, "/register", body, "Cookie: a=b") }

	for _, good := range []string{
		`{"redirect_uris":["https://a.example.com/back?x=1"]}`,
		`{"redirect_uris":["http://127.0.0.1:33418/","http://localhost/x","http://[::1]:1/"],"client_name":"Editor","grant_types":["authorization_code","refresh_token"]}`,
		`{"redirect_uris":["com.example.app:/back"],"token_endpoint_auth_method":"client_secret_post","response_types":["code"],"contacts":["a@example.com"],"software_id":"x"}`,
		`{"redirect_uris":["cursor://anysphere.cursor-mcp/oauth/callback","vscode://publisher.extension/cb"],"grant_types":["refresh_token","urn:ietf:params:oauth:grant-type:device_code"]}`,
	} {
		got = nil
		a := register(good)
		if a.status != http.StatusCreated || a.body != body || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", good, a.status, a.body)
		}
		var sent map[string]any
		must.Do(t, json.Unmarshal([]byte(good), &sent))
		if len(got) != len(sent)+1 || got["agent_id"] != string(svc.Agent()) {
			t.Errorf("%s arrived as %v", good, got)
		}
	}
	if a := h.do(http.MethodPost, "/register", `{"redirect_uris":["https://a.example.com/"],"x":"`+strings.Repeat("a", 17<<10)+`"}`); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d", a.status)
	}
	if a := h.do(http.MethodGet, "/register", ""); a.status != http.StatusNotFound {
		t.Errorf("%d", a.status)
	}
	good := `{"redirect_uris":["https://a.example.com/"]}`
	// What the service says is passed on, and what is none of its answers is not.
	for _, c := range []struct {
		status, want int
		body         string
	}{{429, 429, `{"error":"temporarily_unavailable"}`}, {400, 400, `{"error":"invalid_redirect_uri"}`}, {500, 503, `{}`}, {302, 503, `{}`}, {201, 503, `<html>`}} {
		status, body = c.status, c.body
		if a := register(good); a.status != c.want || c.want == c.status && a.body != c.body || a.header.Get("Retry-After") == "" {
			t.Errorf("%d: %d %s", c.status, a.status, a.body)
		}
	}
	status, body = http.StatusCreated, `{}`
	limited := false
	for range 1000 { // however slowly
		if limited = register(good).status == http.StatusTooManyRequests; limited {
			break
		}
	}
	if !limited {
		t.Error("there is no limit")
	}
	svc.Advance(time.Minute)
	if a := register(good); a.status != http.StatusCreated {
		t.Errorf("a minute later: %d", a.status)
	}
}

// TestRegister_WithTheService: the client of a server with an agent has the id of the agent there, and the service judges
// registrations by the table of the wire contract.
func TestRegister_WithTheService(t *testing.T) {
	svc := service(t)
	h := host(t, svc, paidmcp.ServerConfig{})
	a := h.do(http.MethodPost, "/register", `{"redirect_uris":["http://127.0.0.1:33418/callback"],"client_name":"Editor"}`)
	var made struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
		Method    string   `json:"token_endpoint_auth_method"`
	}
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != http.StatusCreated || made.ID != string(svc.Agent()) || made.Method != "none" || len(made.Redirects) != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	long := strings.Repeat("a", 257)
	many := strings.TrimSuffix(strings.Repeat(`"https://a.example.com/",`, 11), ",")
	for body, code := range map[string]string{
		`[]`: "invalid_request", `"x"`: "invalid_request", `{`: "invalid_request", `{}`: "invalid_request", `{"software_id":"x"}`: "invalid_request",
		`{"client_name":"x"}`: "invalid_request", `{"redirect_uris":[]}`: "invalid_request", `{"redirect_uris":null,"client_name":"x"}`: "invalid_request", `{"redirect_uris":"https://a.example.com"}`: "invalid_redirect_uri",
		`{"redirect_uris":[` + many + `]}`:                                                            "invalid_redirect_uri",
		`{"redirect_uris":["http://a.example.com/"]}`:                                                 "invalid_redirect_uri",
		`{"redirect_uris":["javascript:alert(1)"]}`:                                                   "invalid_redirect_uri",
		`{"redirect_uris":["data:text/html,x"]}`:                                                      "invalid_redirect_uri",
		`{"redirect_uris":["app:x"]}`:                                                                 "invalid_redirect_uri",
		`{"redirect_uris":["ms-settings:/x"]}`:                                                        "invalid_redirect_uri",
		`{"redirect_uris":["https://a.example.com/#x"]}`:                                              "invalid_redirect_uri",
		`{"redirect_uris":["https://a.example.com/#"]}`:                                               "invalid_redirect_uri",
		`{"redirect_uris":["https://u@a.example.com/"]}`:                                              "invalid_redirect_uri",
		`{"redirect_uris":["https:///x"]}`:                                                            "invalid_redirect_uri",
		`{"redirect_uris":["http://localhost.example.com/"]}`:                                         "invalid_redirect_uri",
		`{"redirect_uris":["https://a.example.com/","ftp://a.example.com/"]}`:                         "invalid_redirect_uri",
		`{"redirect_uris":["https://a.example.com/"],"grant_types":["password"]}`:                     "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"response_types":["token"]}`:                     "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"response_types":["id_token"]}`:                  "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"token_endpoint_auth_method":"private_key_jwt"}`: "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"client_name":7}`:                                "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"scope":"` + long + `"}`:                         "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"contacts":["1","2","3","4","5","6"]}`:           "invalid_client_metadata",
		`{"redirect_uris":["https://a.example.com/"],"redirect_uris":["https://b.example.com/"]}`:     "invalid_request",
		`{"redirect_uris":["https://a.example.com/"],"logo_uri":["x"]}`:                               "invalid_client_metadata",
	} {
		a := h.do(http.MethodPost, "/register", body)
		var refused struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		if err := json.Unmarshal([]byte(a.body), &refused); err != nil || a.status != http.StatusBadRequest || refused.Error != code || refused.Description == "" ||
			(body == `{}` && !strings.Contains(refused.Description, "redirect_uris")) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
