package pace

import (
	"net/http"
	"net/netip"
	"strings"
)

// Source returns the address of the caller of a request, of IPv6 the network of 64 bits, which a caller
// may have whole; "" when it is not known. A peer on this machine or in a private network may be a
// proxy, and is believed about where a request comes from.
func Source(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip := from.Addr().Unmap()
	if mayBeProxy(ip) {
		lines := r.Header.Values("X-Forwarded-For")
		if len(lines) > 0 {
			all := strings.Split(lines[len(lines)-1], ",")
			if told, err := netip.ParseAddr(strings.TrimSpace(all[len(all)-1])); err == nil {
				ip = told.Unmap().WithZone("")
			}
		}
	}
	if ip.Is6() {
		return network(ip).String()
	}
	return ip.String()
}

// mayBeProxy reports whether an address is of this machine or of a private network.
func mayBeProxy(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsPrivate() }

// network returns what one caller may have whole: an address of IPv4, 64 bits of IPv6.
func network(ip netip.Addr) netip.Prefix {
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
