package double

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bounds on the parameters of a request.
const (
	maxBody       = 64 << 10
	maxParams     = 300
	maxDepth      = 6
	maxParamKey   = 300
	maxParamValue = 5000
	maxMetadata   = 50
)

// params are the parameters of a request by path: "line_items[0][quantity]" is
// "line_items.0.quantity", and an item with empty brackets gets the next free number.
type params map[string]string

func parseParams(form string) (params, *failure) {
	p := params{}
	for pair := range strings.SplitSeq(form, "&") {
		if pair == "" {
			continue
		}
		rawKey, rawValue, _ := strings.Cut(pair, "=")
		key, err1 := url.QueryUnescape(rawKey)
		value, err2 := url.QueryUnescape(rawValue)
		if err1 != nil || err2 != nil {
			return nil, invalidParam("", "", "Invalid form encoding")
		}
		path, ok := p.path(key)
		switch {
		case !ok:
			return nil, invalidParam("", "", "Invalid parameter name")
		case len(value) > maxParamValue:
			return nil, invalidParam(bracketed(path), "", "Invalid string: the value must be at most %d characters", maxParamValue)
		case len(p) >= maxParams:
			return nil, invalidParam("", "", "At most %d parameters are allowed", maxParams)
		}
		if _, twice := p[path]; twice {
			name := bracketed(path)
			return nil, invalidParam(name, "", "Parameter %s was sent twice", name)
		}
		p[path] = value
	}
	return p, nil
}

// path turns a[b][0] into a.b.0.
func (p params) path(key string) (string, bool) {
	name, rest, nested := strings.Cut(key, "[")
	if name == "" || len(key) > maxParamKey || strings.ContainsAny(name, ".]") {
		return "", false
	}
	if !nested {
		return name, true
	}
	if !strings.HasSuffix(rest, "]") {
		return "", false
	}
	segments := append([]string{name}, strings.Split(strings.TrimSuffix(rest, "]"), "][")...)
	if len(segments) > maxDepth {
		return "", false
	}
	for i, s := range segments {
		switch {
		case strings.ContainsAny(s, "[]"):
			return "", false
		case s == "" && i == len(segments)-1:
			segments[i] = strconv.Itoa(p.next(strings.Join(segments[:i], ".")))
		case s == "" || strings.Contains(s, ".") && segments[0] != "metadata":
			return "", false
		}
	}
	return strings.Join(segments, "."), true
}

// next is the first number that a list does not have.
func (p params) next(list string) int {
	n := 0
	for ; p.has(list + "." + strconv.Itoa(n)); n++ {
	}
	return n
}

// bracketed is the way in which Stripe names a parameter.
func bracketed(path string) string {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		return name
	}
	return name + "[" + strings.ReplaceAll(rest, ".", "][") + "]"
}

func (p params) has(path string) bool     { _, ok := p[path]; return ok }
func (p params) text(path string) text    { return text(p[path]) }
func (p params) flag(path string) bool    { return p[path] == "true" }
func (p params) number(path string) int64 { n, _ := strconv.ParseInt(p[path], 10, 64); return n }
func (p params) list(path string) []string {
	return p.items(path, func(s string) string { return p[s] })
}
func (p params) entries(path string) []string {
	return p.items(path, func(s string) string { return s })
}

// items goes through the items of a list as long as their numbers have no gap.
func (p params) items(path string, item func(string) string) []string {
	out := []string{}
	for n := 0; n < maxParams; n++ {
		prefix := path + "." + strconv.Itoa(n)
		if !p.has(prefix) && len(p.below(prefix)) == 0 {
			break
		}
		out = append(out, item(prefix))
	}
	return out
}

// below returns the parameters inside of a path, by the rest of their paths.
func (p params) below(path string) params {
	out := params{}
	for k, v := range p {
		if rest, ok := strings.CutPrefix(k, path+"."); ok {
			out[rest] = v
		}
	}
	return out
}

// metadata returns the metadata of a new object. As at Stripe, a key without a value is not kept.
func (p params) metadata() map[string]string {
	out := p.below("metadata")
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// hash tells two requests apart.
func (p params) hash() string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(p)) {
		for _, s := range []string{k, p[k]} {
			_, _ = h.Write([]byte(strconv.Itoa(len(s)) + ":" + s))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
