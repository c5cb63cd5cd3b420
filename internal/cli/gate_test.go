package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// FuzzGateFlags: whatever the flags are, they are read, or are a usage error. Nothing panics where the gate is built from them.
func FuzzGateFlags(f *testing.F) {
	plan := "44742763076047497640080230236781474129970992727896593861997347135613135571071"
	for _, s := range [][6]string{
		{"http://127.0.0.1:3000", "POST /ask=2", "GET /*", "", "", ""}, {"http://127.0.0.1:3000", "GET /files/*=1", "GET /files/*", "2", "https://gate.example.com", "settle"},
		{"http://", "=", " ", "-1", "https://gate.example.com/?a", "release"}, {"https://u:p@a/b?c#d", "GET /a=b=2", "GET /{", "99999999999999999999", "https://u@gate.example.com", "x"},
		{"//a", "GET /%2f=1", "GET /../a", "0x2", "https://gate.example.com/#a", ""}, {"http://[::1", "G /\x00=1", "\xff", "1 ", "http://%zz", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4], s[5])
	}
	c := client.New("", client.WithURL("http://127.0.0.1:1"))
	f.Fuzz(func(t *testing.T, upstream, route, free, credits, public, gone string) {
		flags := gateFlags{credits: credits, routes: []string{route}, sellerFlags: sellerFlags{
			upstream: upstream, plan: plan, publicURL: public, callerGone: gone, holdSecs: 60, free: []string{free}, logLevel: "info",
		}}
		g, err := settingsOfGate(quietApp(), flags)
		if err != nil {
			if !errors.As(err, new(usageError)) {
				t.Errorf("%+v: %v is not a usage error", flags, err)
			}
			return
		}
		paid.Proxy(c, g.upstream, append(g.routes, paid.With(g.options...))...)
	})
}

func quietApp() *app {
	return &app{console: console{err: io.Discard, set: settings{names: x402.Default}}}
}

func TestGateFlags(t *testing.T) {
	good := gateFlags{sellerFlags: sellerFlags{upstream: "http://127.0.0.1:3000", plan: "7", holdSecs: 60, logLevel: "info"}}
	for name, c := range map[string]struct {
		change func(*gateFlags)
		says   string // "" is no error
	}{
		"nothing else":      {func(*gateFlags) {}, ""},
		"free, everything":  {func(f *gateFlags) { f.free = []string{"GET /*"} }, ""},
		"wildcard":          {func(f *gateFlags) { f.routes = []string{"GET /files/*=1"} }, ""},
		"wildcard, inside":  {func(f *gateFlags) { f.routes = []string{"GET /*/files=1"} }, `--route "GET /*/files=1"`},
		"half a wildcard":   {func(f *gateFlags) { f.free = []string{"GET /file*"} }, `--free "GET /file*"`},
		"twice":             {func(f *gateFlags) { f.free, f.routes = []string{"GET /a"}, []string{"GET /a=1"} }, `"GET /a"`},
		"small letters":     {func(f *gateFlags) { f.free = []string{"get /a"} }, `--free "get /a"`},
		"encoded":           {func(f *gateFlags) { f.routes = []string{"GET /a%20b=1"} }, `--route "GET /a%20b=1"`},
		"no price":          {func(f *gateFlags) { f.routes = []string{"GET /a"} }, `--route "GET /a"`},
		"half a credit":     {func(f *gateFlags) { f.routes = []string{"GET /a=0.5"} }, `--route "GET /a=0.5"`},
		"negative":          {func(f *gateFlags) { f.credits = "-1" }, `--credits must be a whole number`},
		"public, query":     {func(f *gateFlags) { f.publicURL = "https://gate.example.com/?a=b" }, "--public-url"},
		"public, user":      {func(f *gateFlags) { f.publicURL = "https://me@gate.example.com" }, "--public-url"},
		"public, fragment":  {func(f *gateFlags) { f.publicURL = "https://gate.example.com#x" }, "--public-url"},
		"public":            {func(f *gateFlags) { f.publicURL = "https://gate.example.com/v1/" }, ""},
		"hold":              {func(f *gateFlags) { f.holdSecs = 901 }, "--hold-secs"},
		"settle":            {func(f *gateFlags) { f.callerGone = "settle" }, ""},
		"release":           {func(f *gateFlags) { f.callerGone = "release" }, ""},
		"neither":           {func(f *gateFlags) { f.callerGone = "burn" }, `--caller-gone must be settle or release; got "burn"`},
		"case":              {func(f *gateFlags) { f.routes = []string{"POST /Ask=2", "POST /ask=1"} }, `differs from "POST /Ask" only in case`},
		"case-sensitive":    {func(f *gateFlags) { f.routes, f.cased = []string{"POST /Ask=2", "POST /ask=1"}, true }, ""},
		"upstream, no host": {func(f *gateFlags) { f.upstream = "http:///x" }, "--upstream"},
	} {
		flags := good
		c.change(&flags)
		_, err := settingsOfGate(quietApp(), flags)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.As(err, new(usageError))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A price that the plan does not take is an error at the start, and names the flag and the bounds.
func TestGatePricesInPlan(t *testing.T) {
	bounds := &x402.Terms{MinAmount: 2, MaxAmount: 5}
	for name, c := range map[string]struct {
		credits string
		routes  []string
		terms   *x402.Terms
		says    string
	}{
		"within":      {"2", []string{"POST /a=5", "POST /b=3"}, bounds, ""},
		"free":        {"0", []string{"POST /a=0"}, bounds, ""},
		"above":       {"7", nil, bounds, "--credits is 7, but the plan charges 2 to 5 credits per request"},
		"below":       {"1", nil, bounds, "--credits is 1, but the plan charges 2 to 5 credits per request"},
		"the default": {"", nil, bounds, "--credits is 1, but the plan charges 2 to 5 credits per request"},
		"a route": {"2", []string{"POST /a=5", "POST /b=6"}, bounds,
			`--route "POST /b=6" is 6, but the plan charges 2 to 5 credits per request`},
		"exactly":  {"7", nil, &x402.Terms{MinAmount: 3, MaxAmount: 3}, "--credits is 7, but the plan charges 3 credits per request"},
		"a period": {"7", nil, &x402.Terms{MinAmount: 1, MaxAmount: 1, Kind: toll.LimitTime.Kind()}, ""},
	} {
		flags := gateFlags{credits: c.credits, routes: c.routes, sellerFlags: sellerFlags{
			upstream: "http://127.0.0.1:3000", plan: "7", holdSecs: 60, logLevel: "info",
		}}
		g := must.Get(settingsOfGate(quietApp(), flags))(t)
		err := inPlan(c.terms, g.prices...)
		if (err == nil) != (c.says == "") || err != nil && (err.Error() != c.says || !errors.As(err, new(usageError))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
