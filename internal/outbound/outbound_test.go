package outbound_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/outbound"
)

// What ends behind a test may take its time.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(long); err != nil && time.Now().Before(end); err = goleak.Find() {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// long is more than anything takes that comes at all, on a busy machine as well.
const long = 2 * time.Minute

// names resolves from a list, whose answers are used up one by one but for the last.
type names struct {
	mu  sync.Mutex
	all map[string][][]netip.Addr
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.all[host]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	if len(answers) > 1 {
		n.all[host] = answers[1:]
	}
	return answers[0], nil
}

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range all {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// inside is a listener of this machine that must not be reached.
func inside(t *testing.T) (s *httptest.Server, reached *atomic.Int64) {
	t.Helper()
	reached = &atomic.Int64{}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, reached
}

var internalAddresses = []string{
	"127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fc00::1",
	"169.254.169.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1",
	"192.0.2.1", "240.0.0.1", "2001:db8::1", "2001::1", "ff02::1", "::127.0.0.1", "fec0::1", "3fff::1",
	"168.63.129.16",
}

// T104
func TestInternalAddresses(t *testing.T) {
	_, reached := inside(t)
	n := &names{all: map[string][][]netip.Addr{}}
	c := outbound.New(outbound.Config{Resolver: n})
	defer c.Close()
	for i, a := range internalAddresses {
		name := fmt.Sprintf("h%d.example.com", i)
		n.all[name] = [][]netip.Addr{addrs(a)}
		literal := "https://" + a + "/"
		if strings.Contains(a, ":") {
			literal = "https://[" + a + "]/"
		}
		if err := c.Check(literal); err == nil || err.Error() != outbound.ErrRefused.Error() {
			t.Errorf("%s: %v", literal, err)
		}
		if err := c.Check("https://" + name); err != nil {
			t.Errorf("the text of %s: %v", name, err)
		}
		for _, u := range []string{literal, "https://" + name + "/"} {
			if _, err := c.Do(t.Context(), "POST", u, nil, nil); !errors.Is(err, outbound.ErrRefused) || err.Error() != outbound.ErrRefused.Error() {
				t.Errorf("%s (%s): %v", u, a, err)
			}
		}
	}
	for _, u := range []string{
		"https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://0x7f.1/", "https://localhost/", "https://localhost./",
		"https://a.localhost/", "https://metadata.google.internal/", "https://[fe80::1%25eth0]/", "https://1.2.3.4.5/",
	} {
		if _, err := c.Do(t.Context(), "POST", u, nil, nil); !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%s: %v", u, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// T105
func TestOutbound_Rebinding(t *testing.T) {
	s, reached := inside(t)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	n := &names{all: map[string][][]netip.Addr{
		"mixed.example.com": {addrs("1.1.1.1", "127.0.0.1")},
		"six.example.com":   {addrs("1.1.1.1", "::1")},
		// Public when it is asked for the first time, ours from then on. Whoever resolves twice connects to what nobody checked.
		"turns.example.com": {addrs("127.0.0.1"), addrs("1.1.1.1")},
	}}
	c := outbound.New(outbound.Config{Resolver: n, Timeout: long})
	defer c.Close()
	for _, host := range []string{"mixed.example.com", "six.example.com", "turns.example.com"} {
		if _, err := c.Do(t.Context(), "GET", "https://"+host+":8443/", nil, nil); !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
	}
	// The name is resolved once for each connection: the second answer of the resolver is still there.
	if left, _ := n.LookupNetIP(t.Context(), "ip", "turns.example.com"); left[0].String() != "1.1.1.1" {
		t.Error("resolved twice")
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections to port %d", n, port)
	}
}

// near returns a client that may talk to this machine, and trusts its certificates.
func near(t *testing.T, cfg outbound.Config) *outbound.Client {
	t.Helper()
	cfg.Loopback = true
	cfg.Transport = func(h *http.Transport) { h.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} }
	c := outbound.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// T106
func TestRedirectsAreNotFollowed(t *testing.T) {
	_, reached := inside(t)
	for _, to := range []string{"http://169.254.169.254/latest", "http://127.0.0.1/", "file:///etc/passwd", "/again", "https://example.com/"} {
		hops := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			hops++
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}))
		a, err := near(t, outbound.Config{}).Do(t.Context(), "POST", s.URL, nil, []byte("{}"))
		if err != nil || a.Status != 307 || hops != 1 {
			t.Errorf("%s: %v %v, %d requests", to, a, err, hops)
		}
		s.Close()
	}
	if reached.Load() != 0 {
		t.Error("reached")
	}
}

// T107
func TestOddURLs(t *testing.T) {
	c := outbound.New(outbound.Config{})
	for _, u := range []string{
		"", "x", "/hook", "//example.com/", "http://example.com/", "file:///etc/passwd", "gopher://example.com/", "ftp://example.com/", "unix:/run/a.sock", "data:,a",
		"javascript:alert(1)", "https://example.com:22/", "https://example.com:25/", "https://example.com:6379/", "https://example.com:80/", "https://example.com:/",
		"https://user@example.com/", "https://user:word@example.com/", "https://exa\tmple.com/", "https://example.com/a\nb", "https://example.com\\@evil.example/",
		"https://example.com/a\\b", "https://exämple.com/", "https://еxample.com/", "https://example.com./", "https://example/", "https:example.com",
		"https://[::1", "https://.example.com/", "https://-a.example.com/", "https://a_b.example.com/", "https://example.123/", "https://example.com/" + strings.Repeat("a", 2048),
		"https://exa%6dple.com\x00/", "https://example.com /", "https://printer.local/", "https://a.b.internal/", "https://a.localhost/", "https://printer.LOCAL/",
	} {
		if err := c.Check(u); !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%q: %v", u, err)
		}
	}
	for _, u := range []string{"https://example.com", "https://example.com/hook?x=1", "https://Example.com:443/", "https://a.b.example.co.uk:8443/x", "https://xn--bcher-kva.example/", "https://1.1.1.1/", "https://[2606:4700::1111]/", "https://[::ffff:1.1.1.1]/"} {
		if err := c.Check(u); err != nil {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// T108
func TestHostileAnswers(t *testing.T) {
	stop := make(chan struct{})
	bomb := gzipped(64 << 20)
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/huge":
			chunk := make([]byte, 64<<10)
			for range (1 << 30) / len(chunk) {
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		case "/drip":
			for {
				if _, err := w.Write([]byte("a")); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-time.After(50 * time.Millisecond):
				case <-r.Context().Done():
					return
				case <-stop:
					return
				}
			}
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		case "/silent":
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}
	}))
	defer s.Close()
	defer close(stop)
	c := near(t, outbound.Config{Timeout: long})
	a, err := c.Do(t.Context(), "GET", s.URL+"/huge", nil, nil)
	if err != nil || len(a.Body) != outbound.MaxBody || sent.Load() > 64<<20 {
		t.Errorf("huge: %v, %d bytes were sent", err, sent.Load())
	}
	if a, err := c.Do(t.Context(), "GET", s.URL+"/bomb", nil, nil); err != nil || len(a.Body) != len(bomb) {
		t.Errorf("bomb: %v", err)
	}
	hasty := near(t, outbound.Config{Timeout: 400 * time.Millisecond})
	for _, path := range []string{"/drip", "/silent"} {
		if _, err := hasty.Do(t.Context(), "GET", s.URL+path, nil, nil); !errors.Is(err, outbound.ErrNoAnswer) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A webhook needs the status alone, and has it at once.
	a, err = near(t, outbound.Config{IgnoreBody: true, Timeout: long}).Do(t.Context(), "GET", s.URL+"/drip", nil, nil)
	if err != nil || a.Status != 200 || a.Body != nil {
		t.Errorf("unread: %v %v", a, err)
	}
	raw := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer raw.Close()
	go func() {
		for {
			conn, err := raw.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n"))
			for i := 0; err == nil && i < 1<<20; i++ {
				_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("a", 100))
			}
			_ = conn.Close()
		}
	}()
	if _, err := c.Do(t.Context(), "GET", "http://"+raw.Addr().String()+"/", nil, nil); !errors.Is(err, outbound.ErrNoAnswer) {
		t.Errorf("endless headers: %v", err)
	}
}

func gzipped(n int) []byte {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	_ = z.Close()
	return []byte(b.String())
}

// What is open, closed, unknown or slow inside looks alike: one error, without the address.
// T109
func TestNoOracle(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed := ln.Addr().String()
	_ = ln.Close()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	c := near(t, outbound.Config{Timeout: 200 * time.Millisecond, Resolver: &names{}})
	for _, u := range []string{"http://" + closed + "/", "http://" + silent.Addr().String() + "/", "https://unknown.example.com/"} {
		if _, err := c.Do(t.Context(), "POST", u, nil, nil); err == nil || err.Error() != outbound.ErrNoAnswer.Error() {
			t.Errorf("%s: %v", u, err)
		}
	}
	shut := outbound.New(outbound.Config{Timeout: time.Hour, Resolver: &names{}})
	for _, u := range []string{"https://127.0.0.1:8443/", "https://10.1.2.3/", "https://192.168.7.7:8443/"} {
		began := time.Now()
		if _, err := shut.Do(t.Context(), "POST", u, nil, nil); !errors.Is(err, outbound.ErrRefused) || time.Since(began) > long {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// An operator who allows private networks does not allow the addresses at which clouds give out credentials.
// T104
func TestMetadataInPrivateNetworks(t *testing.T) {
	c := outbound.New(outbound.Config{Private: true, AnyPort: true})
	defer c.Close()
	for _, u := range []string{
		"http://[fd00:ec2::254]/", "http://[fd00:ec2::23]/", "http://[fd20:ce::254]/", "http://[fd00:c1::a9fe:a9fe]/", "http://[fd00:42::42]/", "http://100.100.100.200/",
		"http://[::ffff:100.100.100.200]/", "http://168.63.129.16/", "http://169.254.169.254/", "http://[fe80::1]/",
	} {
		if err := c.Check(u); !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "http://100.64.0.1/", "http://[fd00:1::1]/", "http://127.0.0.1:8080/"} {
		must.Check(t, c.Check(u), u)
	}
}

// T111
func TestLoopbackAllowance(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer s.Close()
	off := outbound.New(outbound.Config{})
	if _, err := off.Do(t.Context(), "POST", s.URL, nil, nil); !errors.Is(err, outbound.ErrRefused) {
		t.Errorf("off: %v", err)
	}
	on := near(t, outbound.Config{})
	if a, err := on.Do(t.Context(), "POST", s.URL, nil, nil); err != nil || a.Status != 204 {
		t.Errorf("on: %v %v", a, err)
	}
	must.Check(t, on.Check("http://localhost:1234/x"), "localhost")
	for _, u := range []string{"http://example.com/", "https://10.0.0.1/", "https://[fe80::1]/", "ftp://127.0.0.1/", "http://169.254.169.254/"} {
		if err := on.Check(u); !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%s: %v", u, err)
		}
	}
}
