package people

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

func TestPassword(t *testing.T) {
	for _, c := range []struct {
		name, password, login string
		good                  bool
	}{
		{"four words", "four words are enough", "bob", true},
		{"a random text that contains a short login", "k3bobx7qw2mfzt5lyd4hn6uvga", "bob", true},
		{"seven characters", "k3x7qw2", "bob", false},
		{"257 bytes", strings.Repeat("k3", 128) + "x", "bob", false},
		{"not UTF-8", "four words \xff enough", "bob", false},
		{"a common password", "password", "bob", false},
		{"a common password, capitals, and digits", "PassWord2026!", "bob", false},
		{"one character", "aaaaaaaaaaaa", "bob", false},
		{"the login", "roberta1", "roberta1", false},
		{"the login twice", "robertaroberta", "roberta", false},
		{"the login and digits", "Roberta2026", "roberta", false},
		{"the login and a common password", "bobpassword", "bob", false},
		{"the login inside a common password", "passbobword", "bob", false},
		{"the login and one character", "bobaaaaaaaaa", "bob", false},
	} {
		err := checkPassword(c.password, c.login)
		if (err == nil) != c.good || err != nil && toll.AsError(err).Code != toll.CodeBadRequest {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
