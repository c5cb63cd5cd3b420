package pace_test

import (
	"net/http"
	"testing"

	"github.com/tollhq/toll/internal/pace"
)

func TestSource(t *testing.T) {
	for _, c := range []struct {
		from      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:80", nil, "192.0.2.1"},
		{"192.0.2.1:80", []string{"192.0.2.2"}, "192.0.2.1"}, // anybody may write it
		{"127.0.0.1:80", nil, "127.0.0.1"},
		{"127.0.0.1:80", []string{"192.0.2.2"}, "192.0.2.2"},
		{"[::1]:80", []string{"192.0.2.2, 192.0.2.3"}, "192.0.2.3"},
		{"[::1]:80", []string{"192.0.2.2", "192.0.2.3"}, "192.0.2.3"},
		{"10.0.0.1:80", []string{"192.0.2.2"}, "192.0.2.2"},
		{"127.0.0.1:80", []string{"nonsense"}, "127.0.0.1"},
		{"[2001:db8::1]:80", nil, "2001:db8::/64"},
		{"127.0.0.1:80", []string{"2001:db8:0:0:1::1"}, "2001:db8::/64"},
		{"[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"[fe80::1%eth0]:80", nil, "fe80::/64"},
		{"@", nil, ""},
	} {
		r := &http.Request{RemoteAddr: c.from, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := pace.Source(r); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.from, c.forwarded, got, c.want)
		}
	}
}
