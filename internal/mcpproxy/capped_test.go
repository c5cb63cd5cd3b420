package mcpproxy

import (
	"strings"
	"testing"
)

// inPlaceOf returns what the proxy takes in place of a message of the server behind, which arrives in pieces.
func inPlaceOf(text string) string {
	var m capped
	for len(text) > 0 {
		n := min(len(text), 5000)
		if _, err := m.Write([]byte(text[:n])); err != nil {
			return err.Error()
		}
		text = text[n:]
	}
	return string(m.message())
}

// TestIDOfLargeMessage: the id is found wherever it stands, and nothing else is taken for it.
// T137
func TestIDOfLargeMessage(t *testing.T) {
	big := strings.Repeat("x", 16<<20)
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{"id":1,"t":"` + big + `"}}`:               "7",
		`{"result":{"t":"` + big + `\\","id":1},"jsonrpc":"2.0", "id" : 7 }`:         "7",
		`{"result":[{"id":1},"\"}],\"id\":2,` + big + `"],"id":-7}`:                  "-7",
		`{"id":"7","result":"` + big + `"}`:                                          "",
		`{"id":7.5,"result":"` + big + `"}`:                                          "",
		`{"\u0069d":8,"result":"id","x":"` + big + `"}`:                              "",
		`{"jsonrpc":"2.0","id":7,"method":"sampling/create","params":"` + big + `"}`: "",
		`{"id":123456789012345678901234567890,"result":"` + big + `"}`:               "",
		`{"id":7,"result":"small"}`:                                                  "small",
		big + "x":                                                                    "",
	} {
		got := inPlaceOf(text)
		if want == "small" {
			if got != text {
				t.Errorf("%q became %q", text, got)
			}
			continue
		}
		if want == "" && got != "" || want != "" && !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+want+`,"error":`) {
			t.Errorf("%.40s…: %.200q, want the id %q", text, got, want)
		}
	}
}
