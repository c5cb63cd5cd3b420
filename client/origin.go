package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// origin returns scheme, host, and port of a URL in a comparable form: in lower case, with the default port filled in. 127.0.0.1
// and ::1 become localhost.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if host == "127.0.0.1" || host == "::1" {
		host = "localhost"
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(host, portOf(u))
}

// portOf returns the port of a url, or the default of its scheme.
func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
}

// checkResource returns an error if the resource is not on the called server: a server that copies the demand of another server
// would spend the payment there. A relative or empty URL is on the called server. So is an http URL after a call by https, since
// a server behind a TLS proxy may not know its scheme. Errors are safe to show.
func checkResource(called *url.URL, resource string) error {
	u, err := called.Parse(resource)
	if err != nil {
		return errors.New("the URL of the resource to pay for is malformed")
	}
	if u.Scheme == "http" && called.Scheme == "https" {
		u.Scheme, u.Host = "https", strings.TrimSuffix(u.Host, ":80")
	}
	if origin(u) != origin(called) {
		return fmt.Errorf("the server requires payment for %.200q, which is not at %s: if you trust that URL, call it directly",
			resource, HostOf(called))
	}
	return nil
}

// endpointServer returns the scheme and host of an endpoint URL, which may contain patterns after its host. It returns nil for
// paths, other schemes, and URLs with a user.
func endpointServer(endpoint string) *url.URL {
	scheme, rest, found := strings.Cut(endpoint, "://")
	if !found || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return nil
	}
	if i := strings.IndexAny(rest, `/\?#`); i >= 0 {
		rest = rest[:i]
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return nil
	}
	return u
}
