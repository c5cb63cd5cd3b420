package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plainVariables are the variables that no flag declares.
var plainVariables = []string{
	"TOLL_API_KEY", "TOLL_CONFIG", "TOLL_ENVIRONMENT", "TOLL_OUTPUT", "TOLL_PROFILE", "TOLL_SESSION", "TOLL_URL", "TOLL_WALLET_KEY", "TOLL_WORKSPACE",
}

// otherVariables matches variables that are not settings: those of tests, SDKs, packages and MCP hosts, which may share an environment with
// a service, and the links that Kubernetes adds for services named toll.
var otherVariables = regexp.MustCompile(`^TOLL_((AGENT|BIN|GATEWAY_MCP_TOKEN|LOG|PLAN|VERSION)=|TEST_\w+=|(\w+_)?SERVICE_(HOST=|PORT(_\w+)?=\d)|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?=(tcp|udp|sctp|[\d.:a-f]+$))`)

// processes are the commands that run for long and take settings from the environment. They refuse a variable that no command knows:
// a service with a misspelled setting would run with its default.
var processes = []string{"toll serve", "toll migrate", "toll gate", "toll mcp", "toll gateway"}

var listenAddress = regexp.MustCompile(`^[\w.\[\]:-]*:\d+$`)

// checkVariables refuses a TOLL_ variable that no command knows, for long-running commands. Variables of other commands pass, because
// services and jobs share their settings.
func (a *app) checkVariables(cmd *cobra.Command) error {
	path := strings.Fields(cmd.CommandPath())
	if len(path) < 2 || !slices.Contains(processes, strings.Join(path[:2], " ")) {
		return nil
	}
	known := slices.Clone(plainVariables)
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Annotations[annotationEnv]...) })
		for _, child := range c.Commands() {
			collect(child)
		}
	}
	collect(cmd.Root())
	slices.Sort(known)
	known = slices.Compact(known)
	for _, entry := range a.environ {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, "TOLL_") || slices.Contains(known, name) || otherVariables.MatchString(entry) {
			continue
		}
		hint := "unset it"
		if near := nearest(name, known); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, ", ") + "?"
		}
		return usagef("%s is not a setting: %s", name, hint)
	}
	return nil
}

// credentials are the files that systemd passes to a service, by the flag that each one stands for.
var credentials = map[string]string{
	"master-key-file": "master.key", "other-master-key-file": "other-master.key", "s3-key-file": "s3.key",
	"stripe-secret-key-file": "stripe.key", "stripe-webhook-secret-file": "stripe-webhook.key",
}

// credential returns the path of the credential for a flag, or "". systemd puts "toll_" before the names of files that it loads with
// LoadCredential=toll:DIRECTORY (systemd.exec(5)).
func (con *console) credential(flag string) string {
	dir, name := con.getenv("CREDENTIALS_DIRECTORY"), credentials[flag]
	if dir == "" || name == "" {
		return ""
	}
	for _, prefix := range []string{"", "toll_"} {
		path := filepath.Join(dir, prefix+name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// settingsOf lists the flags of a command whose value is not their default, from arguments or variables, for the log. It shows secrets
// as "(set)", and only scheme and host of addresses, whose user, path and query may hold secrets.
func settingsOf(cmd *cobra.Command) []any {
	var all []any
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if value == f.DefValue {
			return
		}
		if len(f.Annotations[annotationSecret]) > 0 {
			value = "(set)"
		}
		parts := strings.Split(value, ",")
		for i, part := range parts {
			u, err := url.Parse(strings.TrimSpace(part))
			switch {
			case err == nil && u.Host != "":
				parts[i] = u.Scheme + "://" + u.Host
			case f.Name != "database" && listenAddress.MatchString(part):
			case f.Name == "database" || err != nil || u.Scheme != "":
				parts[i] = "(hidden)" // a misspelled address
			}
		}
		all = append(all, f.Name, strings.Join(parts, ","))
	})
	return all
}
