package paid_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
)

// TestEvents_KeptAlive: an event stream gets a comment every 15 s, after its first byte, between two events and uncompressed, which counts
// as nothing delivered. No proxy gathers it.
func TestEvents_KeptAlive(t *testing.T) {
	for name, c := range map[string]struct {
		kind, encoding, first string
		want                  int
	}{
		"events":           {"text/event-stream; charset=utf-8", "", "data: 1\n\n", 4},
		"with CRLF":        {"Text/Event-Stream", "", "data: 1\r\n\r\n", 4},
		"within an event":  {"text/event-stream", "", "data: 1\n", 0},
		"compressed":       {"text/event-stream", "gzip", "data: 1\n\n", 0},
		"something else":   {"text/plain", "", "data: 1\n\n", 0},
		"before the first": {"text/event-stream", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(100)
				h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", c.kind)
					if c.encoding != "" {
						w.Header().Set("Content-Encoding", c.encoding)
					}
					fmt.Fprint(w, c.first)
					w.(http.Flusher).Flush()
					time.Sleep(65 * time.Second)
					fmt.Fprint(w, "data: 2\n\n")
				}), paid.Plan(plan), paid.HoldSecs(900), paid.CreditsFunc(func(_ *http.Request, resp paid.Response) toll.Credits {
					return toll.Credits(min(resp.Size, 2))
				}))
				w, cut := stream(h)
				body := w.Body.String()
				if cut || strings.Count(body, ": \n\n") != c.want || strings.ReplaceAll(body, ": \n\n", "") != c.first+"data: 2\n\n" {
					t.Errorf("cut %v, %q", cut, body)
				}
				if events := c.kind != "text/plain"; (w.Header().Get("X-Accel-Buffering") == "no") != events {
					t.Errorf("header %v", w.Header())
				}
			})
		})
	}
}

// The event streams of free routes are not gathered either.
func TestEvents_FreeRoute(t *testing.T) {
	up := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
	}))
	u, _ := url.Parse(up.URL)
	w := httptest.NewRecorder()
	paid.Proxy(newDesk(1), u, paid.With(paid.Plan(plan)), paid.Free("GET /*")).ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
	if w.Header().Get("X-Accel-Buffering") != "no" || w.Body.String() != "data: 1\n\n" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}
