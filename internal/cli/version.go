package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/rails"
)

// Release is the version of the program, set by the linker of a release (-X). Empty is that of the module.
var Release string

// release is the version with the commit of the build as metadata of it (semantic versioning), such as
// 1.1.0+0a921f57c3de. The service says it in /health, logs, backups and metrics.
func release() string {
	info, _ := debug.ReadBuildInfo()
	return stamp(Release, info)
}

// stamp makes the version of a build. set is that of the linker, "" for that of the module. info may be
// nil. The version that Go makes of an untagged commit has the commit already.
func stamp(set string, info *debug.BuildInfo) string {
	version, commit := set, ""
	if info != nil {
		if version == "" && info.Main.Version != "(devel)" {
			version = strings.TrimPrefix(info.Main.Version, "v")
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	version = cmp.Or(version, "dev")
	switch {
	case commit == "" || strings.Contains(version, commit):
		return version
	case strings.Contains(version, "+"):
		return version + "." + commit
	}
	return version + "+" + commit
}

func versionCommand(con *console) *cobra.Command {
	c := command("version", "Show the version of this program", func(*cobra.Command, []string) error {
		return con.show(struct {
			Name       string `json:"name"`
			Version    string `json:"version"`
			APIVersion string `json:"apiVersion"`
			Go         string `json:"go"`
			Platform   string `json:"platform"`
			Chain      bool   `json:"embeddedChain"`
		}{"toll", release(), client.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, rails.HasEmbeddedChain})
	})
	c.Annotations = withoutProfile
	return c
}
