package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/client"
)

// Release is the version of the program, set by the linker of a release (-X). Empty is that of the module.
var Release string

func release() string {
	if Release != "" {
		return Release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "dev"
}

func (a *app) versionCommand() *cobra.Command {
	c := command("version", "Version of this program", func(*cobra.Command, []string) error {
		return a.show(struct {
			Name       string `json:"name"`
			Version    string `json:"version"`
			APIVersion string `json:"apiVersion"`
			Go         string `json:"go"`
			Platform   string `json:"platform"`
		}{"toll", release(), client.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
	})
	c.Annotations = withoutProfile
	return c
}

func (a *app) versionsCommand() *cobra.Command {
	return a.get("versions", "API versions of the service, and the one that applies to you", "/meta/versions")
}
