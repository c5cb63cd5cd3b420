// Command tool makes what carries the program to machines, without a daemon: a Debian package, an image of containers. It also reads a
// compose file. It is a module of its own: users of Toll do not depend on its libraries. Paths are relative to the root of the repository.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	run := map[string]func(f *flag.FlagSet, args []string) error{"deb": deb, "image": image, "compose": compose}
	if len(os.Args) < 2 || run[os.Args[1]] == nil {
		fail(fmt.Errorf("the first argument must be deb, image, or compose"))
	}
	if err := os.Chdir("../.."); err != nil {
		fail(err)
	}
	fail(run[os.Args[1]](flag.NewFlagSet(os.Args[1], flag.ExitOnError), os.Args[2:]))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compose reads a compose file as an engine does, refuses what it does not know, and prints it as JSON.
func compose(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	options, err := cli.NewProjectOptions(f.Args(), cli.WithOsEnv, cli.WithInterpolation(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(project)
}
