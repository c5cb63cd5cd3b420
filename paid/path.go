package paid

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
)

// requestPath is the path of a request in each way in which a router behind may read it.
type requestPath struct {
	// segments are the path as it was sent: percent-decoded once, with dot segments resolved, and without a slash at its end.
	segments []string
	// others hold further readings: "%2F" or "%5C" or both separate segments, "//" is one slash, each segment or the path ends
	// before ";", which is cut before or after segments are separated.
	others [][]string
	// sent is the path that goes to an upstream, escaped: as it was sent, but for dot segments.
	sent string
}

// maxSegments bounds the segments of a path that is read in several ways.
const maxSegments = 256

// readPath reads the path of a request. Invalid text and a dot segment that only some routers see are errors, and so is a request
// target without a path, which [url.URL] keeps as opaque: a proxy would pass it on as it was sent, such as "x:http://host/path".
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
		s, _ = url.PathUnescape(s) // it is part of what could be read above
		parts[i] = s
		dots = dots || isDot(s)
	}
	if p.segments = withoutEnd(parts); dots {
		p.segments = resolve(parts)
		clean := "/" + strings.Join(p.segments, "/")
		if strings.HasSuffix(raw, "/") && clean != "/" {
			clean += "/"
		}
		p.sent = (&url.URL{Path: clean}).EscapedPath() // with an escaped "/" in it the path is refused below
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

// resolve drops empty segments and follows dot segments.
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

// withoutEnd drops the empty segment after a slash at the end.
func withoutEnd(parts []string) []string {
	if n := len(parts); n > 0 && parts[n-1] == "" {
		return parts[:n-1]
	}
	return parts
}

// split separates segments at characters that were escaped.
func split(parts []string, separators string) (all []string) {
	for _, s := range parts {
		for i := strings.IndexAny(s, separators); i >= 0; i = strings.IndexAny(s, separators) {
			all, s = append(all, s[:i]), s[i+1:]
		}
		all = append(all, s)
	}
	return all
}

// cut ends segments before ";", where parameters begin: no segment (way 0), each one (1), or the first such one, which then ends the path (2).
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
