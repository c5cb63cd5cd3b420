package signin

import (
	"strings"
	"testing"
)

// TestPolicyOfRedirects: a form leads outside only to the scheme of a program, in words that cannot end the policy.
// T122
func TestPolicyOfRedirects(t *testing.T) {
	for redirect, want := range map[string]string{
		"https://app.example.com/cb": "",
		"http://127.0.0.1:5000/cb":   "",
		"http://[::1]:5000/cb":       "",
		"com.example.app:/cb":        "com.example.app:",
		"cursor://a.b/cb":            "cursor:",
		"http://a;b/cb":              "",
		"::":                         "",
	} {
		if got := leadsTo(redirect); got != want || strings.ContainsAny(got, ";,\n") {
			t.Errorf("%q: %q, want %q", redirect, got, want)
		}
	}
}
