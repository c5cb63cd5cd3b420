package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// removed is the text that replaces a secret.
const removed = "[key removed]"

// jwtPattern matches a JWT of three segments. Header and payload are JSON objects, whose base64url begins with eyJ. The limit
// on the length of the header keeps backtracking engines linear, at about a second per MiB.
const jwtPattern = `eyJ[A-Za-z0-9_-]{8,200}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}`

// shortPattern matches short API keys, even if they are truncated or in capital letters.
const shortPattern = `[Tt][Kk]_(?:sandbox|live|SANDBOX|LIVE)_[A-Za-z0-9_-]{16,}`

// secretPatterns returns regular expressions, valid in Go and JavaScript, for texts that must not reach models, transcripts, or
// logs: short API keys, long ones with a prefix, and bare JWTs. Apply them in this order.
func secretPatterns() []string {
	return []string{
		shortPattern,
		`[A-Za-z0-9-]{1,32}:` + jwtPattern,
		jwtPattern,
	}
}

// logPatterns match further texts that must not reach logs: x402 access tokens and bearer tokens.
var logPatterns = []string{
	`eyJ4NDAy[A-Za-z0-9+/_=-]{40,}`,
	`(?i:bearer)[ +]+[A-Za-z0-9._~+/=-]{16,}`,
}

var secrets = regexp.MustCompile(strings.Join(append(secretPatterns(), logPatterns...), "|"))

// redact replaces keys and access tokens in a text with the constant removed.
func redact(text string) string { return secrets.ReplaceAllLiteralString(text, removed) }

// redactLog returns a logger that redacts every message and value, or discards everything if l is nil. It formats values
// of kind [slog.KindAny] as text.
func redactLog(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return slog.New(logRedactor{l.Handler()})
}

type logRedactor struct{ slog.Handler }

func (h logRedactor) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(redactAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

func (h logRedactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redactAttr(a)
	}
	return logRedactor{h.Handler.WithAttrs(clean)}
}

func (h logRedactor) WithGroup(name string) slog.Handler {
	return logRedactor{h.Handler.WithGroup(name)}
}

func redactAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, redact(v.String()))
	case slog.KindGroup:
		inner := make([]slog.Attr, len(v.Group()))
		for i, g := range v.Group() {
			inner[i] = redactAttr(g)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(inner...)}
	case slog.KindAny:
		text := fmt.Sprintf("%+v", v.Any())
		if b, ok := v.Any().([]byte); ok {
			text = string(b)
		}
		return slog.String(a.Key, redact(text))
	}
	return slog.Attr{Key: a.Key, Value: v}
}
