package rails

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

func TestConfig_Check(t *testing.T) {
	const test, live = "sk_test_0123456789", "rk_live_0123456789"
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	hooks := []string{"whsec_1", "whsec_2", "whsec_3"}
	for name, tt := range map[string]struct {
		cfg       CardConfig
		all, live string // what the error must say, "" for none
	}{
		"nothing":                {CardConfig{}, "", ""},
		"off":                    {CardConfig{Mode: CardOff}, "", ""},
		"another mode":           {CardConfig{Mode: "on"}, "TOLL_CARD", "-"},
		"a test key":             {CardConfig{SecretKey: test}, "", "test mode key"},
		"a live key":             {CardConfig{SecretKey: live}, "", ""},
		"off with a test key":    {CardConfig{Mode: CardOff, SecretKey: test}, "", ""},
		"a wrong key":            {CardConfig{SecretKey: "pk_test_0123456789"}, "must begin with sk_test_", "-"},
		"two keys":               {CardConfig{SecretKey: test, SecretKeyFile: "x"}, "set only one of", "-"},
		"a file":                 {CardConfig{SecretKeyFile: file("one", live+"\n", 0o600)}, "", ""},
		"an open file":           {CardConfig{SecretKeyFile: file("open", live, 0o644)}, "chmod 600", "-"},
		"a file with two":        {CardConfig{SecretKeyFile: file("two", live+"\n"+live, 0o600)}, "one secret key", "-"},
		"a huge file":            {CardConfig{SecretKeyFile: file("huge", strings.Repeat("x", 4097), 0o600)}, "larger than", "-"},
		"no file":                {CardConfig{SecretKeyFile: filepath.Join(dir, "none")}, "no such file", "-"},
		"publishable":            {CardConfig{SecretKey: live, PublishableKey: "pk_live_1"}, "", ""},
		"publishable of another": {CardConfig{SecretKey: live, PublishableKey: "pk_test_1"}, "must have the same mode", "-"},
		"a wrong publishable":    {CardConfig{SecretKey: live, PublishableKey: live}, "must begin with pk_", "-"},
		"only publishable":       {CardConfig{PublishableKey: "pk_live_1"}, "needs a secret key", "-"},
		"two hooks":              {CardConfig{SecretKey: live, WebhookSecrets: hooks[:2]}, "", ""},
		"three hooks":            {CardConfig{SecretKey: live, WebhookSecrets: hooks}, "at most 2", "-"},
		"hooks in a file":        {CardConfig{SecretKey: live, WebhookSecretFile: file("hooks", "whsec_1\nwhsec_2\n", 0o600)}, "", ""},
		"hooks twice":            {CardConfig{SecretKey: live, WebhookSecrets: hooks[:1], WebhookSecretFile: "x"}, "set only one of", "-"},
		"a wrong hook":           {CardConfig{SecretKey: live, WebhookSecrets: []string{test}}, "must begin with whsec_", "-"},
		"a double":               {CardConfig{SecretKey: test, URL: "http://127.0.0.1:8403"}, "", "card double"},
		"a double of a live key": {CardConfig{SecretKey: live, URL: "http://127.0.0.1:8403"}, "", "card double"},
		"a double without key":   {CardConfig{URL: "http://127.0.0.1:8403"}, "needs a secret key", "-"},
		"a path":                 {CardConfig{SecretKey: test, URL: "http://127.0.0.1:8403/v1"}, "without a path", "-"},
		"a double to listen":     {CardConfig{DoubleListen: "127.0.0.1:0"}, "", "card double"},
		"a double for all":       {CardConfig{DoubleListen: ":8403"}, "a loopback address", "-"},
		"a descriptor":           {CardConfig{Descriptor: "TOLL.CALLS"}, "", ""},
		"a long descriptor":      {CardConfig{Descriptor: "TOLL CALLS "}, "at most 10", "-"},
		"a descriptor of digits": {CardConfig{Descriptor: "123"}, "one letter", "-"},
		"fees below 0":           {CardConfig{RefundFees: -1}, "at least 1 cent", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(err error, want string) {
				t.Helper()
				if (err == nil) != (want == "") || err != nil && want != "-" && !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
				if err != nil && (strings.Contains(err.Error(), "0123456789") || strings.Contains(err.Error(), "whsec_1")) {
					t.Errorf("the error has a key: %v", err)
				}
			}
			check(tt.cfg.Check(), tt.all)
			if tt.live != "-" {
				check(tt.cfg.CheckIn(toll.Live), tt.live)
				sandbox := ""
				if k, _ := tt.cfg.keys(); k.live {
					sandbox = "or start with a new database and TOLL_ENVIRONMENT=live (--environment live)"
				}
				check(tt.cfg.CheckIn(toll.Sandbox), sandbox)
			}
		})
	}
	for _, tt := range []struct {
		cfg      CardConfig
		env      toll.Environment
		embedded bool
		want     cardSource
	}{
		{CardConfig{}, toll.Sandbox, true, doubleCards},
		{CardConfig{}, toll.Sandbox, false, noCards},
		{CardConfig{}, toll.Live, true, noCards},
		{CardConfig{Mode: CardOff}, toll.Sandbox, true, noCards},
		{CardConfig{SecretKey: test}, toll.Sandbox, false, stripeCards},
		{CardConfig{SecretKey: live}, toll.Live, false, stripeCards},
	} {
		k, err := tt.cfg.keys()
		if got, missing := tt.cfg.source(tt.env, k, tt.embedded); err != nil || got != tt.want || (missing == "") != (got != noCards) {
			t.Errorf("%+v in %s: %s, %q, %v", tt.cfg, tt.env, got, missing, err)
		}
	}
}

// T84: only keys of the test mode have more tries than the five of the rail.
// T84
func TestCardsSettings_Tries(t *testing.T) {
	for key, want := range map[string]int64{"sk_live_0123456789": 0, "rk_live_0123456789": 0, "sk_test_0123456789": testTries} {
		k, err := (&CardConfig{SecretKey: key}).keys()
		if err != nil || k.tries() != want {
			t.Errorf("%.7s: %d, %v", key, k.tries(), err)
		}
	}
}
