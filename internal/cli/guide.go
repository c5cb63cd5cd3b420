package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
)

// topics are the groups of help, in their order, with the commands in each.
var topics = []struct{ id, title, commands string }{
	{"start", "Start:", "dev serve login logout whoami session credentials members invitations config versions version"},
	{"sell", "Sell:", "plans agents price credits x402 gate mcp gateway subscribers payouts webhooks requests keys users"},
	{"buy", "Buy:", "call tokens delegations cards wallet holdings faucet payments"},
	{"watch", "Watch:", "orders events audit-log search usage revenue refusals settlements proof"},
	{"run", "Run a service:", "doctor audit rollups export backup restore recovery migrate clock card-double completion man help"},
}

// sorted puts the commands of the root into the groups of help.
func sorted(root *cobra.Command) {
	for _, t := range topics {
		root.AddGroup(&cobra.Group{ID: t.id, Title: t.title})
		for name := range strings.FieldsSeq(t.commands) {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = t.id
				}
			}
		}
	}
	root.SetHelpCommandGroupID("run")
	root.SetCompletionCommandGroupID("run")
}

// samples stand in examples for the words of use lines and the kinds of flags.
var samples = map[string]string{
	"PLAN": "Basic", "AGENT": "Ask", "ORDER": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b10", "HASH": "0x6c3b18ddf7", "ID": "0x6c3b18ddf7",
	"TOKEN": "eyJhbGciOi…", "REQUEST": "req_01ab", "URL": "https://agent.example.com/ask", "TEXT": "basic", "DIR": "./pages",
	"KEY": "environment", "VALUE": "sandbox", "PROFILE": "default", "ADDRESS": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
	"FILE": "toll.backup", "PREFIX": "acme", "WEBHOOK": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b10", "DELIVERY": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b11",
	"LOGIN": "alice", "CREDENTIAL": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b14", "USER": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b13", "WORKSPACE": "0x70997970c51812dc3a010c7d01b50e0d17dc79c8", "LINK": "'https://pay.example.com/join?link=…'",
	"EVENT": "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b12", "TRANSACTION": "0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634",

	"number": "100", "time": "24h", "duration": "1h", "id": "Basic", "plan": "Basic", "agent": "Ask", "json": "'{}'", "url": "https://agent.example.com",
	"list": "read,sell", "address": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "string": "text", "text": "text", "word": "text",
}

// example is the shortest command line of a command that has no example of its own.
func example(c *cobra.Command) string {
	line := []string{c.CommandPath()}
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "[") {
			continue
		}
		if s, ok := samples[word]; ok {
			word = s
		}
		line = append(line, word)
	}
	for _, f := range requiredFlags(c) {
		line = append(line, "--"+f.Name, cmp.Or(samples[f.Value.Type()], strings.Split(f.Value.Type(), "|")[0]))
	}
	return strings.Join(line, " ")
}
