package apiversion_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/must"
)

var (
	v10 = apiversion.Version{Major: 1, Minor: 0}
	v11 = apiversion.Version{Major: 1, Minor: 1}
)

func TestParse(t *testing.T) {
	good := map[string]apiversion.Version{"1.0": v10, "v1.0": v10, "1.0.7": v10, "v1.1.99999": v11, "1.1": v11}
	for in, want := range good {
		if got, err := apiversion.Parse(in); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	bad := []string{
		"", " ", "1", "v1", "v", "V1.0", "9.9", "1.2", "0.9", "2.0", "1.0.7.1", "1..0", "1.0.", ".1.0", "01.0", "1.00", "1.0.07", "+1.0", "1.-0", "1.0 ",
		" 1.0", "1,0", "1.0-rc1", "1.0.x", "vv1.0", "1.1e0", "٠.١", "1.999999", "1.4294967296", "18446744073709551617.0", "1.0\x00", "latest", "*",
		strings.Repeat("1", 10<<10), "1." + strings.Repeat("0", 10<<10),
	}
	for _, in := range bad {
		if got, err := apiversion.Parse(in); !errors.Is(err, apiversion.ErrVersion) {
			t.Errorf("Parse(%.40q) = %v, %v; want ErrVersion", in, got, err)
		}
	}
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name   string
		header []string
		pin    string
		want   apiversion.Version
		from   apiversion.From
		bad    bool
	}{
		{"nothing", nil, "", v10, apiversion.FromFallback, false},
		{"pin", nil, "1.1", v11, apiversion.FromKey, false},
		{"header beats pin", []string{"1.0"}, "1.1", v10, apiversion.FromHeader, false},
		{"header beats floor", []string{"v1.1.3"}, "", v11, apiversion.FromHeader, false},
		{"bad header shows the pin", []string{"9.9"}, "1.1", v11, apiversion.FromKey, true},
		{"bad header shows the floor", []string{"1"}, "", v10, apiversion.FromFallback, true},
		{"two headers", []string{"1.0", "1.0"}, "1.1", v11, apiversion.FromKey, true},
		{"empty header", []string{""}, "", v10, apiversion.FromFallback, true},
		{"bad pin", nil, "9.9", v10, apiversion.FromFallback, true},
		{"good header beats bad pin", []string{"1.1"}, "9.9", v11, apiversion.FromHeader, false},
		{"all bad", []string{"x"}, "y", v10, apiversion.FromFallback, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, from, err := apiversion.Resolve(tt.header, tt.pin)
			if v != tt.want || from != tt.from || errors.Is(err, apiversion.ErrVersion) != tt.bad || (err != nil) != tt.bad {
				t.Errorf("got %v, %v, %v", v, from, err)
			}
		})
	}
}

func TestGated(t *testing.T) {
	if got := apiversion.Gated(); len(got) != 1 || got[0] != v11 {
		t.Errorf("Gated() = %v", got)
	}
	last := apiversion.Floor
	for _, c := range apiversion.Changes() {
		if c.Since.Before(last) || !apiversion.Floor.Before(c.Since) || apiversion.Current.Before(c.Since) {
			t.Errorf("%v is out of order or out of range", c.Since)
		}
		last = c.Since
		if c.Summary == "" || len(c.Ops) == 0 || c.Up == nil && c.Down == nil {
			t.Errorf("the change of %v %q is incomplete", c.Since, c.Summary)
		}
	}
}

// The changelog and the list of changes tell the same: a gate that users are not told of is a surprise to them.
func TestChangelog(t *testing.T) {
	raw := must.Get(os.ReadFile("../../CHANGELOG.md"))(t)
	text := strings.Join(strings.Fields(string(raw)), " ")
	for _, c := range apiversion.Changes() {
		if !strings.Contains(text, c.Summary) {
			t.Errorf("CHANGELOG.md does not say: %s", c.Summary)
		}
	}
}

func TestProofRequired(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"flat", `{"creditsConfig":{"proofRequired":true}}`, `{"creditsConfig":{"onchainMirror":true}}`},
		{"nested", `{"plan":{"creditsConfig":{"amount":1,"proofRequired":"true"}},"x":1}`, `{"plan":{"creditsConfig":{"amount":1,"onchainMirror":"true"}},"x":1}`},
		{"both places", `{"creditsConfig":{"proofRequired":true},"plan":{"creditsConfig":{"proofRequired":false}}}`, `{"creditsConfig":{"onchainMirror":true},"plan":{"creditsConfig":{"onchainMirror":false}}}`},
		{"onchainMirror wins", `{"creditsConfig":{"proofRequired":true,"onchainMirror":false}}`, `{"creditsConfig":{"proofRequired":true,"onchainMirror":false}}`},
		{"null is no value", `{"creditsConfig":{"onchainMirror":null,"proofRequired":true}}`, `{"creditsConfig":{"proofRequired":null,"onchainMirror":true}}`},
		{"other places stay", `{"proofRequired":true,"priceConfig":{"proofRequired":true},"a":[{"creditsConfig":{"proofRequired":true}}]}`, `{"proofRequired":true,"priceConfig":{"proofRequired":true},"a":[{"creditsConfig":{"proofRequired":true}}]}`},
		{"numbers stay exact", `{"creditsConfig":{"amount":100000000000000000001,"d":1.10e5,"proofRequired":true}}`, `{"creditsConfig":{"amount":100000000000000000001,"d":1.10e5,"onchainMirror":true}}`},
		{"spaces stay", "{ \"creditsConfig\" :\n{ \"proofRequired\" : true , \"a\":\t[1, 2] } }\n", "{ \"creditsConfig\" :\n{ \"onchainMirror\" : true , \"a\":\t[1, 2] } }\n"},
		{"escaped name", `{"creditsConfig":{"proof\u0052equired":true}}`, `{"creditsConfig":{"onchainMirror":true}}`},
		{"other case is another name", `{"creditsConfig":{"ProofRequired":true}}`, `{"creditsConfig":{"ProofRequired":true}}`},
		{"duplicates stay duplicates", `{"creditsConfig":{"proofRequired":true,"proofRequired":false}}`, `{"creditsConfig":{"onchainMirror":true,"onchainMirror":false}}`},
		{"duplicate of the name", `{"creditsConfig":{"onchainMirror":null,"onchainMirror":null,"proofRequired":true}}`, `{"creditsConfig":{"onchainMirror":null,"onchainMirror":null,"proofRequired":true}}`},
		{"duplicate objects", `{"creditsConfig":{"proofRequired":true},"creditsConfig":{}}`, `{"creditsConfig":{"onchainMirror":true},"creditsConfig":{}}`},
		{"bad UTF-8 stays", "{\"creditsConfig\":{\"n\":\"\xff\",\"proofRequired\":true}}", "{\"creditsConfig\":{\"n\":\"\xff\",\"onchainMirror\":true}}"},
		{"lone surrogate stays", `{"creditsConfig":{"n":"\ud800","proofRequired":true}}`, `{"creditsConfig":{"n":"\ud800","onchainMirror":true}}`},
		{"trailing bytes stay", `{"creditsConfig":{"proofRequired":true}} {}`, `{"creditsConfig":{"onchainMirror":true}} {}`},
		{"not an object", `[1,2]`, `[1,2]`},
		{"config is no object", `{"creditsConfig":7,"plan":"x"}`, `{"creditsConfig":7,"plan":"x"}`},
		{"broken", `{"creditsConfig":{"proofRequired":true}`, `{"creditsConfig":{"proofRequired":true}`},
		{"empty", ``, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, op := range []string{"registerPlan", "registerAgentWithPlan"} {
				got, err := apiversion.Up(op, v10, []byte(tt.in))
				if err != nil || string(got) != tt.want {
					t.Errorf("%s: got %s, %v\nwant %s", op, got, err, tt.want)
				}
				if got, _ := apiversion.Up(op, v11, []byte(tt.in)); string(got) != tt.in {
					t.Errorf("%s: 1.1 changed the body: %s", op, got)
				}
			}
			if got, _ := apiversion.Up("registerAgent", v10, []byte(tt.in)); string(got) != tt.in {
				t.Errorf("another operation changed: %s", got)
			}
		})
	}
}

func TestPermissionNulls(t *testing.T) {
	const nulls = `"orderLimit":null,"planCost":null,"creditsPerOrder":null`
	tests := []struct{ op, in, want string }{
		{"readPermission", `{"a":12345678901234567890123}`, `{"a":12345678901234567890123,` + nulls + `}`},
		{"readPermission", `{}`, `{` + nulls + `}`},
		{"readPermission", `{"permissionHash":"0x","metadata":{"b":"}"}}`, `{"permissionHash":"0x","metadata":{"b":"}"},` + nulls + `}`},
		{"listPermissions", `{"permissions":[{"a":1},{"b":{"permissions":[{}]}}],"total":2}`, `{"permissions":[{"a":1,` + nulls + `},{"b":{"permissions":[{}]},` + nulls + `}],"total":2}`},
		{"listPermissions", `{"permissions":[],"total":0}`, `{"permissions":[],"total":0}`},
	}
	for _, tt := range tests {
		got, err := apiversion.Down(tt.op, v10, []byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v\nwant %s", tt.in, got, err, tt.want)
		}
		if got, _ := apiversion.Down(tt.op, v11, []byte(tt.in)); string(got) != tt.in {
			t.Errorf("1.1 changed the body: %s", got)
		}
		if got, _ := apiversion.Down("readPlan", v10, []byte(tt.in)); string(got) != tt.in {
			t.Errorf("another operation changed: %s", got)
		}
	}
	for _, bad := range []string{``, `[`, `7`, `{"permissions":7}`, `{"permissions":[7]}`} {
		if got, err := apiversion.Down("listPermissions", v10, []byte(bad)); err == nil {
			t.Errorf("%q became %q without an error", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1.0", "v1.0", "1.0.7", "1", "9.9", "", "v", "1.0.7.1", "01.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := apiversion.Parse(s)
		if err != nil {
			return
		}
		if v.Before(apiversion.Floor) || apiversion.Current.Before(v) {
			t.Fatalf("%q became %v, which is out of range", s, v)
		}
		if again, err := apiversion.Parse(v.String()); err != nil || again != v {
			t.Fatalf("%v does not read back: %v, %v", v, again, err)
		}
		if rest := strings.TrimPrefix(s, "v"); !strings.HasPrefix(rest, v.String()) {
			t.Fatalf("%q became %v", s, v)
		}
	})
}

// FuzzUp holds that the request gate never turns a body that the decoder would refuse into one that it takes, or back.
func FuzzUp(f *testing.F) {
	for _, s := range []string{
		`{"creditsConfig":{"proofRequired":true}}`, `{"plan":{"creditsConfig":{"proofRequired":true,"onchainMirror":null}}}`, `{"creditsConfig":{"proof\u0052equired":1}}x`, `{"a":"\ud800"}`, `[`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out := must.Get(apiversion.Up("registerPlan", v10, in))(t)
		if json.Valid(in) != json.Valid(out) {
			t.Fatalf("validity changed: %q -> %q", in, out)
		}
		again, err := apiversion.Up("registerPlan", v11, out)
		if err != nil || string(again) != string(out) {
			t.Fatalf("1.1 changed %q", out)
		}
	})
}
