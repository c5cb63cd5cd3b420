package gateway_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// A key of the form that services issue. Its last segment is the canary.
var (
	canary  = strings.Repeat("Q7canary", 10)
	testJWT = strings.Join([]string{
		base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT","kid":"k1"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://pay.example.com","sub":"0x00000000000000000000000000000000000000aa"}`)),
		canary,
	}, ".")
)

// A short key, with the canary in it.
var testShort = "tk_sandbox_" + strings.Repeat("Q7canary", 4)

// secretTexts are texts that hold a key, with what may stay of them.
var secretTexts = map[string]string{
	"sandbox:" + testJWT:            "[key removed]",
	testJWT:                         "[key removed]",
	"/svc_login sandbox:" + testJWT: "/svc_login [key removed]",
	"my key is local-1:" + testJWT + ", use it": "my key is [key removed], use it",
	`{"apiKey":"live:` + testJWT + `"}`:         `{"apiKey":"[key removed]"}`,
	"key=" + testJWT + "&x=1":                   "key=[key removed]&x=1",
	"API_KEY_" + testJWT:                        "API_KEY_[key removed]",
	testJWT + "\n" + testJWT:                    "[key removed]\n[key removed]",
	"`" + testJWT + "`":                         "`[key removed]`",
	"LIVE:" + testJWT:                           "[key removed]",
	"sandbox%3A" + testJWT:                      "sandbox%3A[key removed]",
	testShort:                                   "[key removed]",
	"tk_live_" + testShort[11:]:                 "[key removed]",
	"TK_SANDBOX_" + testShort[11:]:              "[key removed]",
	"/svc_login " + testShort:                   "/svc_login [key removed]",
	"sandbox:" + testShort + ", use it":         "sandbox:[key removed], use it",
	`{"apiKey":"` + testShort + `"}`:            `{"apiKey":"[key removed]"}`,
	"key=" + testShort + "&x=1":                 "key=[key removed]&x=1",
	"TOLL_API_KEY_" + testShort:                 "TOLL_API_KEY_[key removed]",
	testShort[:27]:                              "[key removed]", // cut, with 12 of its 16 random bytes
	testShort + "\n" + testShort:                "[key removed]\n[key removed]",
}

// TestRedact_Patterns: what the plugin searches in messages finds every key, and nothing else.
// T143
func TestRedact_Patterns(t *testing.T) {
	replaced := func(text string) string {
		for _, p := range gateway.SecretPatterns() {
			text = regexp.MustCompile(p).ReplaceAllLiteralString(text, "[key removed]")
		}
		return text
	}
	for text, want := range secretTexts {
		if got := replaced(text); got != want {
			t.Errorf("%.60q: got %q, want %q", text, got, want)
		}
		if got := gateway.Redact(text); got != want {
			t.Errorf("redact of %.60q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{
		"", "sandbox", "/svc_login sandbox", "eyJ", "eyJhbGciOiJFZERTQSJ9.no.key", "a.b.c", "https://a.example.com/x.y.z?eyJ=1",
		"eyJhbGciOiJFZERTQSJ9", strings.Repeat("eyJ", 1000), "tk_sandbox_…", "tk_live_mode", "my_tk_sandbox_case", "tk_test_" + canary,
	} {
		if got := replaced(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// shown has its secret in its text alone.
type shown struct{ secret string }

func (s shown) String() string { return "shown " + s.secret }

type lazy struct{ secret string }

func (l lazy) LogValue() slog.Value { return slog.GroupValue(slog.String("inner", l.secret)) }

// TestRedact_Log: no way to write a key or an access token into a log leads there.
// T143
func TestRedact_Log(t *testing.T) {
	payload := base64.StdEncoding.EncodeToString([]byte(`{"x402Version":2,"payload":{"x402AccessToken":"` + canary + canary + `"}}`))
	held := []string{"sandbox:" + testJWT, testJWT, testShort, "Bearer " + canary, payload}
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		for _, secret := range held {
			var out bytes.Buffer
			log := gateway.RedactLog(slog.New(handler(&out)))
			log.Info("message " + secret)
			log.Info("attr", "a", secret, "n", 7, "d", time.Second)
			log.Info("error", "err", fmt.Errorf("call: %w", errors.New(secret)))
			log.Info("bytes", "b", []byte(secret))
			log.Info("struct", "s", shown{secret}, "p", &shown{secret}, "m", map[string]string{"k": secret})
			log.Info("lazy", "l", lazy{secret})
			log.Info("group", slog.Group("g", slog.Group("h", "x", secret)))
			log.With("w", secret).WithGroup("in").With("v", lazy{secret}).Info("with")
			text := out.String()
			if strings.Contains(text, "canary") || strings.Contains(text, payload[20:60]) {
				t.Errorf("%s: %.20s is in the log:\n%s", name, secret, text)
			}
			if strings.Count(text, "\n") != 8 || !strings.Contains(text, "7") || !strings.Contains(text, "1") {
				t.Errorf("%s: the log lost lines or values:\n%s", name, text)
			}
		}
	}
	gateway.RedactLog(nil).Info("a log that is not there takes lines")
}

// TestRealKeys: what a service issues is found whole, in each form.
// T143
func TestRealKeys(t *testing.T) {
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("somebody"))(t)
	buyer := svc.Subscriber(1)
	rendered := must.Get(buyer.Client.AccessToken(t.Context(), svc.Plan(), client.WithTokenFormat("x402")))(t)
	short := must.Get(client.New(key.Key, client.WithURL(svc.URL())).CreateKey(t.Context(), client.KeyParams{Form: toll.KeyShort}))(t)
	for _, secret := range []string{key.Key, short.Key, buyer.AccessToken, rendered.AccessToken} {
		if got := gateway.Redact("a " + secret + " b"); got != "a [key removed] b" {
			t.Errorf("%.30s… became %q", secret, got)
		}
	}
}
