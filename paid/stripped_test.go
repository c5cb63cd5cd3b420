package paid_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

type strippedHeaders struct{ Request, Answer, Caches map[string]string }

// readStripped returns the table of headers that the middlewares of all languages share.
func readStripped(t *testing.T) (table strippedHeaders) {
	t.Helper()
	text, err := os.ReadFile("../testdata/conformance/tables/headers.json")
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil || len(table.Request) < 15 || len(table.Answer) < 7 || len(table.Caches) < 5 {
		t.Fatal(err, table)
	}
	return table
}

// spellings returns the ways in which servers spell one name.
func spellings(name string) []string {
	return []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(strings.ToUpper(name), "-", "_")}
}

// Each header of a request is sent alone, in every spelling, as a header and as a trailer, on a paid and on a free route.
// T90
func TestStrippedRequest_NameByName(t *testing.T) {
	d := newDesk(1000)
	var headers, trailers http.Header
	up := serve(t, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		headers, trailers = r.Header.Clone(), r.Trailer.Clone()
		fmt.Fprint(w, content)
	}})
	u, _ := url.Parse(up.URL)
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan)), paid.At("PUT /ask"), paid.Free("PUT /free")))
	for name, value := range readStripped(t).Request {
		for _, spelling := range spellings(name) {
			if strings.EqualFold(spelling, "upgrade") {
				spelling = "Upgrade" // net/http reads this name itself
			}
			for _, path := range []string{"/ask", "/free"} {
				headers = nil
				out := raw(t, s.Listener.Addr().String(), "PUT "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\nX-Kept: 1\r\n"+
					"Payment-Signature: "+token+"\r\n"+spelling+": "+value+"\r\n\r\n")
				if path == "/ask" && strings.HasPrefix(out, "HTTP/1.1 405") && strings.Contains(name, "method") {
					continue // it is refused, and so does not pass
				}
				if !strings.HasPrefix(out, "HTTP/1.1 200") || headers.Get("X-Kept") != "1" {
					t.Errorf("%s on %s: %.100q, %v", spelling, path, out, headers)
				}
				for got := range headers {
					if strings.EqualFold(strings.ReplaceAll(got, "_", "-"), name) {
						t.Errorf("%s on %s reaches the upstream", got, path)
					}
				}
			}
		}
		if name == "upgrade" {
			continue // no trailer, by net/http
		}
		trailers = nil
		raw(t, s.Listener.Addr().String(), "PUT /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+name+"\r\n"+
			"Payment-Signature: "+token+"\r\n\r\n1\r\nx\r\n0\r\n"+name+": "+value+"\r\n\r\n")
		if len(trailers) > 0 {
			t.Errorf("trailers %v reach the upstream", trailers)
		}
	}
}

// Each header that tells shared caches to keep an answer is sent alone, with whole answers and with streams.
// T99
func TestCacheHeaders_NameByName(t *testing.T) {
	d := newDesk(1000)
	for name, value := range readStripped(t).Caches {
		for _, stream := range []bool{false, true} {
			res := send(t, "GET", paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Kept", "1")
				w.Header().Set(name, value)
				fmt.Fprint(w, content)
				if stream {
					w.(http.Flusher).Flush()
				}
			}}).URL, sig, token)
			if res.status != 200 || res.header.Get("X-Kept") != "1" || res.header.Get(name) != "" {
				t.Errorf("%s: %d %v", name, res.status, res.header)
			}
		}
	}
}

// Each header of an answer is sent alone, in every spelling, and as a trailer of both kinds, by a handler and by an upstream, with an
// answer that is paid and with an error.
// T90
func TestStrippedAnswer_NameByName(t *testing.T) {
	d := newDesk(1000)
	var name, value string
	var trailer, status int
	h := &work{t: t, f: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Kept", "1")
		switch trailer {
		case 0:
			w.Header()[name] = []string{value}
			w.WriteHeader(status)
			fmt.Fprint(w, content)
		case 1:
			w.Header().Set("Trailer", "X-Sum, "+name)
			w.WriteHeader(status)
			fmt.Fprint(w, content)
			w.Header().Set("X-Sum", "1")
			w.Header().Set(name, value)
		case 2:
			w.WriteHeader(status)
			fmt.Fprint(w, content)
			w.Header().Set(http.TrailerPrefix+name, value)
		}
	}}
	up := serve(t, h)
	u, _ := url.Parse(up.URL)
	fronts := map[string]string{
		"handler": paidServer(t, d, h).URL,
		"proxy":   serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan)), paid.Default())).URL,
	}
	for n, v := range readStripped(t).Answer {
		for front, at := range fronts {
			for _, spelling := range spellings(n) {
				for i := range 6 {
					trailer, status = i/2, []int{200, 404}[i%2]
					if trailer > 0 && spelling != n {
						continue
					}
					name, value = spelling, v
					req, _ := http.NewRequest("GET", at+"/ask", nil)
					req.Header.Set(sig, token)
					res := must.Get(http.DefaultClient.Do(req))(t)
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if res.StatusCode != status || res.Header.Get("X-Kept") != "1" {
						t.Errorf("%s of a %s: %d %v", spelling, front, res.StatusCode, res.Header)
					}
					for _, all := range []http.Header{res.Header, res.Trailer} {
						for got, values := range all {
							if strings.Contains(strings.Join(values, ""), v) {
								t.Errorf("%s of a %s leaves as %s", spelling, front, got)
							}
						}
					}
				}
			}
		}
	}
}
