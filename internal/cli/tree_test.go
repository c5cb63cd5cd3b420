package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll/internal/must"
)

// deployed are the names of deployed command lines, and what they are here (wire contract, section 24).
var deployed = map[string]string{
	"plans get-plans": "plans list", "plans get-plan": "plans get", "plans get-plan-balance": "plans balance",
	"plans get-agents-associated-to-a-plan": "plans agents", "plans register-plan": "plans create",
	"plans register-credits-plan": "plans create", "plans register-time-plan": "plans create",
	"plans register-credits-trial-plan": "plans create", "plans register-time-trial-plan": "plans create",
	"plans order-plan": "plans order", "plans order-fiat-plan": "plans checkout",
	"plans mint-plan-credits": "plans mint", "plans mint-plan-expirable": "plans mint",
	"plans get-free-price-config": "price free", "plans get-fiat-price-config": "price fiat", "plans get-crypto-price-config": "price crypto",
	"plans get-native-token-price-config": "price native", "plans get-erc20-price-config": "price erc20",
	"plans get-eurc-price-config": "price eurc", "plans get-pay-as-you-go-price-config": "price payg",
	"plans get-fixed-credits-config": "credits fixed", "plans get-dynamic-credits-config": "credits dynamic",
	"plans get-pay-as-you-go-credits-config": "credits payg", "plans get-expirable-duration-config": "credits expirable",
	"plans get-non-expirable-duration-config": "credits non-expirable",
	"plans set-redemption-type":               "credits redemption-type", "plans set-onchain-mirror": "credits mirror",
	"agents get-agents": "agents list", "agents get-agent": "agents get", "agents get-agent-plans": "agents plans",
	"agents register-agent": "agents create", "agents register-agent-and-plan": "agents create-with-plan",
	"agents update-agent-metadata": "agents update", "agents add-plan-to-agent": "agents attach", "agents remove-plan-from-agent": "agents detach",
	"x402token get-x402-access-token": "tokens create", "facilitator verify-permissions": "x402 verify", "facilitator settle-permissions": "x402 settle",
	"cards delegate": "delegations create", "delegation list-payment-methods": "cards list",
}

func treeOf(t *testing.T) *cobra.Command {
	t.Helper()
	return (&app{console: console{out: os.Stdout, err: os.Stderr, getenv: func(string) string { return "" }}}).root()
}

func flagNames(c *cobra.Command) []string {
	var names []string
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		required := ""
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			required = "*"
		}
		names = append(names, f.Name+required)
	})
	return names
}

func TestDeployedNames(t *testing.T) {
	root := treeOf(t)
	find := func(path string) *cobra.Command {
		c, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			t.Fatalf("there is no toll %s", path)
		}
		return c
	}
	for name, own := range deployed {
		alias, c := find(name), find(own)
		if alias != c && !alias.Hidden && !alias.Parent().Hidden {
			t.Errorf("toll %s is shown by help", name)
		}
		if c.Hidden || c.Parent().Hidden {
			t.Errorf("toll %s is not shown by help", own)
		}
		if a, b := flagNames(alias), flagNames(c); !slices.Equal(a, b) {
			t.Errorf("toll %s has the flags %q, toll %s has %q", name, a, own, b)
		}
		_, got, _ := strings.Cut(alias.Use, " ")
		_, want, _ := strings.Cut(c.Use, " ")
		if got != want {
			t.Errorf("toll %s takes %q, toll %s takes %q", name, got, own, want)
		}
	}
}

// leaves are the commands that do something.
func leaves(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range c.Commands() {
		if below := leaves(sub); len(below) > 0 {
			all = append(all, below...)
		} else if sub.Name() != "help" {
			all = append(all, sub)
		}
	}
	return all
}

// TestScripts_Cover looks for a run that succeeds and one that fails of every command, deployed names excepted from the
// second. What cannot be had says so here.
func TestScripts_Cover(t *testing.T) {
	cannotFail := []string{"version", "credits payg", "credits non-expirable"}
	// Cards are enrolled on a page of their processor, and people sign up on one: TestRecovery in internal/server.
	// A payment without an order comes of a restore: TestCardsAfterRestore there.
	noSuccess := []string{"cards revoke", "users recover", "orders resolve"}
	elsewhere := []string{"login", "logout"} // with a browser: login_test.go
	var scripts strings.Builder
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		b := must.Get(os.ReadFile(f))(t)
		scripts.Write(b)
	}
	for _, c := range leaves(treeOf(t)) {
		path := strings.TrimPrefix(c.CommandPath(), "toll ")
		if slices.Contains(elsewhere, path) {
			continue
		}
		end := `( |$)`
		if !regexp.MustCompile(`(?m)^(\[\S+\] )?exec .*\btoll `+path+end).MatchString(scripts.String()) &&
			!slices.Contains(noSuccess, path) {
			t.Errorf("no script runs toll %s with success", path)
		}
		if _, isAlias := deployed[path]; isAlias || slices.Contains(cannotFail, path) {
			continue
		}
		if !regexp.MustCompile(`(?m)^exits [1-7] toll ` + path + end).MatchString(scripts.String()) {
			t.Errorf("no script runs toll %s with a failure", path)
		}
	}
}

// TestHelp_Shown: every command and every flag says what it is for, and no example is of a command that is not there.
func TestHelp_Shown(t *testing.T) {
	root := treeOf(t)
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s is in no group of help", c.CommandPath())
		}
	}
	for _, c := range leaves(root) {
		if c.Short == "" {
			t.Errorf("%s has no text", c.CommandPath())
		}
		if c.Example == "" && c.Parent().Name() != "completion" && !c.Hidden && !c.Parent().Hidden {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no text", c.CommandPath(), f.Name)
			}
		})
		for line := range strings.SplitSeq(c.Example, "\n") {
			line = strings.TrimPrefix(line, "  ")
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "toll" {
				continue
			}
			own := c.CommandPath()
			if name, isAlias := deployed[strings.TrimPrefix(own, "toll ")]; isAlias {
				own = "toll " + name
			}
			if !strings.HasPrefix(line, own) {
				t.Errorf("%s has an example of another command: %s", c.CommandPath(), line)
			}
			for _, w := range words {
				if w == "--" {
					break // what follows is another program's
				}
				name, isFlag := strings.CutPrefix(w, "--")
				name, _, _ = strings.Cut(name, "=")
				if isFlag && c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s has an example with --%s, which it does not have", c.CommandPath(), name)
				}
			}
		}
	}
}

// TestDocs_GatewayFlags: docs/CHAT.md lists the flags of toll gateway serve, and no others.
func TestDocs_GatewayFlags(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/CHAT.md"))(t)
	_, table, found := strings.Cut(string(page), "| Flag of `toll gateway serve` |")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("docs/CHAT.md has no table of flags")
	}
	var got, want []string
	for row := range strings.SplitSeq(table, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, m := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(first, -1) {
			got = append(got, m[1])
		}
	}
	c, _, err := treeOf(t).Find([]string{"gateway", "serve"})
	must.Do(t, err)
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			want = append(want, f.Name)
		}
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/CHAT.md lists %q, the command has %q", got, want)
	}
}
