package x402_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

func TestUnknownMembers(t *testing.T) {
	type inner struct {
		A *toll.Credits `json:"a"`
	}
	type body struct {
		inner
		In   *inner         `json:"in"`
		List []inner        `json:"list"`
		Any  map[string]any `json:"any"`
		Name string         `json:"name"`
	}
	for text, want := range map[string][]string{
		`{}`: nil,
		`{"a":"1","in":{"a":1},"list":[{"a":2},null],"any":{"x":1},"name":"n"}`:    nil,
		`{"A":"1","b":{"a":1},"in":{"b":1},"list":[{},{"c":2}],"any":{"x":{}}}`:    {"A", "b", "in.b", "list[1].c"},
		`{"in":null,"list":null,"` + strings.Repeat("n", 200) + `":1,"\u0000é":2}`: {strings.Repeat("n", 80) + "...", "?\u003f"},
	} {
		if got := x402.UnknownMembers([]byte(text), new(body)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"x%d":0,`, i)
	}
	if got := x402.UnknownMembers([]byte("{"+many.String()+`"name":""}`), new(body)); len(got) != 16 {
		t.Errorf("%d members of 100 are named, want 16", len(got))
	}
}
