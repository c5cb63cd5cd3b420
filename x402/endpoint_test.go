package x402_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// T34
func TestResourceAndVerb(t *testing.T) {
	registered := []toll.Endpoint{{Verb: "POST", URL: "https://a.example/ask"}}
	for url, want := range map[string]bool{
		"https://a.example/ask": true, "https://a.example/ask/": true, "https://a.example/ask?b=2&a=1": true, "https://a.example/ask?a=1&b=2": true,
		"https://a.example/ask#part": true, "https://A.EXAMPLE/ask": true, "HTTPS://a.example/ask": true, "https://a.example:443/ask": true, "https://a.example:/ask": true,
		"https://a.example/%61sk": true, "https://a.example/as%6B?x#y": true, "/ask": true,

		"https://a.example/ASK": false, "https://a.example/asks": false, "https://a.example/as": false, "https://a.example/": false, "https://a.example": false,
		"https://a.example/other": false, "https://a.example/ask/more": false, "http://a.example/ask": false, "http://a.example:443/ask": false,
		"https://a.example:80/ask": false, "https://a.example:8443/ask": false, "https://a.example:0443/ask": false, "https://a.example./ask": false,
		"https://b.example/ask": false, "https://xa.example/ask": false, "https://a.example.evil/ask": false, "https://a.example@b.example/ask": false,
		"https://a.example//ask": false, "https://a.example/ask//": false, "//a.example/ask": false, "///ask": false, "https:///ask": false, "https:a.example/ask": false,
		"https://a.example/./ask": false, "https://a.example/%2e/ask": false, "https://a.example/x/../ask": false, "https://a.example/x/%2E%2e/ask": false,
		"https://a.example/ask/.": false, "https://a.example/ask%2f": false, "https://a.example/%2Fask": false, "https://a.example/%2561sk": false,
		"https://user@a.example/ask": false, "https://user:pw@a.example/ask": false, "https://@a.example/ask": false,
		"https://a.example/ask%00": false, "https://a.example/ask%0a": false, "https://a.example/ask\n": false, "https://a.example\\ask": false, "https://a.example/\\ask": false,
		"https://a.example/%5cask": false, "https://a.example/ask%": false, "https://a.example/ask%zz": false, "https://a.example/ask;a": false, "https://a.example/ask%3Fa": false,
		"https://a%2eexample/ask": false, "ftp://a.example/ask": false, "a.example/ask": false, "ask": false, "": false, "?": false, "//": false,
		"mcp://a.example/ask": false, "mcp://a.example/tools/ask": false, "https://a.example/" + strings.Repeat("a", 9000): false,
		"https://a.example/\uff41sk": false, "https://\uff41.example/ask": false,
	} {
		pattern, verb, ok := x402.NewEndpoints(registered).Match(url, "POST")
		if ok != want {
			t.Errorf("%.60q matches: %v", url, ok)
		}
		if ok && (pattern != "https://a.example/ask" || verb != "POST") {
			t.Errorf("%q: %q %q", url, pattern, verb)
		}
	}
	for verb, want := range map[string]bool{"POST": true, "post": true, "": true, "GET": false, "HEAD": false, "POſT": false, "POST ": false, "PUT": false} {
		if _, got, ok := x402.NewEndpoints(registered).Match("https://a.example/ask", verb); ok != want || ok && got != "POST" {
			t.Errorf("verb %q: %v %q", verb, ok, got)
		}
	}
	// U+212A and U+0130 are no k and i in a host.
	kelvin := []toll.Endpoint{{Verb: "GET", URL: "https://k.example/"}}
	if _, _, ok := x402.NewEndpoints(kelvin).Match("https://\u212a.example/", "GET"); ok {
		t.Error("a Kelvin sign passes for a k")
	}
}

func TestPatterns(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"https://a.example":                  {"https://a.example https://a.example/ https://a.example?x", "https://a.example/x"},
		"https://a.example/":                 {"https://a.example https://a.example/", "https://a.example/x"},
		"https://A.example:443/x/":           {"https://a.example/x", "https://a.example/y"},
		"https://a.example/x%20y":            {"https://a.example/x%20y", "https://a.example/x+y"},
		"/":                                  {"/ https://any.example http://any.example/", "/x // //? ///"},
		"/ask":                               {"/ask /ask/ https://any.example/ask http://other:8080/ask?x", "/asks mcp://s/tools/ask"},
		"/t/:id":                             {"/t/1 /t/a%20b /t/: /t/1/", "/t /t/ /t/1/2 /t/%2f"},
		"/t/{id}/go":                         {"/t/1/go", "/t/go /t//go /t/1/2/go /t/1/stop"},
		"/t/%7Bid%7D":                        {"/t/1", "/t"},
		"/:a/:b":                             {"/x/y", "/x /x/y/z"},
		"/v1/models:run":                     {"/v1/models:run", "/v1/models"},
		"/f/*":                               {"/f /f/ /f/a /f/a/b/c?x", "/fa /g /f/../g /f/%2e%2e/g /f//a /f/a%2f"},
		"/f*":                                {"/f /fa /fa/b /f/a", "/ /g"},
		"/f/(.*)":                            {"/f/a /f/a/b /f", "/g"},
		"/f/(.*)*":                           {"/f/a", "/g"},
		"/f/:id/*":                           {"/f/1/a /f/1", "/f /f/"},
		"/f/:rest*":                          {"/f/a /f/a/b /f", "/g"},
		"/f/:rest(.*)":                       {"/f/a/b", "/g"},
		"/*":                                 {"/ /a /a/b https://any.example/a", "mcp://s/tools/a"},
		"https://a.example/*":                {"https://a.example https://a.example/x/y /x", "https://b.example/x"},
		"mcp://srv/tools/ask":                {"mcp://srv/tools/ask mcp://SRV/tools/ask MCP://srv/tools/%61sk mcp://srv/prompts/ask mcp://srv/tools/ask/ mcp://srv/tools/ask?x", "mcp://srv/tools/Ask mcp://srv/resources/ask mcp://other/tools/ask mcp://srv/tools mcp://srv/tools/ /ask https://srv/tools/ask"},
		"mcp://srv/prompts/ask":              {"mcp://srv/prompts/ask mcp://srv/tools/ask", "mcp://srv/resources/ask"},
		"mcp://srv/tools/*":                  {"mcp://srv/tools/a mcp://srv/prompts/b mcp://srv/tools/a%2fb", "mcp://srv/resources/a mcp://srv/tools/"},
		"mcp://srv/resources/*":              {"mcp://srv/resources/file%3A%2F%2F%2Fa", "mcp://srv/tools/a"},
		"mcp://srv/resources/file:///a?b#c":  {"mcp://srv/resources/file%3A%2F%2F%2Fa%3Fb%23c mcp://srv/resources/file:///a?b#c", "mcp://srv/resources/file:///a mcp://srv/resources/file%253A%252F%252F%252Fa"},
		"mcp://my%20srv/tools/a%20b":         {"mcp://my%20srv/tools/a%20b mcp://MY%20SRV/tools/a%20b", "mcp://mysrv/tools/ab"},
		"mcp://srv/resources/w://{city}/now": {"mcp://srv/resources/w%3A%2F%2Frome%2Fnow", "mcp://srv/resources/w%3A%2F%2F%2Fnow"},
	} {
		p, err := x402.ParsePattern(pattern)
		if err != nil || p.String() != pattern {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, url := range strings.Fields(c.yes) {
			if !p.Match(url) {
				t.Errorf("%s does not match %s", pattern, url)
			}
		}
		for _, url := range strings.Fields(c.no) {
			if p.Match(url) {
				t.Errorf("%s matches %s", pattern, url)
			}
		}
	}
	for _, bad := range []string{
		"", "ask", "*", "ftp://a.example/", "https://", "https://user@a.example/", "https://a.example//x", "https://a.example/../x", "https://a.example/%2e/x", "/a%2fb", "/a\\b", "/a%00",
		"/a/*/b", "/a/(.*)/b", "/*a*", "/a/{id}.json", "/a/{id", "/a/:", "/a/:id.json", "/a/{}", "mcp://", "mcp://srv", "mcp://srv/tools", "mcp://srv/tools/", "mcp:///tools/a", "mcp://srv/other/a", "/%zz",
		"/" + strings.Repeat("a", 9000),
	} {
		if p, err := x402.ParsePattern(bad); codeOf(t, err) != toll.CodeBadRequest {
			t.Errorf("%.40q: %v %+v", bad, err, p)
		}
	}
}

func TestMatchEndpoint_Order(t *testing.T) {
	var list []toll.Endpoint
	for _, e := range []string{"GET /t/*", "GET /t/:id", "POST /t/one", "GET /t/one", "GET /t/{other}", "GET not a url", "POST mcp://s/tools/a"} {
		verb, url, _ := strings.Cut(e, " ")
		list = append(list, toll.Endpoint{Verb: verb, URL: url})
	}
	for _, c := range [][4]string{
		{"/t/one", "GET", "/t/one", "GET"}, {"/t/one", "POST", "/t/one", "POST"}, {"/t/one", "", "/t/one", "POST"}, {"/t/two", "GET", "/t/:id", "GET"},
		{"/t/two/x", "GET", "/t/*", "GET"}, {"/t/two", "POST", "", ""}, {"mcp://s/prompts/a", "GET", "mcp://s/tools/a", "POST"}, {"not a url", "GET", "", ""},
	} {
		p, v, ok := x402.NewEndpoints(list).Match(c[0], c[1])
		if p != c[2] || v != c[3] || ok != (c[2] != "") {
			t.Errorf("%s %s: %q %q %v", c[1], c[0], p, v, ok)
		}
	}
}

// T182
func TestPatternsAreLinear(t *testing.T) {
	long := "/" + strings.Repeat("a/", 4000)
	for _, pattern := range []string{"/" + strings.Repeat("(.*)", 500), "/" + strings.Repeat("*", 2000), strings.Repeat("/:a", 600) + "/*", strings.Repeat("/a", 1000) + "/(.*)*b", "/((a+)+)+$", strings.Repeat("/(.*)", 300)} {
		best := time.Hour // a busy machine makes some times longer
		for range 10 {
			start := time.Now()
			p, err := x402.ParsePattern(pattern)
			if err == nil {
				p.Match(long)
				p.Match(long + "!")
			}
			best = min(best, time.Since(start))
		}
		if best > 20*time.Millisecond {
			t.Errorf("%.20s: %v", pattern, best)
		}
	}
}
