// Package cli is the command line. Commands talk to the service through the public client, but for serve, dev and the
// administration of a database on this machine.
//
// Data goes to stdout and everything else to stderr. Settings come from flags, else the environment, else the
// configuration file. Exit codes are those of [exitCode].
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/x402"
)

// console is what a run reads and writes: its streams, its environment and flags, and the settings made of them.
type console struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	environ  []string // of the process, as NAME=value
	flags    globalFlags
	set      settings
}

// app is one run of the program.
type app struct {
	console
	unknown []string                                   // members of JSON arguments that the service does not know
	started bool                                       // the command line was understood
	ids     map[string]string                          // that hints name, by the words that stand for them
	pause   func(context.Context, time.Duration) error // nil: wait that long
	flushes []func()                                   // of the logs, at the end
}

type globalFlags struct {
	profile, output, url, keyFile string
	quiet, verbose, yes, noColor  bool
	namespace                     x402.Namespace // zero: not given
}

// Main runs the command line of this process and returns its exit code.
func Main(args []string) int {
	// The first signal ends the work in order, and Ctrl-C after it the process. A second SIGTERM does not, until the process is over:
	// timeout(1) sends one to its child, and one to the group in which the child is.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	return run(ctx, args, &app{console: console{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, environ: os.Environ()}})
}

func run(ctx context.Context, args []string, a *app) int { return a.execute(ctx, a.root(), args) }

func (a *app) execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	for _, flush := range a.flushes {
		flush()
	}
	if err != nil && !a.started {
		err = usageError{err}
	}
	if err == context.Canceled { // around it stands what was interrupted
		err = errors.New("interrupted")
	}
	if err != nil {
		a.report(err)
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := group("toll", "Metering and payments for AI agents and services", "")
	root.Long = `Metering and payments for AI agents and services.

Data goes to stdout, and everything else to stderr. In csv, an apostrophe precedes each cell that a spreadsheet would read as a formula
(a cell that starts with = + - @, a tab, or a carriage return, and is not a number). Flags override TOLL_API_KEY, TOLL_URL,
TOLL_ENVIRONMENT, TOLL_PROFILE, and TOLL_OUTPUT. These variables override the configuration file, whose path you can set with TOLL_CONFIG.

Exit codes: 0 done, 1 failed, 2 usage, 3 not signed in, 4 payment required, 5 not found, 6 conflict, 7 try again.`
	f := root.PersistentFlags()
	f.StringVarP(&a.flags.profile, "profile", "p", "", "profile in the configuration file")
	f.StringVarP(&a.flags.output, "output", "o", "", "table (default), json, ndjson, csv, or quiet")
	f.StringVarP(&a.flags.output, "format", "f", "", "same as --output")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "print only the id of a record, a new API key or access token, and the response of a call")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "print more details to stderr")
	f.StringVar(&a.flags.url, "url", "", "address of the service")
	f.StringVar(&a.flags.keyFile, "api-key-file", "", "file with the API key; other users must not have access to the file")
	f.Var(&a.flags.namespace, "namespace", "brand names that the service uses in schemes, headers, and paths, separated by commas, such as acme,Acme,acme")
	env(f, "namespace")
	f.BoolVar(&a.flags.yes, "yes", false, "skip confirmations")
	f.BoolVar(&a.flags.noColor, "no-color", false, "disable colors")
	root.Version = release()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetHelpCommand(helpCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages", "FlagUsagesWrapped 100"))
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(flagFault)
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
			return nil // what completes a command line needs no settings
		}
		if err := errors.Join(a.checkVariables(cmd), a.fromEnvironment(cmd)); err != nil {
			return err
		}
		if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return usageError{err}
		}
		if checkSetting(settingURL, a.flags.url) != nil {
			return usagef("--url: %q is not an absolute http or https URL", a.flags.url)
		}
		a.set.names = namespaceOf(cmd)
		a.aboutCommand(cmd, args)
		if err := a.loadOutput(); err != nil || !needsProfile(cmd) {
			return err
		}
		return a.loadProfile()
	}
	addCommands(a, root)
	for _, name := range []string{"output", "format"} {
		complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
		if err := root.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flags are defined above
		}
	}
	if err := root.RegisterFlagCompletionFunc("profile", completeProfile(&a.console)); err != nil {
		panic(err) // the flag is defined above
	}
	root.InitDefaultCompletionCmd()
	singulars(root)
	finish(root)
	return root
}
