package checkout

import (
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/rail"
)

// A page leads only to addresses whose host it can name.
func TestReturnURL(t *testing.T) {
	for address, want := range map[string]bool{
		"https://app.example/ok?a=1": true, "http://localhost:3000/": true, "http://127.0.0.1:8080": true, "https://[2001:db8::1]:443/x": true,
		"https://app": true, "https://xn--e1afmkfd.example/": true, "https://app.example:65535/": true, "": true,
		"https://": false, "https:///x": false, "https://:443/": false, "https://app.example:/": false, "https://app.example:0/": false,
		"https://app.example:65536/": false, "https://app.example:99999/": false, "https://[fe80::1%25eth0]/": false, "https://[app]/": false,
		"https://пример.example/": false, "https://app\u202e.example/": false, "https://a_b.example/": false, "https://app..example/": false,
		"https://1.2.3/": false, "https://0x7f000001.1/": false, "https://a@app.example/": false, "javascript:1": false, "/x": false,
		"https://app.example/" + strings.Repeat("x", maxReturnURL): false,
	} {
		if err := checkSession(&rail.SessionInput{SuccessURL: address}); (err == nil) != want {
			t.Errorf("successUrl %q: %v", address, err)
		}
		if err := checkSession(&rail.SessionInput{CancelURL: address}); (err == nil) != want {
			t.Errorf("cancelUrl %q: %v", address, err)
		}
	}
}
