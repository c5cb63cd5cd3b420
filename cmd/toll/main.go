// Command toll is the service, its command line and its development mode in one program. See `toll --help`.
package main

import (
	"os"

	"github.com/tollhq/toll/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
