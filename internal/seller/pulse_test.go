package seller_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seller"
)

// TestPulsing: a stream of our own shows that it lives from its headers on, never between two parts of an event, and not after its end.
func TestPulsing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[string]string{
			"text/event-stream": "0s 15s : \n\n 30s : \n\n 1m5s id: 1\ndata: 1\n\n 1m15s : \n\n",
			"application/json":  "0s 1m5s id: 1\ndata: 1\n\n",
		} {
			w := &timed{ResponseRecorder: httptest.NewRecorder(), begun: time.Now()}
			seller.Pulsing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(http.StatusOK)
				must.Check(t, http.NewResponseController(w).Flush())
				time.Sleep(40 * time.Second)
				fmt.Fprint(w, "id: 1\n")
				time.Sleep(25 * time.Second)
				fmt.Fprint(w, "data: 1\n\n")
				fmt.Fprint(w, "")
				w.(http.Flusher).Flush()
				time.Sleep(16 * time.Second)
			})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := strings.Join(w.sent, " "); got != want || w.Body.Len() > 0 || (w.Header().Get("X-Accel-Buffering") == "no") != (kind == "text/event-stream") {
				t.Errorf("%s: %q, %v", kind, got, w.Header())
			}
		}
	})
}

// timed remembers when what left, by a flush.
type timed struct {
	*httptest.ResponseRecorder
	begun time.Time
	sent  []string
}

func (w *timed) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

func (w *timed) Flush() {
	w.sent = append(w.sent, strings.TrimSuffix(time.Since(w.begun).String()+" "+w.Body.String(), " "))
	w.Body.Reset()
}
