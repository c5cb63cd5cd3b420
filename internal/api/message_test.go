package api_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// raw sends bytes over TCP and returns the answers until the connection ends, as it must.
func (s *stack) raw(t *testing.T, parts ...string) (answers []answer, closed bool) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
	defer func() { _ = conn.Close() }()
	go func() {
		for _, p := range parts {
			_, _ = io.WriteString(conn, p)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r := bufio.NewReader(conn)
	for {
		must.Do(t, conn.SetReadDeadline(time.Now().Add(long)))
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			var timeout net.Error
			ok := asTimeout(err, &timeout)
			return answers, !ok
		}
		b := must.Get(io.ReadAll(res.Body))(t)
		answers = append(answers, answer{res.StatusCode, res.Header, b})
	}
}

func asTimeout(err error, into *net.Error) bool {
	for err != nil {
		if e, ok := err.(net.Error); ok {
			*into = e
			return e.Timeout()
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

// What two readers could split in two ways is refused, and what follows it on the connection is not run.
// T88
func TestRequestSmuggling(t *testing.T) {
	s := newStack(t)
	auth := "Authorization: Bearer " + s.b1.key + "\r\n"
	second := "POST " + base + "/protocol/plans HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: " + fmt.Sprint(len(freePlan)) + "\r\n\r\n" + freePlan
	head := "POST " + base + "/protocol/plans HTTP/1.1\r\nHost: x\r\n" + auth
	chunked := head + "Transfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		name, message string
		bare          bool // net/http refuses it before there is a request
	}{
		{"CL and TE", head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		{"TE and CL", head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", false},
		{"two lengths", head + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", false},
		{"two equal lengths", head + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", false},
		{"length list", head + "Content-Length: 0, 0\r\n\r\n", false},
		{"TE xchunked", head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", false},
		{"TE twice", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		{"TE list", head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", false},
		{"TE in HTTP/1.0", strings.Replace(strings.Replace(chunked, "HTTP/1.1", "HTTP/1.0", 1), "POST", "GET", 1) + "0\r\n\r\n", false},
		{"CL with plus", head + "Content-Length: +0\r\n\r\n", false},
		{"CL with minus", head + "Content-Length: -1\r\n\r\n", false},
		{"CL in hex", head + "Content-Length: 0x0\r\n\r\n", false},
		{"space before colon", head + "Content-Length : 0\r\n\r\n", false},
		{"folded line", head + "X-A: 1\r\n Content-Length: 5\r\nContent-Length: 0\r\n\r\n", false},
		{"folded with a tab", head + "X-A: 1\r\n\tb\r\nContent-Length: 0\r\n\r\n", false},
		{"bare line feed in the head", head + "X-A: 1\nContent-Length: 0\r\n\r\n", false},
		{"head ends with bare line feeds", strings.ReplaceAll(head, "\r\n", "\n") + "\n", false},
		{"line without colon", head + "Content-Length\r\n\r\n", false},
		{"bare line feed in a chunk size", chunked + "2\n{}\r\n0\r\n\r\n", false},
		{"chunk size with sign", chunked + "+2\r\n{}\r\n0\r\n\r\n", false},
		{"chunk size too long", chunked + "00000000000000002\r\n{}\r\n0\r\n\r\n", false},
		{"chunk extension of 1 MB", chunked + "2;" + strings.Repeat("x", 1<<20) + "\r\n{}\r\n0\r\n\r\n", false},
		{"NUL in a header", head + "X-A: a\x00b\r\nContent-Length: 0\r\n\r\n", true},
		{"carriage return in a header", head + "X-A: a\rb\r\nContent-Length: 0\r\n\r\n", true},
		{"space in a name", head + "X A: b\r\nContent-Length: 0\r\n\r\n", true},
	}
	for _, tt := range tests {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/split=%v", tt.name, split), func(t *testing.T) {
				parts := []string{tt.message + second}
				if split {
					cut := len(head) - 10
					parts = []string{tt.message[:cut], tt.message[cut:], second}
				}
				answers, closed := s.raw(t, parts...)
				if len(answers) != 1 || answers[0].status != 400 || !closed {
					t.Fatalf("%d answers, closed %v: %+v", len(answers), closed, answers)
				}
				if !tt.bare {
					checkHeaders(t, answers[0])
					if answers[0].code() != "BCK.HTTP.400" {
						t.Errorf("%s", answers[0].body)
					}
				}
			})
		}
	}
	if a := s.do(s.b1, "GET", base+"/protocol/plans", ""); a.member(t, "total") != json.Number("0") {
		t.Errorf("a request behind a refused one was run: %s", a.body)
	}

	t.Run("good messages pass", func(t *testing.T) {
		get := "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
		for _, parts := range [][]string{
			{get + get + get},
			{get[:7], get[7:20], get[20:] + get[:3], get[3:] + get},
			{second + get + second},
			{second[:len(second)-20], second[len(second)-20:] + get, second},
			{"POST " + base + "/x402/release HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" + get + get},
		} {
			// One more, behind them, shows that the connection went on.
			answers, closed := s.raw(t, append(parts, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")...)
			if len(answers) != 4 || answers[3].status != 200 || !closed {
				t.Errorf("%q: %d answers, closed %v", parts, len(answers), closed)
			}
			for _, a := range answers {
				checkHeaders(t, a)
			}
		}
	})
	t.Run("a chunked request is the last one", func(t *testing.T) {
		answers, closed := s.raw(t, chunked+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(freePlan), freePlan), second)
		if len(answers) != 1 || answers[0].status != 200 || !closed {
			t.Errorf("%d answers, closed %v: %+v", len(answers), closed, answers)
		}
	})
}

// A refused message behind a good one does not disturb the good one.
// T88
func TestRefusedBehindGood(t *testing.T) {
	s := newStack(t)
	bad := "GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n"
	answers, closed := s.raw(t, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"+bad)
	if len(answers) != 2 || answers[0].status != 200 || answers[1].status != 400 || !closed {
		t.Fatalf("closed %v: %+v", closed, answers)
	}
}

// T91
func TestMessage_Sizes(t *testing.T) {
	s := newStack(t)
	// The block is what the client sends: Host, Authorization, and the header under test.
	fixed := len("Host: \r\n") + len(strings.TrimPrefix(s.url, "http://")) + len("User-Agent: t\r\n") + len("X-Fill: \r\n")
	get := func(path string, headers ...string) answer {
		return s.do(actor{}, "GET", path, "", append([]string{"User-Agent", "t", "Accept-Encoding", "identity"}, headers...)...)
	}
	fixed += len("Accept-Encoding: identity\r\n")
	t.Run("header bytes", func(t *testing.T) {
		if a := get("/health", "X-Fill", strings.Repeat("x", 16<<10-fixed)); a.status != 200 {
			t.Errorf("16 KiB: %d %s", a.status, a.body)
		}
		for _, n := range []int{16<<10 - fixed + 1, 40 << 10, 64 << 10, 200 << 10, 2 << 20} {
			if a := get("/health", "X-Fill", strings.Repeat("x", n)); a.status != 431 || a.code() != "BCK.HTTP.431" {
				t.Errorf("%d bytes: %d %s", n, a.status, a.body)
			}
		}
	})
	t.Run("header lines", func(t *testing.T) {
		lines := func(n int) (h []string) {
			for i := range n {
				h = append(h, fmt.Sprintf("X-%d", i), "1")
			}
			return h
		}
		if a := get("/health", lines(197)...); a.status != 200 { // with Host, User-Agent, Accept-Encoding
			t.Errorf("200 lines: %d %s", a.status, a.body)
		}
		if a := get("/health", lines(198)...); a.status != 431 || a.code() != "BCK.HTTP.431" {
			t.Errorf("201 lines: %d %s", a.status, a.body)
		}
		same := slices.Repeat([]string{"X-Same", "1"}, 201)
		if a := get("/health", same...); a.status != 431 {
			t.Errorf("201 lines of one name: %d", a.status)
		}
	})
	t.Run("url", func(t *testing.T) {
		if a := get("/health?" + strings.Repeat("x", 8<<10-len("/health?"))); a.status != 200 {
			t.Errorf("8 KiB: %d %s", a.status, a.body)
		}
		for _, path := range []string{"/health?" + strings.Repeat("x", 8<<10-len("/health?")+1), "/" + strings.Repeat("x", 8<<10), "/" + strings.Repeat("/", 30<<10)} {
			if a := get(path); a.status != 414 || a.code() != "BCK.HTTP.414" {
				t.Errorf("longer: %d %s", a.status, a.body)
			}
		}
	})
	t.Run("body", func(t *testing.T) {
		body := func(n int) string {
			const rest = `{"name":"x","priceConfig":{},"creditsConfig":{},"fill":""}`
			return strings.Replace(rest, `"fill":"`, `"fill":"`+strings.Repeat("x", n-len(rest)), 1)
		}
		if a := s.do(s.b1, "POST", base+"/protocol/plans", body(1<<20)); a.status != 200 {
			t.Errorf("1 MiB: %d %.200s", a.status, a.body)
		}
		for _, n := range []int{1<<20 + 1, 2 << 20} {
			if a := s.do(s.b1, "POST", base+"/protocol/plans", body(n)); a.status != 413 || a.code() != "BCK.HTTP.413" {
				t.Errorf("%d bytes: %d %s", n, a.status, a.body)
			}
		}
		if a := s.do(actor{}, "POST", base+"/protocol/plans", body(1<<20+1)); a.status != 401 {
			t.Errorf("401 comes before 413: %d", a.status)
		}
	})
	t.Run("chunks without an end", func(t *testing.T) {
		req := must.Get(http.NewRequest("POST", s.url+base+"/protocol/plans", io.MultiReader(strings.NewReader(`{"name":"`), endless{})))(t)
		req.Header.Set("Authorization", "Bearer "+s.b1.key)
		if a := s.send(req); a.status != 413 || a.code() != "BCK.HTTP.413" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	t.Run("slow body", func(t *testing.T) {
		start := time.Now()
		answers, closed := s.impatient().raw(t, "POST "+base+"/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.b1.key+"\r\nContent-Length: 100\r\n\r\n{")
		if len(answers) != 1 || answers[0].status != 408 || answers[0].code() != "BCK.HTTP.408" || !closed {
			t.Fatalf("closed %v: %+v", closed, answers)
		}
		checkHeaders(t, answers[0])
		if time.Since(start) > long/2 {
			t.Error("it took too long")
		}
	})
	t.Run("slow body that nobody reads", func(t *testing.T) {
		answers, closed := s.impatient().raw(t, "POST "+base+"/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		if len(answers) != 1 || answers[0].status != 404 || !closed {
			t.Fatalf("closed %v: %+v", closed, answers)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// T93
func TestMessage_Verbs(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	settle := base + "/x402/settle"
	body := paymentBody(plan, token, "")
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "post", "Post", "BREW", "PROPFIND"} {
		a := s.do(s.b1, method, settle, body)
		if a.status != 405 || a.header.Get("Allow") != "OPTIONS, POST" {
			t.Errorf("%s: %d, Allow %q", method, a.status, a.header.Get("Allow"))
		}
	}
	for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		if a := s.do(s.b1, "GET", settle+"?_method=POST", body, h, "POST"); a.status != 405 {
			t.Errorf("%s: %d", h, a.status)
		}
	}
	if a := s.do(s.b1, "OPTIONS", settle, body); a.status != 204 || len(a.body) != 0 {
		t.Errorf("OPTIONS: %d %s", a.status, a.body)
	}
	if a := s.do(s.b1, "GET", settle, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="); a.status != 405 {
		t.Errorf("upgrade: %d", a.status)
	}
	if a := s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance", ""); a.text(t, "used") != "0" {
		t.Errorf("something was burned: %s", a.body)
	}
	for _, raw := range []string{"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n"} {
		answers, _ := s.raw(t, raw)
		if len(answers) != 1 || answers[0].status != 204 && answers[0].status != 404 {
			t.Fatalf("%q: %+v", raw, answers)
		}
		checkHeaders(t, answers[0])
	}
	head := s.do(actor{}, "HEAD", base+"/protocol/plans/"+plan, "")
	if get := s.do(actor{}, "GET", base+"/protocol/plans/"+plan, ""); head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Length") != fmt.Sprint(len(get.body)) {
		t.Errorf("HEAD of a public record: %d %q, %s of %d", head.status, head.body, head.header.Get("Content-Length"), len(get.body))
	}
}

// The router answers unclean paths directly, never with a redirect, and takes nothing for another path than it is.
func TestPaths(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	path := base + "/protocol/plans/" + plan
	for _, same := range []string{path + "/", "/" + path, strings.ReplaceAll(path, "/", "//"), strings.ReplaceAll(path, "/", "///") + "//", strings.Replace(path, "plans", "pl%61ns", 1), path + "?x=1"} {
		if a := s.do(actor{}, "GET", same, ""); a.status != 200 {
			t.Errorf("%s: %d %s", same, a.status, a.body)
		}
	}
	for _, other := range []string{
		"/api", "/api/v1", "/api/v1/", "/api/v2/protocol/plans/" + plan, base + "/./protocol/plans/" + plan, base + "/x/../protocol/plans/" + plan, strings.Replace(path, "/plans/", "/plans%2f", 1),
		strings.Replace(path, "plans", "PLANS", 1), "/docs%2ferrors", base + "/protocol%2Fplans", path + "/more", path + ";a", base + "/protocol/plans/%2e%2e/plans/" + plan, base + "/nothing", "/favicon.ico", base + "/protocol/token/" + plan, "/index.html", "/docs/", "/docs//errors/x",
	} {
		want := 404
		if other == path+";a" {
			want = 400 // an id that is none
		}
		if other == "/docs/" {
			want = 200
		}
		if a := s.do(actor{}, "GET", other, ""); a.status != want || want == 404 && a.code() != "BCK.HTTP.404" {
			t.Errorf("%s: %d %.200s", other, a.status, a.body)
		}
	}
	if a := s.do(actor{}, "POST", base+"/nothing", "{}"); a.status != 404 {
		t.Errorf("404 comes before 401: %d", a.status)
	}
	if a := s.do(actor{}, "POST", base+"//x402//verify/", "{"); a.status != 401 || a.text(t, "invalidReason") != "unauthorized_server" {
		t.Errorf("401 comes before 400: %d %s", a.status, a.body)
	}
	for _, retired := range []string{"POST /protocol/plans/redeem", "POST /protocol/plans/burn", "POST /protocol/agents/initialize/1", "GET /protocol/token/1/2", "GET /protocol/token/validate/1"} {
		method, p, _ := strings.Cut(retired, " ")
		if a := s.do(actor{}, method, base+p, ""); a.status != 410 || a.code() != "BCK.HTTP.410" || a.text(t, "hint") == "" {
			t.Errorf("%s: %d %s", retired, a.status, a.body)
		}
	}
}

// T94
func TestHostAndForwardingHeaders(t *testing.T) {
	s := newStack(t)
	foreign := []string{
		"X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "ftp", "X-Forwarded-For", "203.0.113.9", "X-Forwarded-Prefix", "/evil.example",
		"Forwarded", "host=evil.example;proto=ftp", "X-Original-URL", "/evil.example", "X-Rewrite-URL", "/evil.example", "X-Real-Ip", "203.0.113.9",
	}
	for _, path := range []string{"/", "/health", "/ready", "/openapi.json", "/docs", "/.well-known/jwks.json", base + "/nothing", base + "/protocol/plans"} {
		req := must.Get(http.NewRequest("GET", s.url+path, nil))(t)
		req.Host = "evil.example"
		for i := 0; i < len(foreign); i += 2 {
			req.Header.Set(foreign[i], foreign[i+1])
		}
		a := s.send(req)
		if bytes.Contains(a.body, []byte("evil.example")) || strings.Contains(fmt.Sprint(a.header), "evil.example") {
			t.Errorf("%s repeats a foreign host: %v %s", path, a.header, a.body)
		}
	}
	if a := s.do(actor{}, "GET", "/", ""); a.text(t, "apiBase") != publicURL+base {
		t.Errorf("apiBase %s", a.text(t, "apiBase"))
	}
	if a := s.do(actor{}, "GET", base+"/nothing", ""); a.text(t, "docsUrl") != publicURL+"/docs/errors#bck-http-404" {
		t.Errorf("docsUrl %s", a.text(t, "docsUrl"))
	}
}

// T95
func TestResponseSplitting(t *testing.T) {
	s := newStack(t)
	for _, id := range []string{"a b", "a\tb", "ünïcode", "a\u2028b", strings.Repeat("x", 129), ""} {
		a := s.do(actor{}, "GET", "/health", "", "x-correlation-id", id)
		if got := a.header.Get("X-Correlation-Id"); got == id || !isUUID(got) {
			t.Errorf("correlation id %q became %q", id, got)
		}
	}
	if a := s.do(actor{}, "GET", "/health", "", "x-correlation-id", "a", "x-correlation-id", "b"); !isUUID(a.header.Get("X-Correlation-Id")) {
		t.Errorf("two correlation ids became %q", a.header.Get("X-Correlation-Id"))
	}
	for _, name := range []string{"x-correlation-id", "x-request-id"} {
		want := "~!" + strings.Repeat("x", 126)
		if a := s.do(actor{}, "GET", base+"/nothing", "", name, want); a.header.Get("X-Correlation-Id") != want || a.text(t, "correlationId") != want {
			t.Errorf("%s became %q", name, a.header.Get("X-Correlation-Id"))
		}
	}
	if a := s.do(actor{}, "GET", "/health", "", "x-correlation-id", "mine", "x-request-id", "other"); a.header.Get("X-Correlation-Id") != "mine" {
		t.Errorf("x-request-id won: %q", a.header.Get("X-Correlation-Id"))
	}
	evil := `a\r\nSet-Cookie: x=1\r\n\r\n\u2028\u0085`
	plan := s.plan(s.b1, strings.Replace(freePlan, `"Free"`, `"`+evil+`"`, 1))
	zero := s.do(s.b1, "POST", base+"/protocol/plans", strings.Replace(freePlan, `"Free"`, `"a\u0000b"`, 1))
	if zero.status != http.StatusBadRequest || zero.code() != string(toll.CodeBadRequest) {
		t.Errorf("a plan name with U+0000: %d %s", zero.status, zero.body)
	}
	for _, a := range []answer{
		s.do(actor{}, "GET", base+"/protocol/plans/"+plan, ""),
		s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", ""),
		s.do(s.b1, "GET", base+"/protocol/plans/a%0d%0aSet-Cookie:%20x=1", ""),
		s.do(s.b1, "GET", base+"/protocol/plans/a%00b%e2%80%a8", ""),
		s.do(s.b1, "GET", base+"/a%0d%0aSet-Cookie:%20x=1", ""),
		s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"x","authType":"`+evil+`"}`),
		s.do(s.b1, "GET", base+"/protocol/plans?cursor=a%0d%0ab", "", "Service-Version", "9.9"),
	} {
		if a.header.Get("Set-Cookie") != "" {
			t.Errorf("a header was split: %v", a.header)
		}
		for name, values := range a.header {
			for _, v := range values {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("%s: %q", name, v)
				}
			}
		}
		if bytes.ContainsFunc(a.body, func(r rune) bool { return r < ' ' && r != '\n' }) {
			t.Errorf("raw control character in a body: %q", a.body)
		}
	}
}

func isUUID(s string) bool {
	id, err := toll.ParseUUID(s)
	return err == nil && id == s && s[14] == '4' && strings.ContainsRune("89ab", rune(s[19]))
}

// T97
func TestMediaTypes(t *testing.T) {
	s := newStack(t)
	post := func(body []byte, headers ...string) answer {
		t.Helper()
		req := must.Get(http.NewRequest("POST", s.url+base+"/protocol/plans", bytes.NewReader(body)))(t)
		req.Header.Set("Authorization", "Bearer "+s.b1.key)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		return s.send(req)
	}
	plan := []byte(freePlan)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	must.Get(z.Write(plan))(t)
	must.Do(t, z.Close())
	for _, pass := range [][]string{
		nil, {"Content-Type", "application/json"}, {"Content-Type", "application/json; charset=utf-8"}, {"Content-Type", "Application/JSON;charset=UTF-8"},
		{"Content-Type", "application/vnd.toll+json"}, {"Content-Encoding", "identity", "Content-Type", "application/json"},
	} {
		if a := post(plan, pass...); a.status != 200 {
			t.Errorf("%v: %d %s", pass, a.status, a.body)
		}
	}
	utf16 := []byte{0xff, 0xfe}
	for _, c := range plan {
		utf16 = append(utf16, c, 0)
	}
	before := s.do(s.b1, "GET", base+"/protocol/plans", "").member(t, "total")
	for _, tt := range []struct {
		body    []byte
		headers []string
	}{
		{plan, []string{"Content-Type", "text/plain"}},
		{plan, []string{"Content-Type", "text/json"}},
		{plan, []string{"Content-Type", "application/jsonx"}},
		{plan, []string{"Content-Type", "application/json, text/plain"}},
		{plan, []string{"Content-Type", "application/json", "Content-Type", "text/plain"}},
		{[]byte("name=x"), []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{plan, []string{"Content-Type", "multipart/form-data; boundary=x"}},
		{utf16, []string{"Content-Type", "application/json; charset=utf-16"}},
		{zipped.Bytes(), []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}},
		{plan, []string{"Content-Type", "application/json", "Content-Encoding", "br"}},
	} {
		if a := post(tt.body, tt.headers...); a.status != 415 || a.code() != "BCK.HTTP.415" {
			t.Errorf("%v: %d %s", tt.headers, a.status, a.body)
		}
	}
	if after := s.do(s.b1, "GET", base+"/protocol/plans", "").member(t, "total"); after != before {
		t.Errorf("a refused body was stored: %v, %v", before, after)
	}
	if a := s.do(s.s1, "POST", base+"/protocol/plans/1/order", "", "Content-Type", "text/plain"); a.status != 404 {
		t.Errorf("an empty body needs no type: %d %s", a.status, a.body)
	}
}

// T99
func TestSharedCache(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, hash := s.token(s.s1, plan)
	for _, a := range []answer{
		s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, "")),
		s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")),
		s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance", ""),
		s.do(s.s1, "GET", base+"/api-keys", ""),
		s.do(s.s1, "GET", base+"/x402/permissions/"+hash, ""),
		s.do(actor{}, "GET", base+"/protocol/plans/"+plan, ""),
		s.do(actor{}, "GET", base+"/protocol/plans", ""),
		s.do(actor{}, "GET", base+"/nothing", ""),
		s.do(actor{}, "GET", "/health", ""),
		s.do(actor{}, "GET", "/", ""),
	} {
		if got := a.header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control %q of %s", got, a.body)
		}
	}
	for _, h := range []string{"Range", "If-None-Match", "If-Modified-Since"} {
		if a := s.do(s.s1, "GET", base+"/api-keys", "", h, "*"); a.status != 200 {
			t.Errorf("%s: %d", h, a.status)
		}
	}
	if a := s.do(actor{}, "GET", "/.well-known/jwks.json", ""); a.status != 200 || a.header.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("JWKS: %d %q", a.status, a.header.Get("Cache-Control"))
	}
}

func TestCORS(t *testing.T) {
	s := newStack(t)
	for _, path := range []string{base + "/x402/verify", base + "/protocol/plans", base + "/nothing", "/health"} {
		a := s.do(actor{}, "OPTIONS", path, "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
		allowed := a.header.Get("Access-Control-Allow-Headers")
		if a.status != 204 || a.header.Get("Access-Control-Allow-Credentials") != "" || !strings.Contains(allowed, "Authorization") || !strings.Contains(allowed, "Service-Version") ||
			!strings.Contains(allowed, "mcp-protocol-version") || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "PATCH") {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	a := s.do(actor{}, "GET", base+"/protocol/plans", "", "Origin", "https://app.example")
	if exposed := a.header.Get("Access-Control-Expose-Headers"); a.header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(exposed, "Service-Version-Resolved-From") ||
		!strings.Contains(exposed, "payment-required") {
		t.Errorf("%d %v", a.status, a.header)
	}
}
