package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
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
		if err := c.Flags().Set(tt.flag, tt.value); err != nil {
			t.Fatal(err)
		}
		if got := settingsOf(c); !slices.Equal(got, []any{tt.flag, tt.want}) {
			t.Errorf("%s: %v, want %s", tt.value, got, tt.want)
		}
	}
}
