package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	helpWidth  = 100 // of text, where the terminal does not say
	helpIndent = "  "
)

// help writes the help of a command. Examples are for pasting, so they are never cut, and a text is shown as it is written.
func (a *app) help(c *cobra.Command, _ []string) {
	// A group runs no argument of its own, so that a word there is a command that does not exist.
	if words := c.Flags().Args(); len(words) > 0 && len(visible(c)) > 0 {
		a.badHelp = unknownCommand(c, words[0])
		return
	}
	h := helpPage{width: helpWidth, colour: isTerminal(a.out) && a.mayColour()}
	if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n >= 40 {
		h.width = min(n, 120)
	}
	h.command(c)
	_, _ = io.WriteString(a.out, h.text.String()) // nobody hears of help that cannot be written
}

func (a *app) helpCommand() *cobra.Command {
	c := &cobra.Command{Use: "help [COMMAND]", Short: "Show the help of a command", Hidden: true, RunE: func(cmd *cobra.Command, words []string) error {
		found, rest, err := cmd.Root().Find(words)
		if err != nil || len(rest) > 0 {
			return usagef("there is no command %q", strings.Join(words, " "))
		}
		a.help(found, nil)
		return nil
	}}
	c.Annotations = map[string]string{annotationNoProfile: "yes"}
	return c
}

type helpPage struct {
	text   strings.Builder
	width  int
	colour bool
}

func (h *helpPage) title(text string) {
	if h.colour {
		text = lipgloss.NewStyle().Bold(true).Render(text)
	}
	fmt.Fprintf(&h.text, "\n%s\n", text)
}

func (h *helpPage) command(c *cobra.Command) {
	for paragraph := range strings.SplitSeq(first(c.Long, c.Short), "\n\n") {
		h.paragraph(strings.ReplaceAll(paragraph, "\n", " "))
	}
	h.title("Usage")
	fmt.Fprintln(&h.text, helpIndent+usageLine(c))
	if c.Example != "" {
		h.title("Examples")
		for line := range strings.SplitSeq(strings.Trim(c.Example, "\n"), "\n") {
			fmt.Fprintln(&h.text, strings.TrimRight(helpIndent+line, " "))
		}
	}
	if subs := visible(c); len(subs) > 0 {
		h.title("Commands")
		var rows [][2]string
		for _, sub := range subs {
			rows = append(rows, [2]string{sub.Use, sub.Short})
		}
		h.rows(rows)
	}
	c.InitDefaultHelpFlag()
	h.flags("Flags", c.LocalFlags())
	h.flags("Flags of every command", c.InheritedFlags())
}

func (h *helpPage) paragraph(text string) {
	if h.text.Len() > 0 {
		h.text.WriteByte('\n')
	}
	for _, line := range wrap(text, h.width) {
		fmt.Fprintln(&h.text, line)
	}
}

// visible are the commands below that help shows.
func visible(c *cobra.Command) []*cobra.Command {
	var subs []*cobra.Command
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			subs = append(subs, sub)
		}
	}
	return subs
}

func usageLine(c *cobra.Command) string {
	line := c.CommandPath()
	if _, rest, ok := strings.Cut(c.Use, " "); ok {
		line += " " + rest
	}
	if len(visible(c)) > 0 {
		line += " COMMAND"
	}
	return line + " [flags]"
}

func (h *helpPage) flags(title string, flags *pflag.FlagSet) {
	rows := flagRows(flags)
	if len(rows) == 0 {
		return
	}
	h.title(title)
	h.rows(rows)
}

// flagRows are the flags that help shows, with what they are for.
func flagRows(flags *pflag.FlagSet) [][2]string {
	var rows [][2]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "    --" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", --" + f.Name
		}
		usage := f.Usage
		switch f.DefValue {
		case "", "0", "0s", "false", "[]":
		default:
			if !strings.Contains(usage, "default") {
				usage += ", default " + f.DefValue
			}
		}
		rows = append(rows, [2]string{name, usage})
	})
	return rows
}

// rows writes names and what they mean in two columns, or below each other when there is no room.
func (h *helpPage) rows(rows [][2]string) {
	var names int
	for _, r := range rows {
		names = max(names, lipgloss.Width(r[0]))
	}
	gap := len(helpIndent) + names + 2
	for _, r := range rows {
		lines := wrap(r[1], max(h.width-gap, 24))
		if len(lines) == 0 {
			lines = []string{""}
		}
		for i, line := range lines {
			name := strings.Repeat(" ", names)
			if i == 0 {
				name = r[0] + strings.Repeat(" ", names-lipgloss.Width(r[0]))
			}
			fmt.Fprintln(&h.text, strings.TrimRight(helpIndent+name+"  "+line, " "))
		}
	}
}

// wrap breaks a text between words into lines of at most this many columns. A longer word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	var line string
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case lipgloss.Width(line)+1+lipgloss.Width(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
