package pace

import (
	"net/http"
	"net/netip"
	"strings"
)

// Source returns the address of the caller of a request, for IPv6 its /64 network, or "" if unknown. A local or private peer may
// be a proxy, so for such a peer it returns the last address of X-Forwarded-For.
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

// mayBeProxy reports whether an address is local or private.
func mayBeProxy(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsPrivate() }

// network returns the network that a single caller may own: an IPv4 address (/32), or an IPv6 /64 network.
func network(ip netip.Addr) netip.Prefix {
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
