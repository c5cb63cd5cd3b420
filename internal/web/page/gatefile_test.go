package page_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/web/page"
)

// The gate loads the file of every agent, also with hostile names and endpoints. The file leaves out endpoints that the gate cannot serve.
func TestGateFile_Loads(t *testing.T) {
	many := toll.EndpointList{}
	for i := range 600 {
		many = append(many, toll.Endpoint{Verb: "POST", URL: fmt.Sprintf("/p%d", i)})
	}
	for name, tt := range map[string]struct {
		endpoints toll.EndpointList
		open      []string
		want      string
	}{
		"only *":   {toll.EndpointList{{Verb: "GET", URL: "https://a.example/files/*"}}, nil, "GET /files/*"},
		"none":     {nil, nil, "POST /*"},
		"one":      {toll.EndpointList{{Verb: "POST", URL: "https://a.example/v1/chat/completions"}}, nil, "POST /v1/chat/completions"},
		"patterns": {toll.EndpointList{{Verb: "GET", URL: "https://a.example/users/:id"}, {Verb: "PUT", URL: "/files/(.*)"}}, nil, "GET /users/:id, PUT /files/*"},
		"open":     {toll.EndpointList{{Verb: "POST", URL: "https://a.example/ask"}}, []string{"https://a.example/health", "/ask"}, "POST /ask, GET /health free, GET /ask free"},
		"left out": {toll.EndpointList{
			{Verb: "POST", URL: "https://a.example/ask"}, {Verb: "POST", URL: "https://a.example/ASK"}, {Verb: "POST", URL: "https://b.example/other"},
			{Verb: "POST", URL: "mcp://server/tools/*"}, {Verb: "GET", URL: "/a*b"}, {Verb: "GET", URL: "/%2e"}, {Verb: "GET", URL: "/x\"},y:{"}, {Verb: "GET", URL: "/${env:HOME}"},
		}, nil, `POST /ask`},
		"quoted": {toll.EndpointList{{Verb: "GET", URL: "https://a.example/a\"#b"}, {Verb: "GET", URL: "https://a.example/'\u2028é&<"}}, nil, "GET /'\u2028é&<"},
		"many":   {many, nil, ""},
	} {
		a := &toll.Agent{
			ID: "77", Metadata: toll.Metadata{Name: "Ask\nplan: \"9\"\u2028\u0085plan: x\r#"}, API: toll.AgentAPI{Endpoints: tt.endpoints, OpenEndpoints: tt.open},
		}
		text := page.GateFile(a, "88", 3)
		c, err := gate.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		var got []string
		for _, r := range c.Routes {
			free := ""
			if r.Free {
				free = " free"
			} else if *r.Credits != 3 {
				t.Errorf("%s: %s costs %d", name, r.Match, *r.Credits)
			}
			got = append(got, r.Match+free)
		}
		if s := strings.Join(got, ", "); c.Plan != "88" || c.Agent != "77" || tt.want != "" && s != tt.want || tt.want == "" && len(got) != 100 {
			t.Errorf("%s: %s, %s, %q, want %q\n%s", name, c.Plan, c.Agent, s, tt.want, text)
		}
	}
}
