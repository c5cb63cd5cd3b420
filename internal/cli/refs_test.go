package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

func TestShort(t *testing.T) {
	long := strings.Repeat("7", 77)
	for value, want := range map[string]string{
		long: "7777777777…", "0x" + strings.Repeat("a", 64): "0xaaaaaaaaaa…", "77": "77", "Basic": "Basic",
		"0x70997970C51812dc3A010C7d01b50e0d17dc79C8": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		"019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b10":       "019aa3b1-6a1e-7c52-9d07-1f2f9d3c6b10",
	} {
		if got := short(value); got != want {
			t.Errorf("%s: %s, not %s", value, got, want)
		}
	}
}

// TestLaidOut: a record for reading has a line for each value, and none for what has none.
func TestLaidOut(t *testing.T) {
	members, err := membersOf(json.RawMessage(`{"id":"7","name":null,"tags":["a","b"],"lots":[],"price":{"amount":"1","of":{"x":true}},"list":[{"a":1}]}`))
	must.Do(t, err)
	var got []string
	for _, row := range laidOut(members) {
		got = append(got, strings.Join(row, "="))
	}
	if want := []string{"id=7", "tags=a, b", "price.amount=1", "price.of.x=true", `list=[{"a":1}]`}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
