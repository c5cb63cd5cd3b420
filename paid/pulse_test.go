package paid_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
		kind, encoding, first string // first in parts
		want                  int
		length                bool
	}{
		"events":           {"text/event-stream; charset=utf-8", "", "data: 1\n\n", 4, false},
		"in parts":         {"text/event-stream", "", "data: 1\n|\n", 4, false},
		"with CRLF":        {"Text/Event-Stream", "", "data: 1\r\n\r\n", 4, false},
		"within an event":  {"text/event-stream", "", "data: 1\n", 0, false},
		"with a length":    {"text/event-stream", "", "data: 1\n\n", 0, true},
		"compressed":       {"text/event-stream", "gzip", "data: 1\n\n", 0, false},
		"something else":   {"text/plain", "", "data: 1\n\n", 0, false},
		"before the first": {"text/event-stream", "", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, w, size := newDesk(100), &flushing{ResponseRecorder: httptest.NewRecorder()}, int64(-1)
				first := strings.ReplaceAll(c.first, "|", "")
				h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", c.kind)
					if c.encoding != "" {
						w.Header().Set("Content-Encoding", c.encoding)
					}
					if c.length {
						w.Header().Set("Content-Length", strconv.Itoa(len(first+"data: 2\n\n")))
					}
					for part := range strings.SplitSeq(c.first, "|") {
						fmt.Fprint(w, part)
					}
					w.(http.Flusher).Flush()
					time.Sleep(65 * time.Second)
					fmt.Fprint(w, "data: 2\n\n")
				}), paid.Plan(plan), paid.HoldSecs(900), paid.CreditsFunc(func(_ *http.Request, resp paid.Response) toll.Credits {
					size = resp.Size
					return 2
				}))
				var unsent atomic.Int64
				time.AfterFunc(64*time.Second, func() { unsent.Store(int64(w.unsent())) })
				cut := streamTo(w, h)
				body := w.Body.String()
				if cut || unsent.Load() != 0 || strings.Count(body, ": \n\n") != c.want || strings.ReplaceAll(body, ": \n\n", "") != first+"data: 2\n\n" {
					t.Errorf("cut %v, %d bytes not flushed, %q", cut, unsent.Load(), body)
				}
				if size != int64(len(first+"data: 2\n\n")) {
					t.Errorf("the price is asked for %d bytes", size)
				}
				if events := c.kind != "text/plain"; (w.Header().Get("X-Accel-Buffering") == "no") != events {
					t.Errorf("header %v", w.Header())
				}
			})
		})
	}
}

// flushing remembers how much of an answer was flushed.
type flushing struct {
	*httptest.ResponseRecorder
	mu      sync.Mutex
	flushed int
}

func (w *flushing) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseRecorder.Write(p)
}

func (w *flushing) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *flushing) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushed = w.Body.Len()
}

func (w *flushing) unsent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Body.Len() - w.flushed
}

// TestEvents_FreeRoute: proxies do not buffer the event streams of free routes either.
func TestEvents_FreeRoute(t *testing.T) {
	for kind, want := range map[string]string{"text/event-stream": "no", "application/x-ndjson": "no", "text/plain": ""} {
		up := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, "data: 1\n\n")
		}))
		u, _ := url.Parse(up.URL)
		w := httptest.NewRecorder()
		paid.Proxy(newDesk(1), u, paid.With(paid.Plan(plan)), paid.Free("GET /*")).ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
		if w.Header().Get("X-Accel-Buffering") != want || w.Body.String() != "data: 1\n\n" {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
	}
}
