package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
)

// docs/CRYPTO.md has every setting of the chain, with the default that the flag has.
func TestChainSettingsAreDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/CRYPTO.md"))(t)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(TOLL_CHAIN[A-Z_]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = m[2]
	}
	var cfg rails.ChainConfig
	c := &cobra.Command{}
	chainFlags(c, &cfg)
	paymentFlags(c, &cfg)
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name, want := "TOLL_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), f.DefValue
		if want == "" || want == "[]" {
			want = "none"
		}
		if got, ok := documented[name]; !ok || got != want {
			t.Errorf("%s has the default %q, docs/CRYPTO.md says %q", name, want, got)
		}
		delete(documented, name)
	})
	for name := range documented {
		t.Errorf("docs/CRYPTO.md has %s, which is no setting", name)
	}
}
