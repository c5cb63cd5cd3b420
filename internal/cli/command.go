package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// usageError is a command line that cannot be carried out as it is written.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// flagError is a flag whose value is wrong.
func flagError(flag string, err error) error { return usageError{fmt.Errorf("--%s: %w", flag, err)} }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// group is a command that only holds others.
func group(use, short, long string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long}
	c.AddCommand(sub...)
	return c
}

// singulars lets each command in the plural have its singular as an alias: toll plan is toll plans.
func singulars(root *cobra.Command) {
	for _, c := range root.Commands() {
		one, isPlural := strings.CutSuffix(c.Name(), "s")
		if found, _, err := root.Find([]string{one}); isPlural && (err != nil || found == root) {
			c.Aliases = append(c.Aliases, one)
		}
	}
}

// flagFault adds the flags that were likely meant to the error about an unknown flag.
func flagFault(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	near := nearest(unknown.GetSpecifiedName(), known)
	if len(near) == 0 {
		return err
	}
	return fmt.Errorf("%w. Did you mean --%s?", err, strings.Join(near, " or --"))
}

// finish adds examples, and makes an unknown command in a group an error.
func finish(c *cobra.Command) {
	if c.Example == "" && c.HasParent() && !c.HasSubCommands() && c.Parent().Name() != "completion" && !c.Hidden && !c.Parent().Hidden {
		c.Example = example(c)
	}
	if c.Example != "" {
		c.Example = "  " + strings.ReplaceAll(c.Example, "\n", "\n  ")
	}
	if c.Name() == "completion" {
		c.Annotations = withoutProfile
	}
	if _, own := c.Annotations[annotationOwnArgs]; !own && c.HasParent() && c.HasSubCommands() { // cobra looks after the root alone
		c.SuggestionsMinimumDistance = 2
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			err := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err += "; did you mean " + strings.Join(near, ", ") + "?"
			}
			return errors.New(err)
		}
		if c.RunE == nil {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

// help prints the help of a command, in lines of at most 100 columns that are broken at spaces alone: names of flags stay whole. Its text
// is wrapped here, as to wrap the texts of all commands takes milliseconds.
func help(c *cobra.Command, _ []string) {
	const whole = "\u2011" // a hyphen at which no line ends
	text := regexp.MustCompile(`([^\n])\n([^\n])`).ReplaceAllString(strings.TrimSpace(cmp.Or(c.Long, c.Short)), "$1 $2")
	text = strings.ReplaceAll(lipgloss.Wrap(strings.ReplaceAll(text, "-", whole), 100, ""), whole, "-")
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", text, c.UsageString())
}

func needsProfile(c *cobra.Command) bool {
	for ; c != nil; c = c.Parent() {
		if c.Annotations[annotationNoProfile] != "" {
			return false
		}
	}
	return true
}

// helpCommand is cobra's help command, with an exit code for unknown commands.
func helpCommand() *cobra.Command {
	c := &cobra.Command{Use: "help [COMMAND]", Short: "Show the help of a command", Annotations: withoutProfile}
	c.RunE = func(cmd *cobra.Command, words []string) error {
		found, rest, err := cmd.Root().Find(words)
		if err != nil || len(rest) > 0 {
			return usagef("there is no command %q", strings.Join(words, " "))
		}
		return found.Help()
	}
	return c
}

func manCommand() *cobra.Command {
	c := command("man DIR", "Write the manual pages", func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		cmd.Root().DisableAutoGenTag = true
		return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Source: "toll " + release(), Manual: "Toll"}, args[0])
	})
	c.Long = "Write the manual pages, one for each command, into a directory, which is created if it does not exist."
	c.Example = "toll man /usr/local/share/man/man1"
	c.Annotations = withoutProfile
	return c
}

// args checks the arguments of a command against the words in its use line: PLAN is required, [PLAN] is not.
func args(cmd *cobra.Command, got []string) error {
	var least, most int
	for _, word := range strings.Fields(cmd.Use)[1:] {
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
	}
	switch {
	case len(got) < least:
		return usagef("%s needs %s", cmd.CommandPath(), strings.Join(strings.Fields(cmd.Use)[1+len(got):1+least], " "))
	case len(got) > most:
		return usagef("%s does not accept the argument %q", cmd.CommandPath(), got[most])
	}
	return nil
}

// command makes a command whose arguments are those of its use line.
func command(use, short string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: run}
}

// hidden makes a command under a deployed name: it works like the one that is shown, and is left out of help.
func hidden(use string, c *cobra.Command) *cobra.Command {
	_, rest, _ := strings.Cut(c.Use, " ")
	c.Use = strings.TrimSpace(use + " " + rest)
	c.Hidden = true
	return c
}

const (
	annotationEnv = "toll-env"
	// annotationSecret marks flags that only their variable sets: every process of a machine can read arguments.
	annotationSecret = "toll-secret"
	// annotationNoProfile marks commands that call no service, which a broken configuration file must not stop.
	annotationNoProfile = "toll-no-profile"
	// annotationOwnArgs marks a group that checks its own arguments.
	annotationOwnArgs = "toll-own-args"
)

// withoutProfile marks a command, and those below it, with [annotationNoProfile].
var withoutProfile = map[string]string{annotationNoProfile: "yes"}

func requiredFlags(c *cobra.Command) (all []*pflag.Flag) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			all = append(all, f)
		}
	})
	return all
}

// require marks flags that must be given.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined next to this call
		}
		cmd.Flags().Lookup(name).Usage += " (required)"
	}
}

// env lets variables stand in for flags: TOLL_ and the name of the flag. Their values are not shown by help: they may be secrets.
func env(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		variable := "TOLL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		annotate(flags, name, annotationEnv, variable)
		flags.Lookup(name).Usage += " (" + variable + ")"
	}
}

// addWithEnv adds flags for all of which variables can stand in.
func addWithEnv(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { env(flags, f.Name) })
	cmd.Flags().AddFlagSet(flags)
}

// secret takes a value from an environment variable alone.
func secret(cmd *cobra.Command, into *string, name string) {
	cmd.Flags().StringVar(into, name, "", "")
	ofEnvironment(cmd, name)
}

// ofEnvironment has a flag be set by its environment variable alone.
func ofEnvironment(cmd *cobra.Command, name string) {
	env(cmd.Flags(), name)
	annotate(cmd.Flags(), name, annotationSecret, "yes")
	cmd.Flags().Lookup(name).Hidden = true
}

func annotate(flags *pflag.FlagSet, name, annotation, value string) {
	if err := flags.SetAnnotation(name, annotation, []string{value}); err != nil {
		panic(err) // the flag is defined next to this call
	}
}

// fromEnvironment fills flags that were not given from their variables.
func (a *app) fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		variables := f.Annotations[annotationEnv]
		if f.Changed && len(f.Annotations[annotationSecret]) > 0 {
			err = usagef("--%s can only be set with %s, because other users can see command-line arguments", f.Name, variables[0])
		}
		if len(variables) == 0 || f.Changed || err != nil {
			return
		}
		if v := cmp.Or(a.getenv(variables[0]), a.credential(f.Name)); v != "" {
			if e := f.Value.Set(v); e != nil {
				err = usagef("%s does not contain a valid value for --%s: %w", variables[0], f.Name, e)
			}
		}
	})
	return err
}
