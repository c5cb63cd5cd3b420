package page

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
)

// Snippet is code to copy, under its name, or steps in their order, each with code.
type Snippet struct {
	Name, Text string
	Steps      []Snippet
}

// Snippets are the ways to call an agent, with its address and ids. plan pays, "" the first one of the agent. A person gets a command with
// an access token first.
func Snippets(c *Context, a *toll.Agent, plan toll.PlanID) []Snippet {
	verb, address := snippetEndpoint(a)
	host := "agent.example.com"
	if plan == "" && len(a.Plans) > 0 {
		plan = a.Plans[0].PlanID
	}
	plan = cmp.Or(plan, "PLAN")
	if u, err := url.Parse(address); err == nil {
		host = u.Host
	}
	settings, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"toll": map[string]any{ // cannot fail
		"command": "toll", "args": []string{"gateway", "mcp"}, "env": map[string]string{"TOLL_URL": c.PublicURL},
	}}}, "", "  ")
	with := strings.NewReplacer(
		"$SERVICE", c.PublicURL, "$URL", address, "$VERB", verb, "$PLAN", string(plan), "$HOST", host,
	).Replace
	send, headers := ` \
  -H 'content-type: application/json' -d '{}'`, `{
    "payment-signature": accessToken,
    "content-type": "application/json",
  },
  body: "{}",`
	if !hasBody(verb) {
		send, headers = "", `{ "payment-signature": accessToken },`
	}
	var byPerson []Snippet
	if c.Person != nil && c.Person.User != nil {
		at := c.PublicURL + c.To("tokens", "new") + "?plan=" + string(plan)
		byPerson = []Snippet{{Name: "curl", Text: "# Create an access token at " + at + "\n" + CallOnce(a, "TOKEN")}}
	}
	name := map[bool]string{false: "curl", true: "curl, with an API key"}[byPerson != nil]
	return append(byPerson, []Snippet{
		{Name: name, Text: with(`# Use the API key of a subscriber to the plan.
token=$(curl -s $SERVICE/api/v1/x402/permissions \
  -H "Authorization: Bearer $TOLL_API_KEY" \
  -H 'content-type: application/json' \
  -d '{"planId":"$PLAN"}' |
  jq -r .accessToken)
curl -i -X $VERB '$URL' \
  -H "payment-signature: $token"`) + send},
		{Name: "Go", Text: installed("// ", c.SDK.Install("go")) + with(`c := client.New(os.Getenv("TOLL_API_KEY"), client.WithURL("$SERVICE"))
purse := client.NewPurse(client.Limits{
	Hosts: []string{"$HOST"}, CreditsPerCall: 5, Credits: 100,
})
payer := c.Payer("$PLAN")
h := &http.Client{Transport: client.NewTransport(purse, payer)}
res, err := h.Post("$URL", "application/json", strings.NewReader("{}"))`)},
		{Name: "TypeScript", Text: installed("// ", c.SDK.Install("typescript")) + with(`import { Toll } from "@tollhq/toll";

const toll = new Toll({ url: "$SERVICE" }); // TOLL_API_KEY
const { accessToken } = await toll.tokens.create({
  planId: "$PLAN",
});
const res = await fetch("$URL", {
  method: "$VERB",
  headers: `) + headers + `
});`},
		{Name: "Python", Text: installed("# ", c.SDK.Install("python")) + with(`import httpx
from toll import Toll
from toll.http import Budget, HTTPXPayer, Limits

budget = Budget(Limits(hosts=["$HOST"], credits_per_call=5, credits=100))
payer = HTTPXPayer(Toll(url="$SERVICE"), budget)  # TOLL_API_KEY
with httpx.Client(transport=payer) as http:
    print(http.request("$VERB", "$URL", json={}).text)`)},
		{Name: "MCP settings", Text: string(settings)},
	}...)
}

// hasBody reports whether requests with a method have a body.
func hasBody(verb string) bool { return verb != "GET" && verb != "HEAD" }

// installed returns commands as a comment above code.
func installed(mark, commands string) string {
	return mark + strings.ReplaceAll(commands, "\n", "\n"+mark) + "\n"
}
