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

// origin returns the comparable scheme, host and port of a url: in lower case, with the default port. All loopback names are
// one host.
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

// checkResource refuses a resource of another server than the called one: a server that copies the demand of another would
// spend the payment there. A relative or empty url belongs to the called server, and so does http for a call by https: servers
// behind a TLS proxy may not know better. Errors are safe to show.
func checkResource(called *url.URL, resource string) error {
	u, err := called.Parse(resource)
	if err != nil {
		return errors.New("the url of the resource that it asks payment for cannot be read")
	}
	if u.Scheme == "http" && called.Scheme == "https" {
		u.Scheme, u.Host = "https", strings.TrimSuffix(u.Host, ":80")
	}
	if origin(u) != origin(called) {
		return fmt.Errorf("it asks payment for %.200q, which is not at %s: call that url itself if you trust it",
			resource, HostOf(called))
	}
	return nil
}

// endpointServer returns the server of an endpoint url, which may contain patterns after its host. It is nil for paths and
// other schemes.
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
