package toll

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Endpoint is one verb and url of an agent. The url is absolute or starts with "/", and may hold patterns: ":name" and
// "{name}" match one segment, "*" at the end and "(.*)" match the rest.
type Endpoint struct {
	Verb string
	URL  string
}

// Verbs are the HTTP verbs that an endpoint may have.
var Verbs = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}

// EndpointList is a list of endpoints. On the wire it is one object per verb, {"POST": "https://..."}; {"verb", "url"} and
// objects with several verbs are accepted as well.
type EndpointList []Endpoint

// MarshalJSON writes one object per verb.
func (l EndpointList) MarshalJSON() ([]byte, error) {
	list := make([]map[string]string, len(l))
	for i, e := range l {
		list[i] = map[string]string{e.Verb: e.URL}
	}
	return encode(list)
}

// UnmarshalJSON accepts these shapes. It converts verbs to upper case and does not check the URLs.
func (l *EndpointList) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(b, &items); err != nil {
		return badEndpoint()
	}
	out := make(EndpointList, 0, len(items))
	for _, item := range items {
		e, err := endpointItem(item)
		if err != nil {
			return err
		}
		out = append(out, e...)
	}
	*l = out
	return nil
}

func badEndpoint() *Error {
	return Errorf(CodeBadRequest, `An endpoint must be {"POST": "url"} or {"verb": "POST", "url": "url"}. The verbs are %s.`, strings.Join(Verbs, ", "))
}

// endpointItem returns the endpoints of one item in the order of its members, which decoding into a map would lose.
func endpointItem(item json.RawMessage) ([]Endpoint, error) {
	d := json.NewDecoder(bytes.NewReader(item))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, badEndpoint()
	}
	var out []Endpoint
	var pair struct{ verb, url *string }
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, badEndpoint()
		}
		name, _ := t.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, badEndpoint()
		}
		if string(raw) == "null" {
			continue
		}
		verb := strings.ToUpper(name)
		known := slices.Contains(Verbs, verb)
		if !known && name != "verb" && name != "url" {
			continue // unknown members are ignored, as everywhere
		}
		var s string
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
			return nil, badEndpoint()
		}
		switch {
		case known:
			out = append(out, Endpoint{Verb: verb, URL: s})
		case name == "verb":
			s = strings.ToUpper(s)
			pair.verb = &s
		default:
			pair.url = &s
		}
	}
	if pair.verb != nil && pair.url != nil && slices.Contains(Verbs, *pair.verb) {
		return append(out, Endpoint{Verb: *pair.verb, URL: *pair.url}), nil
	}
	if pair.verb != nil || pair.url != nil || len(out) == 0 {
		return nil, badEndpoint()
	}
	return out, nil
}

// validURL reports whether s can be the url of an endpoint: absolute with the scheme http, https or mcp and a host, or a
// path. It may hold patterns, so it is not parsed further.
func validURL(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	if strings.HasPrefix(s, "/") {
		return !strings.HasPrefix(s, "//")
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || rest == "" || strings.ContainsAny(rest[:1], "/?#") {
		return false
	}
	switch strings.ToLower(scheme) {
	case "http", "https", "mcp":
		return true
	}
	return false
}

func checkURL(s, path string, f *faultList) {
	switch {
	case utf8.RuneCountInString(s) > MaxURLRunes:
		f.add(path, "must be at most %d characters long", MaxURLRunes)
	case !validURL(s):
		f.add(path, "must be an absolute http, https, or mcp URL, or a path that starts with /")
	}
}
