package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/paid"
)

// example is the endpoint in the code of an agent that has none which code can name.
const example = "https://agent.example.com/ask"

// snippetEndpoint returns the method and URL of an agent that its code names. The seller chose the URL, and people paste the code: a URL
// with characters that end a string of a shell or of a language, or that are replaced in it, is never in it.
func snippetEndpoint(a *toll.Agent) (verb, address string) {
	for _, e := range a.API.Endpoints {
		if strings.HasPrefix(e.URL, "http") && !strings.ContainsAny(e.URL, `'"*{}()$`+"`\\") {
			return e.Verb, plain.Name(e.URL)
		}
	}
	return "POST", example
}

// mcpName is the name of the MCP server in the logical endpoints of an agent, or "" if it has no such endpoint.
func mcpName(a *toll.Agent) string {
	for _, e := range a.API.Endpoints {
		if u, err := url.Parse(e.URL); err == nil && u.Scheme == "mcp" && u.Host == MCPName(u.Host) {
			return u.Host
		}
	}
	return ""
}

// MCPName makes the name of an MCP server from a text: lowercase letters, digits, and hyphens, at most 40 of them.
func MCPName(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	name := strings.Join(words, "-")
	return cmp.Or(strings.Trim(name[:min(len(name), 40)], "-"), "server")
}

// methods are the methods for which the frameworks of the code have a function.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// stages returns a snippet with three steps: install, save, and start with the API key.
func stages(name, install, file, code, start string) Snippet {
	return Snippet{Name: name, Steps: []Snippet{
		{Name: "Install the packages", Text: install}, {Name: "Save as " + file, Text: code}, {Name: "Start your server", Text: start},
	}}
}

// addresses returns the URL of an endpoint, the port of a server that sells it, and the address and the upstream port of a gate before it.
func addresses(endpoint string) (u *url.URL, port, listen, upstream string) {
	u, err := url.Parse(endpoint)
	if err != nil {
		u, _ = url.Parse(example) // cannot fail
	}
	port, listen, upstream = "3000", "127.0.0.1:8403", "3000"
	if toll.IsLoopback(u.Hostname()) && u.Port() != "" {
		port, listen = u.Port(), net.JoinHostPort("127.0.0.1", u.Port())
	}
	if strings.HasSuffix(listen, ":3000") {
		upstream = "3001"
	}
	return u, port, listen, upstream
}

// Selling returns the code that takes payments for an agent, by framework. plan pays; "" is the first plan of the agent. credits is the
// price of a request. key is the API key of the server, or "" if the page cannot show it.
func Selling(c *Context, a *toll.Agent, plan toll.PlanID, credits toll.Credits, key string) []Snippet {
	verb, address := snippetEndpoint(a)
	if !slices.Contains(methods, verb) {
		verb = "POST"
	}
	if plan == "" && len(a.Plans) > 0 {
		plan = a.Plans[0].PlanID
	}
	u, port, listen, upstream := addresses(address)
	name, register := mcpName(a), ""
	if name == "" {
		name = MCPName(a.Metadata.Name)
		register = "// First, add the endpoint \"POST mcp://" + name + "/tools/*\" to the agent.\n"
	}
	with := strings.NewReplacer(
		"$SERVICE", c.PublicURL, "$VERB", verb, "$verb", strings.ToLower(verb), "$PATH", cmp.Or(u.EscapedPath(), "/"), "$ORIGIN", u.Scheme+"://"+u.Host,
		"$DIR", strings.TrimRight(u.EscapedPath(), "/"), "$PLAN", cmp.Or(string(plan), "PLAN"), "$AGENT", string(a.ID), "$CREDITS", max(credits, 1).String(), "$PORT", port, "$LISTEN", listen,
		"$UPSTREAM", upstream, "$NAME", name, "$REGISTER", register, "$KEY", cmp.Or(key, "…"),
	).Replace
	npm, pip := c.SDK.Install("typescript"), c.SDK.Install("python")
	run := with("TOLL_API_KEY='$KEY' ")
	return []Snippet{
		stages("Express", npm+"\nnpm install express", "server.mjs", with(`import express from "express";
import { Toll } from "@tollhq/toll";
import { paid } from "@tollhq/toll/express";

const price = paid({
  toll: new Toll({ url: "$SERVICE" }), // reads TOLL_API_KEY
  plan: "$PLAN",
  agent: "$AGENT",
  publicUrl: "$ORIGIN",
  credits: $CREDITS,
});

const app = express();
app.$verb("$PATH", price, express.json(), (req, res) => {
  res.json({ text: "It works." });
});
app.listen($PORT, () => console.log("Listening on port $PORT."));`), run+"node server.mjs"),
		stages("Hono", npm+"\nnpm install hono @hono/node-server", "server.mjs", with(`import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { Toll } from "@tollhq/toll";
import { paid } from "@tollhq/toll/hono";

const price = paid({
  toll: new Toll({ url: "$SERVICE" }), // reads TOLL_API_KEY
  plan: "$PLAN",
  agent: "$AGENT",
  publicUrl: "$ORIGIN",
  credits: $CREDITS,
});

const app = new Hono();
app.$verb("$PATH", price, (c) => c.json({ text: "It works." }));

serve({ port: $PORT, fetch: app.fetch });`), run+"node server.mjs"),
		stages("Next", npm, with("app$DIR/route.ts"), with(`import { Toll } from "@tollhq/toll";
import { paid } from "@tollhq/toll/next";

const answer = () => Response.json({ text: "It works." });

export const $VERB = paid(answer, {
  toll: new Toll({ url: "$SERVICE" }), // reads TOLL_API_KEY
  plan: "$PLAN",
  agent: "$AGENT",
  publicUrl: "$ORIGIN",
  credits: $CREDITS,
});`), run+with("npx next dev --port $PORT")),
		stages("FastAPI", pip+"\npip install fastapi uvicorn", "main.py", with(`from fastapi import FastAPI
from toll import AsyncToll
from toll.asgi import Middleware, paid

app = FastAPI()
app.add_middleware(
    Middleware,
    client=AsyncToll(url="$SERVICE"),  # reads TOLL_API_KEY
    plan="$PLAN",
    agent="$AGENT",
    public_url="$ORIGIN",
)


@app.$verb("$PATH")
@paid(credits=$CREDITS)
async def answer() -> dict[str, str]:
    return {"text": "It works."}`), run+with("uvicorn main:app --port $PORT")),
		stages("Flask", pip+"\npip install flask", "main.py", with(`from flask import Flask
from toll import Toll
from toll.wsgi import Middleware, paid

app = Flask(__name__)
app.wsgi_app = Middleware(
    app.wsgi_app,
    Toll(url="$SERVICE"),  # reads TOLL_API_KEY
    plan="$PLAN",
    agent="$AGENT",
    public_url="$ORIGIN",
)


@app.$verb("$PATH")
@paid(credits=$CREDITS)
def answer():
    return {"text": "It works."}`), run+with("flask --app main run --port $PORT")),
		stages("Go", c.SDK.Install("go"), "main.go", with(`package main

import (
	"io"
	"log"
	"net/http"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paid"
)

func main() {
	service := client.New("", client.WithURL("$SERVICE")) // reads TOLL_API_KEY
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "It works.\n")
	})
	http.Handle("$VERB $PATH", paid.Handler(service, answer,
		paid.Plan("$PLAN"),
		paid.Agent("$AGENT"),
		paid.PublicURL("$ORIGIN"),
		paid.Credits($CREDITS),
	))
	log.Fatal(http.ListenAndServe("127.0.0.1:$PORT", nil))
}`), run+"go run ."),
		stages("MCP", npm+"\nnpm install @modelcontextprotocol/sdk zod", "server.mjs, with the rest of your MCP server", with(`$REGISTERimport { Toll } from "@tollhq/toll";
import { seller } from "@tollhq/toll/mcp";
import { z } from "zod";

const sell = seller({
  toll: new Toll({ url: "$SERVICE" }), // reads TOLL_API_KEY
  plan: "$PLAN",
  agent: "$AGENT",
  serverName: "$NAME",
});

// server is your McpServer.
server.registerTool(
  "echo",
  { description: "Returns a text.", inputSchema: { text: z.string() } },
  sell.tool("echo", { credits: $CREDITS }, ({ text }) => ({
    content: [{ type: "text", text }],
  })),
);`), run+"node server.mjs"),
		{Name: "toll gate", Text: with(`# Charges for requests to a server on port $UPSTREAM, in any language.
# To charge by usage, such as tokens or results, see $SERVICE/docs/gate
export TOLL_API_KEY='$KEY'
toll gate --url '$SERVICE' \
  --upstream http://127.0.0.1:$UPSTREAM \
  --listen $LISTEN \
  --public-url '$ORIGIN' \
  --plan $PLAN \
  --agent $AGENT \
  --credits $CREDITS`)},
		{Name: "gate.yaml", Steps: []Snippet{
			{Name: "Save as gate.yaml", Text: GateFile(a, plan, credits)},
			{Name: "Check the file, and start the gate", Text: with(`export TOLL_API_KEY='$KEY'
toll gate check --url '$SERVICE' --config gate.yaml
toll gate --url '$SERVICE' --config gate.yaml`)},
		}},
	}
}

// GateFile returns the configuration with which toll gate sells the endpoints of an agent. plan pays, and credits is the price of a
// request. The file leaves out endpoints of other origins, and endpoints that a route of the gate cannot match.
func GateFile(a *toll.Agent, plan toll.PlanID, credits toll.Credits) string {
	address := example
	for _, e := range a.API.Endpoints {
		scheme, rest, _ := strings.Cut(e.URL, "://")
		host, _, _ := strings.Cut(rest, "/")
		if at := scheme + "://" + host; paid.CheckPublicURL(at) == nil {
			address = at
			break
		}
	}
	origin, _, listen, upstream := addresses(address)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("plan: %s", yamlText(cmp.Or(string(plan), "PLAN")))
	line("agent: %s # %s", yamlText(string(a.ID)), plain.Name(a.Metadata.Name))
	line("listen: %s", listen)
	line("public_url: %s", yamlText(origin.Scheme+"://"+origin.Host))
	line("upstreams:")
	line("  server:")
	line("    url: http://127.0.0.1:%s # fill in the address of your server", upstream)
	line("    # If your server needs a key, fill in the file with it:")
	line("    # headers: { authorization: \"Bearer ${file:/run/secrets/server}\" }")
	line("routes:")
	price := "credits: " + max(credits, 1).String()
	var routes []paid.Route
	add := func(verb, endpoint, price string) {
		path, ok := pathOf(endpoint, origin)
		if key := verb + " " + path; ok && len(routes) < mostGateRoutes && paid.CheckRoutes(append(routes, paid.Free(key))...) == nil {
			routes = append(routes, paid.Free(key))
			line("  - { match: %s, %s }", yamlText(key), price)
		}
	}
	for _, e := range a.API.Endpoints {
		add(e.Verb, e.URL, price)
	}
	for _, u := range a.API.OpenEndpoints {
		add(http.MethodGet, u, "free: true")
	}
	if len(routes) == 0 {
		line("  - { match: \"POST /*\", %s } # fill in your routes", price)
	}
	return b.String()
}

// mostGateRoutes bounds the routes of a file, which a gate bounds at 500.
const mostGateRoutes = 100

// yamlText quotes a text for YAML. Strings of JSON are valid in YAML.
func yamlText(text string) string {
	b, _ := json.Marshal(text) // cannot fail
	return string(b)
}

// pathOf returns the path of an endpoint of the origin in the syntax of the gate, with "*" for "(.*)".
func pathOf(endpoint string, origin *url.URL) (string, bool) {
	if !strings.HasPrefix(endpoint, "/") {
		scheme, rest, _ := strings.Cut(endpoint, "://")
		host, path, _ := strings.Cut(rest, "/")
		if scheme != origin.Scheme || host != origin.Host {
			return "", false
		}
		endpoint = "/" + path
	}
	path, _, _ := strings.Cut(endpoint, "?")
	return strings.ReplaceAll(path, "(.*)", "*"), true
}

// CallOnce is a command that calls an agent once, paid with an access token.
func CallOnce(a *toll.Agent, token string) string {
	verb, address := snippetEndpoint(a)
	body := " \\\n  -H 'content-type: application/json' -d '{}'"
	if !hasBody(verb) {
		body = ""
	}
	return "curl -i -X " + verb + " '" + address + "' \\\n  -H 'payment-signature: " + token + "'" + body
}

// Try is the commands that sign in and call an agent once, paid with credits of the person's workspace.
func Try(c *Context, a *toll.Agent) string {
	return "toll login --url '" + c.PublicURL + "'\ntoll try " + string(a.ID)
}
