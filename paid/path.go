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
	// others are further readings: "%2F" and "%5C" separate segments, "//" is one slash, a segment ends before ";".
	others [][]string
	// sent is the path that goes to an upstream, escaped: as it was sent, but for dot segments.
	sent string
}

// maxSegments bounds the segments of a path that is read in several ways.
const maxSegments = 256

// readPath reads the path of a request. Invalid text and a dot segment that only some routers see are errors.
func readPath(u *url.URL) (p requestPath, err *toll.Error) {
	raw := cmp.Or(u.EscapedPath(), "/")
	path, uerr := url.PathUnescape(raw)
	if uerr != nil || raw[0] != '/' || strings.Contains(u.RawPath, `\`) || !utf8.ValidString(path) ||
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
	if len(parts) > maxSegments {
		return p, errBadPath
	}
	for way := range 12 {
		read := parts
		if way&1 != 0 {
			read = splitAll(read)
		}
		switch way / 4 {
		case 1: // parameters of each segment
			read = slices.Clone(read)
			for i, s := range read {
				read[i], _, _ = strings.Cut(s, ";")
			}
		case 2: // parameters of the path
			if i := slices.IndexFunc(read, func(s string) bool { return strings.Contains(s, ";") }); i >= 0 {
				read = slices.Clone(read[:i+1])
				read[i], _, _ = strings.Cut(read[i], ";")
			}
		}
		if way > 0 && slices.ContainsFunc(read, isDot) && !(dots && slices.Equal(read, parts)) {
			return p, errBadPath
		}
		if way&2 != 0 || dots {
			read = resolve(read)
		} else {
			read = withoutEnd(read)
		}
		if !slices.Equal(read, p.segments) {
			p.others = append(p.others, read)
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

// splitAll separates segments at slashes and backslashes that were escaped.
func splitAll(parts []string) (all []string) {
	for _, s := range parts {
		all = append(all, strings.Split(strings.ReplaceAll(s, `\`, "/"), "/")...)
	}
	return all
}
