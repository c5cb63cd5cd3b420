package toll_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

// TestValidRedirect: the answer of an authorization server goes to https, to this machine, or to a program, and to nothing
// that a browser or a system runs, opens or misreads.
func TestValidRedirect(t *testing.T) {
	for _, uri := range []string{
		"https://prog.example.com/cb", "https://prog.example.com:8443", "http://127.0.0.1:7000/cb", "http://[::1]/cb?x=1", "http://localhost/", "com.example.app:/cb",
		"com.example.app:cb", "cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-retrieval/oauth/user-x/callback?y=1", "vscode://publisher.extension/cb",
		"vscode-insiders:/cb", "app:///cb", "CURSOR://anysphere.cursor-mcp/oauth/callback",
	} {
		if !toll.ValidRedirect(uri) {
			t.Errorf("%q is refused", uri)
		}
	}
	for _, uri := range []string{
		"javascript:alert(1)", "JavaScript://host/%0aalert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "javascript\x00:alert(1)", "data:text/html,x", "data:/text/html,x",
		"vbscript:/x", "blob:https://prog.example.com/1", "blob:/x", "file:///etc/passwd", "filesystem:https://a/b", "filesystem:/a", "about:/blank", "about:blank", "view-source:/a",
		"view-source:https://a/", "ftp://prog.example.com/", "ws://prog.example.com/", "WSS://prog.example.com/", "mailto:a@b", "mailto:/a", "tel:/1", "sms://1", "intent://x/y",
		"intent:x", "content://x/y", "chrome://settings/x", "chrome-extension://id/cb", "moz-extension://id/cb", "res://x/y", "jar:/x", "ms-settings:/x", "ms-appinstaller://x/y",
		"microsoft-edge:/x", "x-apple.systempreferences:/x", "web+app://x/y", "ext+app://x/y", "search-ms:/x", "shell:/x", "ssh://host/x", "magnet:/x", "ethereum://x/y",
		"jnlp://x/y", "JNLPS://x/y", "x-man-page://ls/x", "x-safari-https://x/y", "macappstores://x/y",
		"cursor:cb", "cursor:", "cursor:/", "cursor://", "cursor:?x", "cursor://u@h/cb", "cursor://h/cb#f", "cursor://h/cb#", `cursor://h\cb`, "cursor://h/ü",
		"com.example.app:", "http://prog.example.com/cb", "http://localhost.example.com/", "https:///cb", "https:cb", "https://prog.example.com:/cb", "https://u@prog.example.com/",
		"https://prog.example.com/a b", "https://prog.example.com/?a b", "http://[::1%25lo]/cb", "com.example.app:/a b",
		"/cb", "//h/cb", "cb", "", ":", "1app://h/cb", "https://prog.example.com/" + strings.Repeat("a", 1000),
	} {
		if toll.ValidRedirect(uri) {
			t.Errorf("%q is taken", uri)
		}
	}
}
