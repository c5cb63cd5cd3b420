package toll_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

func TestShortKey(t *testing.T) {
	text := strings.Repeat("Az09-_b1", 4)
	for key, want := range map[string]toll.Environment{"tk_sandbox_" + text: toll.Sandbox, "tk_live_" + text: toll.Live} {
		env, body, ok := toll.ParseShortKey(key)
		if !ok || env != want || base64.RawURLEncoding.EncodeToString(body[:]) != text || !strings.HasPrefix(key, env.ShortKeyPrefix()) {
			t.Errorf("%s: %s, %x, %t", key, env, body, ok)
		}
	}
	for _, key := range []string{
		"", "tk_", "tk_sandbox_", "tk_sandbox_" + text[1:], "tk_sandbox_" + text + "A", "tk_sandbox_" + text[1:] + "=", "tk_sandbox_" + text[1:] + "+",
		"tk_sandbox_\n" + text[1:], "tk_sandbox_" + text[2:] + "\r\n", "TK_SANDBOX_" + text, "tk_Sandbox_" + text, "tk_test_" + text, " tk_live_" + text,
		"sandbox:tk_sandbox_" + text, "tk_live_" + text + " ", text,
	} {
		if env, _, ok := toll.ParseShortKey(key); ok || env != "" && !strings.HasPrefix(key, env.ShortKeyPrefix()) {
			t.Errorf("%q: %s, %t", key, env, ok)
		}
	}
	// Clients and the service derive the same id, so it never changes.
	if got := toll.ShortKeyID("tk_sandbox_" + text).String(); got != "0xbfd8fcdb2432292a7f938cee081b7c19048b12368e93892899c1e4b7604c4192" {
		t.Errorf("id %s", got)
	}
}

// A short key that is sent in place of another value does not come back in an error.
func TestShortKey_Clipped(t *testing.T) {
	key := "tk_live_" + strings.Repeat("Az09-_b1", 4)
	_, plan := toll.ParsePlanID(key)
	_, address := toll.ParseAddress("x " + key)
	_, hash := toll.ParseHash("https://pay.example.com/" + key)
	for _, err := range []error{plan, address, hash} {
		if err == nil || strings.Contains(err.Error(), "Az09") || !strings.Contains(err.Error(), "tk_live_...") {
			t.Errorf("%v", err)
		}
	}
}

// FuzzParseShortKey holds that a short key has one text.
func FuzzParseShortKey(f *testing.F) {
	for _, s := range []string{"tk_sandbox_" + strings.Repeat("A", 32), "tk_live_" + strings.Repeat("_", 32), "tk_live_" + strings.Repeat("A", 31) + "\n", "tk_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if env, body, ok := toll.ParseShortKey(key); ok && env.ShortKeyPrefix()+base64.RawURLEncoding.EncodeToString(body[:]) != key {
			t.Fatalf("%q is the key %s %x", key, env, body)
		}
	})
}
