package mcpwire

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ReadAs returns a canonical form of a uri, as a handler that decodes and cleans it may read it. All Spellings of a uri have
// the same form, except for a query. In a uri without a host, the first segment of the path takes the place of the host.
func ReadAs(uri string) string {
	uri, _, _ = strings.Cut(uri, "#")
	uri, query, asked := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	rest = strings.ReplaceAll(Decoded(rest), `\`, "/")
	rest = strings.TrimPrefix(path.Clean("/"+rest), "/")
	host, rest, _ := strings.Cut(rest, "/")
	key := scheme + "://" + strings.ToLower(host) + "/" + rest
	if asked {
		key += "?" + Decoded(query)
	}
	return key
}

// Decoded removes percent-encoding, up to three nested layers. Invalid encodings stay.
func Decoded(s string) string {
	for range 3 {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
					continue
				}
			}
			b.WriteByte(s[i])
		}
		if b.Len() == len(s) {
			break
		}
		s = b.String()
	}
	return s
}

// expression is an RFC 6570 expression.
var expression = regexp.MustCompile(`\{[^{}]*\}`)

// IsTemplate reports whether a uri has an RFC 6570 expression.
func IsTemplate(uri string) bool { return expression.MatchString(uri) }

// TemplateRegexp returns an expression that matches every uri of a template, and more: no priced uri may be read for free.
func TemplateRegexp(template string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	last := 0
	for _, at := range expression.FindAllStringIndex(template, -1) {
		b.WriteString(regexp.QuoteMeta(template[last:at[0]]))
		b.WriteString(`.*`)
		last = at[1]
	}
	b.WriteString(regexp.QuoteMeta(template[last:]))
	b.WriteString(`$`)
	return regexp.MustCompile(b.String())
}

// Spellings returns a uri and, if they differ, the forms in which a handler that decodes and cleans it may read it: with and
// without a query, a trailing slash and a host.
func Spellings(uri string) []string {
	out := []string{uri}
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	key := ReadAs(uri)
	bare, query, asked := strings.Cut(key, "?")
	scheme, path, _ := strings.Cut(bare, "://")
	forms := []string{bare, scheme + ":" + path}
	if scheme != "http" && scheme != "https" {
		forms = append(forms, scheme+":///"+path)
	}
	for _, form := range forms {
		form = strings.TrimSuffix(form, "/")
		add(form)
		add(form + "/")
		if asked {
			add(form + "?" + query)
		}
	}
	return out
}
