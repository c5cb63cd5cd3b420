package toll

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxRedirect is the maximum length of a redirect URI in bytes.
const maxRedirect = 1024

// ValidRedirect reports whether a program may register uri as the redirect URI for authorization responses: https, http on the loopback
// interface, or a private-use scheme (RFC 8252, section 7). The URI has at most 1024 printable ASCII characters, no user, and no fragment.
//
// Section 7.1 requires a dot in a private-use scheme. Existing programs use schemes without one, so these are accepted when
// a host or a path follows and neither browsers nor operating systems handle the scheme themselves.
func ValidRedirect(uri string) bool {
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(uri) > maxRedirect || strings.ContainsFunc(uri, invisible) || strings.ContainsAny(uri, `\#`) {
		return false
	}
	u, err := url.Parse(uri)
	if err != nil || u.User != nil {
		return false
	}
	switch {
	case u.Scheme == "https":
		return u.Opaque == "" && u.Hostname() != "" && !strings.HasSuffix(u.Host, ":")
	case u.Scheme == "http":
		return u.Opaque == "" && IsLoopback(u.Hostname()) && !strings.HasSuffix(u.Host, ":")
	case isHandled(u.Scheme):
		return false
	case strings.Contains(u.Scheme, "."):
		return len(uri) > len(u.Scheme)+1
	}
	return u.Scheme != "" && u.Opaque == "" && (u.Host != "" || len(u.Path) > 1)
}

// IsLoopback reports whether host, without a port, is localhost or a loopback address without a zone.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}

// handled lists schemes that browsers or operating systems handle or execute, or that any page can claim.
var handled = []string{
	"about", "afp", "android-app", "applescript", "apt", "bitcoin", "blob", "brave", "callto", "cid", "content", "data", "dav", "davs",
	"devtools", "dict", "dns", "ed2k", "edge", "ethereum", "feed", "file", "filesystem", "firefox", "ftp", "ftps", "geo", "git", "gopher",
	"hcp", "help", "im", "imap", "info", "intent", "irc", "irc6", "ircs", "its", "jar", "javascript", "jnlp", "jnlps", "jscript", "ldap", "ldaps",
	"livescript", "magnet", "mailto", "man", "maps", "market", "matrix", "mhtml", "mid", "mk", "mms", "mmsto", "mocha", "news", "nfs",
	"nntp", "openpgp4fpr", "opera", "package", "pop", "prefs", "rdp", "res", "resource", "rlogin", "rtmp", "rtsp", "search", "search-ms",
	"sftp", "shell", "shortcuts", "sip", "sips", "smb", "sms", "smsto", "snap", "ssh", "svn", "tel", "telnet", "tftp", "tn3270", "urn",
	"vbs", "vbscript", "view-source", "vivaldi", "vnc", "wais", "webcal", "ws", "wss", "wtai", "wyciwyg", "x-man-page", "xmpp",
}

// handledFamilies are prefixes of browser and system schemes, since vendors keep adding schemes.
var handledFamilies = []string{
	"chrome", "facetime", "googlechrome", "itms", "macappstore", "microsoft", "moz-", "ms-", "safari-", "webkit-", "x-apple", "x-safari-",
}

// isHandled reports whether a scheme, in lower case, cannot belong to a program. Schemes with a plus are registered by web
// pages (web+, ext+) or name a transport.
func isHandled(scheme string) bool {
	return strings.Contains(scheme, "+") || slices.Contains(handled, scheme) ||
		slices.ContainsFunc(handledFamilies, func(family string) bool { return strings.HasPrefix(scheme, family) })
}
