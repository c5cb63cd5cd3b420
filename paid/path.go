package paid

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
)

// requestPath is the path of a request in every reading that a downstream router may use.
type requestPath struct {
	// segments are the segments of the path, percent-decoded once, with dot segments resolved and without a trailing slash.
	segments []string
	// others contains alternative readings: "%2F", "%5C", or both separate segments; "//" is one slash; each segment or the path ends at
	// ";", which is cut before or after the segments are separated.
	others [][]string
	// sent is the escaped path for an upstream: as received, except that dot segments are resolved.
	sent string
}

// maxSegments bounds the segments of a path that is read in several ways.
const maxSegments = 256

// readPath reads the path of a request. It returns an error for invalid text, for a dot segment that only some routers resolve, and
// for a request target that [url.URL] keeps as opaque, such as "x:http://host/path", which a proxy would forward unchanged.
func readPath(u *url.URL) (p requestPath, err *toll.Error) {
	raw := cmp.Or(u.EscapedPath(), "/")
	path, uerr := url.PathUnescape(raw)
	if uerr != nil || u.Opaque != "" || raw[0] != '/' || strings.Contains(u.RawPath, `\`) || !utf8.ValidString(path) ||
		strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return p, errBadPath
	}
	p.sent = raw
	dots := false
	parts := strings.Split(raw[1:], "/")
	for i, s := range parts {
		s, _ = url.PathUnescape(s) // cannot fail: the whole path was unescaped above
		parts[i] = s
		dots = dots || isDot(s)
	}
	if p.segments = withoutEnd(parts); dots {
		p.segments = resolve(parts)
		clean := "/" + strings.Join(p.segments, "/")
		if strings.HasSuffix(raw, "/") && clean != "/" {
			clean += "/"
		}
		p.sent = (&url.URL{Path: clean}).EscapedPath() // differs for an escaped "/", but such a path is rejected below
	}
	if !strings.Contains(raw, "//") && !strings.Contains(path, ";") && strings.Count(path, "/") == strings.Count(raw, "/") && !strings.Contains(path, `\`) {
		return p, nil
	}
	// Routers differ in whether they cut at an escaped ";".
	if strings.Count(path, "/") > maxSegments || strings.Contains(raw, ";") && strings.Count(path, ";") > strings.Count(raw, ";") {
		return p, errBadPath
	}
	for _, separators := range []string{"", "/", `\`, `/\`} {
		for way := range 12 {
			read := parts
			if way&1 == 0 {
				read = split(read, separators)
			}
			read = cut(read, way/4)
			if way&1 != 0 {
				read = split(read, separators)
			}
			if !slices.Equal(read, parts) && slices.ContainsFunc(read, isDot) {
				return p, errBadPath
			}
			if way&2 != 0 || dots {
				read = resolve(read)
			} else {
				read = withoutEnd(read)
			}
			same := func(other []string) bool { return slices.Equal(read, other) }
			if !same(p.segments) && !slices.ContainsFunc(p.others, same) {
				p.others = append(p.others, read)
			}
		}
	}
	return p, nil
}

var errBadPath = toll.Errorf(toll.CodeBadRequest, "The path is malformed.")

func isDot(s string) bool { return s == "." || s == ".." }

// resolve removes empty segments and resolves dot segments.
func resolve(parts []string) (segments []string) {
	for _, s := range parts {
		switch s {
		case "", ".":
		case "..":
			segments = segments[:max(len(segments)-1, 0)]
		default:
			segments = append(segments, s)
		}
	}
	return segments
}

// withoutEnd removes the empty segment after a trailing slash.
func withoutEnd(parts []string) []string {
	if n := len(parts); n > 0 && parts[n-1] == "" {
		return parts[:n-1]
	}
	return parts
}

// split also separates segments at these characters, which were escaped in the path.
func split(parts []string, separators string) (all []string) {
	for _, s := range parts {
		for i := strings.IndexAny(s, separators); i >= 0; i = strings.IndexAny(s, separators) {
			all, s = append(all, s[:i]), s[i+1:]
		}
		all = append(all, s)
	}
	return all
}

// cut removes parameters, which begin at ";": none (way 0), those in each segment (1), or all of the path after the first ";" (2).
func cut(parts []string, way int) (all []string) {
	if way == 0 {
		return parts
	}
	for _, s := range parts {
		s, _, found := strings.Cut(s, ";")
		if all = append(all, s); found && way == 2 {
			break
		}
	}
	return all
}
