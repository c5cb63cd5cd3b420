package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
)

// addCommands adds the commands to the root, in the groups of help, and those that help leaves out.
func addCommands(a *app, root *cobra.Command) {
	con := &a.console
	topic := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	topic("start", "Start:", append(signInCommands(a), devCommand(a), serveCommand(a), sessionCommand(a), credentialsCommand(a),
		membersCommand(a), invitationsCommand(a), configCommand(con), versionCommand(con),
		a.get("versions", "Show the API versions of the service and the version that applies to you", "/meta/versions"))...)
	topic("sell", "Sell:", plansCommand(a), agentsCommand(a), priceCommand(a), creditsCommand(a), x402Command(a), gateCommand(a), tryCommand(a), mcpCommand(a),
		gatewayCommand(a), subscribersCommand(a), payoutsCommand(con), webhooksCommand(a), listenCommand(a), triggerCommand(con), requestsCommand(a), keysCommand(a), usersCommand(con))
	topic("buy", "Buy:", callCommand(a), tokensCommand(a), delegationsCommand(a), cardsCommand(a), walletCommand(a), holdingsCommand(a), faucetCommand(a), paymentsCommand(a))
	topic("watch", "Watch:", ordersCommand(a), eventsCommand(a), auditLogCommand(a), searchCommand(a), usageCommand(a), revenueCommand(a), refusalsCommand(a), proofCommand(a))
	topic("run", "Run a service:", doctorCommand(a), auditCommand(con), rollupsCommand(con), exportCommand(con), backupCommand(con), restoreCommand(con),
		recoveryCommand(con), migrateCommand(a), clockCommand(a), cardDoubleCommand(a), manCommand())
	root.AddCommand(deployedCommands(a)...)
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
