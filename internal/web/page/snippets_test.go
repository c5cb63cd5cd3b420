package page

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

// TestSnippets_HostileAddress: a buyer pastes the commands of an agent into a shell, and its seller chose the address. The shell runs nothing
// of the address.
func TestSnippets_HostileAddress(t *testing.T) {
	c := &Context{Site: &Site{Config: Config{PublicURL: "https://pay.example.com"}}}
	for _, address := range []string{
		"https://a.example.com/ask;pwd", "https://a.example.com/ask?a=1&pwd", "https://a.example.com/ask|pwd", "https://a.example.com/ask\npwd",
		"https://a.example.com/'pwd'", "https://a.example.com/`pwd`", "https://a.example.com/$(pwd)", "https://a.example.com;pwd/ask",
		`https://a.example.com/";pwd;"`, `https://a.example.com/\';pwd`,
	} {
		a := &toll.Agent{ID: "7"}
		a.API.Endpoints = toll.EndpointList{{Verb: "POST", URL: address}}
		for _, s := range append(Snippets(c, a, "5"), Selling(c, a, "5", 1, "")...) {
			if s.Name != "curl" && s.Name != "toll gate" {
				continue
			}
			text := "curl() { :; }; jq() { :; }; toll() { :; }\n" + s.Text
			if out, err := exec.Command("sh", "-c", text).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s of %q: %v, printed %q:\n%s", s.Name, address, err, out, s.Text)
			}
			if strings.Contains(s.Text, "example.com/ask;pwd") && !strings.Contains(s.Text, "'https://a.example.com/ask;pwd'") {
				t.Errorf("%s has the address without quotes:\n%s", s.Name, s.Text)
			}
		}
	}
}
