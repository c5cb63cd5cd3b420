package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/must"
)

func TestSettingsOf_HidesSecrets(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"database", "postgres://toll:canary@db:5432/toll?x=canary", "postgres://db:5432"},
		{"database", "postgres://toll:can%zzary@db", "(hidden)"},
		{"database", "sqlite:canary", "(hidden)"},
		{"database", "host=db password=canary", "(hidden)"},
		{"chain-rpc-urls", "https://a.example/v2/canary,https://b.example/?key=canary", "https://a.example,https://b.example"},
		{"smtp-url", "smtp:user:canary@mail.example", "(hidden)"},
		{"listen", "localhost:8402", "localhost:8402"},
		{"listen", "[::1]:8402", "[::1]:8402"},
		{"master-key-file", "/etc/toll/master.key", "/etc/toll/master.key"},
	} {
		c := &cobra.Command{Use: "serve"}
		c.Flags().String(tt.flag, "", "")
		must.Do(t, c.Flags().Set(tt.flag, tt.value))
		if got := settingsOf(c); !slices.Equal(got, []any{tt.flag, tt.want}) {
			t.Errorf("%s: %v, want %s", tt.value, got, tt.want)
		}
	}
}

// TestCheckVariables_Named: a long-running command takes each variable that documents and packages name, also those of programs that
// share its environment.
func TestCheckVariables_Named(t *testing.T) {
	root := treeOf(t)
	serve, _, err := root.Find([]string{"serve"})
	must.Do(t, err)
	variable := regexp.MustCompile(`\bTOLL_[A-Z0-9_]*[A-Z0-9]\b`)
	named := 0
	for _, dir := range []string{
		"../../docs", "../../deploy", "../../README.md", "../../gateway/openclaw/README.md", "../../sdk/python/README.md", "../../sdk/typescript/README.md",
	} {
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "decisions":
				return fs.SkipDir
			case d.IsDir() || d.Name() == "TESTING.md":
				return nil
			}
			text, err := os.ReadFile(path)
			for _, name := range variable.FindAllString(string(text), -1) {
				named++
				if wrong := (&app{console: console{environ: []string{name + "=x"}}}).checkVariables(serve); wrong != nil {
					t.Errorf("%s: %v", path, wrong)
				}
			}
			return err
		}))
	}
	if named < 100 {
		t.Errorf("%d variables", named)
	}
}
