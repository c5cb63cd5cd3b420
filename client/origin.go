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

// origin returns scheme, host and port of a url in the form in which they are compared: in lower
// case, with the port that the scheme implies. The names of the loopback interface are one host.
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

// portOf returns the port of a url, or the one that its scheme implies.
func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
}

// checkResource refuses a resource that is not at the url that was called: a server that repeats
// what another one asks for would spend the payment there. A relative url, or none, is one of the
// called server. So is one of http where https was called: behind a proxy that ends TLS many
// servers do not know better. Errors are safe to show.
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

// endpointServer returns the server of the url of an endpoint, which may hold patterns behind its
// host. It is nil for paths and for urls that no HTTP client can call.
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
