package page

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
)

// Snippet is code to copy, under its name.
type Snippet struct{ Name, Text string }

// Snippets are the ways to call an agent, with its address and ids. plan pays, "" the first one of the agent.
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
	return []Snippet{
		{"curl", with(`# Use the API key of a subscriber to the plan.
token=$(curl -s $SERVICE/api/v1/x402/permissions \
  -H "Authorization: Bearer $TOLL_API_KEY" \
  -H 'content-type: application/json' \
  -d '{"planId":"$PLAN"}' |
  jq -r .accessToken)
curl -i -X $VERB '$URL' \
  -H "payment-signature: $token" -d '{}'`)},
		{"Go", installed("// ", c.SDK.Install("go")) + with(`c := client.New(os.Getenv("TOLL_API_KEY"), client.WithURL("$SERVICE"))
purse := client.NewPurse(client.Limits{
	Hosts: []string{"$HOST"}, CreditsPerCall: 5, Credits: 100,
})
payer := c.Payer("$PLAN")
h := &http.Client{Transport: client.NewTransport(purse, payer)}
res, err := h.Post("$URL", "application/json", strings.NewReader("{}"))`)},
		{"TypeScript", installed("// ", c.SDK.Install("typescript")) + with(`import { Toll } from "@tollhq/toll";

const toll = new Toll({ url: "$SERVICE" }); // TOLL_API_KEY
const { accessToken } = await toll.tokens.create({
  planId: "$PLAN",
});
const res = await fetch("$URL", {
  method: "$VERB",
  headers: { "payment-signature": accessToken },
  body: "{}",
});`)},
		{"Python", installed("# ", c.SDK.Install("python")) + with(`import httpx
from toll import Toll
from toll.http import Budget, HTTPXPayer, Limits

budget = Budget(Limits(hosts=["$HOST"], credits_per_call=5, credits=100))
payer = HTTPXPayer(Toll(url="$SERVICE"), budget)  # TOLL_API_KEY
with httpx.Client(transport=payer) as http:
    print(http.request("$VERB", "$URL", json={}).text)`)},
		{"MCP settings", string(settings)},
	}
}

// installed returns commands as a comment above code.
func installed(mark, commands string) string {
	return mark + strings.ReplaceAll(commands, "\n", "\n"+mark) + "\n"
}
