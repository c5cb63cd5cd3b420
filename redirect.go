package toll

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxRedirect bounds an address to which a browser is sent back, in characters.
const maxRedirect = 1024

// ValidRedirect reports whether a program may register an address, to which the browser of a person brings the answer of an
// authorization server: https, http on the machine of the person, or a scheme of a program (RFC 8252, section 7). It has at
// most 1024 visible characters of ASCII, no user and no fragment.
//
// A scheme of a program has a dot, as that section asks for. Programs that run today have schemes without one, so these are
// taken as well when a host or a path follows and neither browsers nor systems handle them in a way of their own.
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

// IsLoopback reports whether a host without a port is this machine.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}

// handled are schemes that browsers or systems handle in a way of their own, run, or let any page claim.
var handled = []string{
	"about", "afp", "android-app", "applescript", "apt", "bitcoin", "blob", "brave", "callto", "cid", "content", "data", "dav", "davs",
	"devtools", "dict", "dns", "ed2k", "edge", "ethereum", "feed", "file", "filesystem", "firefox", "ftp", "ftps", "geo", "git", "gopher",
	"hcp", "help", "im", "imap", "info", "intent", "irc", "irc6", "ircs", "its", "jar", "javascript", "jnlp", "jnlps", "jscript", "ldap", "ldaps",
	"livescript", "magnet", "mailto", "man", "maps", "market", "matrix", "mhtml", "mid", "mk", "mms", "mmsto", "mocha", "news", "nfs",
	"nntp", "openpgp4fpr", "opera", "package", "pop", "prefs", "rdp", "res", "resource", "rlogin", "rtmp", "rtsp", "search", "search-ms",
	"sftp", "shell", "shortcuts", "sip", "sips", "smb", "sms", "smsto", "snap", "ssh", "svn", "tel", "telnet", "tftp", "tn3270", "urn",
	"vbs", "vbscript", "view-source", "vivaldi", "vnc", "wais", "webcal", "ws", "wss", "wtai", "wyciwyg", "x-man-page", "xmpp",
}

// handledFamilies begin the schemes of browsers and systems, of which there are new ones.
var handledFamilies = []string{
	"chrome", "facetime", "googlechrome", "itms", "macappstore", "microsoft", "moz-", "ms-", "safari-", "webkit-", "x-apple", "x-safari-",
}

// isHandled reports whether a scheme, in lower case, is not a program's own. One with a plus is registered by web pages
// (web+, ext+) or names a transport.
func isHandled(scheme string) bool {
	return strings.Contains(scheme, "+") || slices.Contains(handled, scheme) ||
		slices.ContainsFunc(handledFamilies, func(family string) bool { return strings.HasPrefix(scheme, family) })
}
