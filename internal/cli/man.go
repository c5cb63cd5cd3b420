package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) manCommand() *cobra.Command {
	c := command("man DIR", "Write the manual pages", func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		n, err := writeManual(args[0], cmd.Root())
		if err == nil {
			a.say("", "%d pages in %s", n, args[0])
		}
		return err
	})
	c.Long = "Write the manual pages, one for each command, into a directory, which is made when it is missing."
	c.Example = "toll man /usr/local/share/man/man1"
	c.Annotations = map[string]string{annotationNoProfile: "yes"}
	return c
}

func writeManual(dir string, c *cobra.Command) (int, error) {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manualPage(c)), 0o644); err != nil {
		return 0, err
	}
	n := 1
	var errs []error
	for _, sub := range visible(c) {
		below, err := writeManual(dir, sub)
		n += below
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// manualPage returns the page of one command in the man macros of roff.
func manualPage(c *cobra.Command) string {
	var b strings.Builder
	dashed := strings.ReplaceAll(c.CommandPath(), " ", "-")
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	definition := func(name, text string) { fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(name), roff(text)) }

	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Toll\"\n", strings.ToUpper(dashed), "toll "+release())
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(dashed), roff(c.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, "%s\n", roff(usageLine(c)))
	section("DESCRIPTION")
	for i, paragraph := range strings.Split(first(c.Long, c.Short), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		fmt.Fprintf(&b, "%s\n", roff(paragraph))
	}
	if subs := visible(c); len(subs) > 0 {
		section("COMMANDS")
		for _, sub := range subs {
			definition(sub.Use, sub.Short)
		}
	}
	c.InitDefaultHelpFlag()
	for _, flags := range []struct {
		title string
		rows  [][2]string
	}{{"OPTIONS", flagRows(c.LocalFlags())}, {"OPTIONS OF EVERY COMMAND", flagRows(c.InheritedFlags())}} {
		if len(flags.rows) == 0 {
			continue
		}
		section(flags.title)
		for _, r := range flags.rows {
			definition(strings.TrimSpace(r[0]), r[1])
		}
	}
	if c.Example != "" {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(c.Example))
	}
	if c.HasParent() {
		section("SEE ALSO")
		fmt.Fprintf(&b, ".BR %s (1)\n", roff(strings.ReplaceAll(c.Parent().CommandPath(), " ", "-")))
	}
	return b.String()
}

// roff escapes a text: no line of it may begin a request, and a dash is one that can be copied.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
