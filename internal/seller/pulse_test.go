package seller_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll/internal/seller"
)

// TestPulsing: a stream of our own shows that it lives from its headers on, never between two parts of an event, and not after its end.
func TestPulsing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[string]string{
			"text/event-stream": ": \n\n: \n\nid: 1\ndata: 1\n\n: \n\n", "application/json": "id: 1\ndata: 1\n\n",
		} {
			w := httptest.NewRecorder()
			seller.Pulsing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(http.StatusOK)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				time.Sleep(40 * time.Second)
				fmt.Fprint(w, "id: 1\n")
				time.Sleep(25 * time.Second)
				fmt.Fprint(w, "data: 1\n\n")
				time.Sleep(16 * time.Second)
			})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := w.Body.String(); got != want || !w.Flushed || (w.Header().Get("X-Accel-Buffering") == "no") != (kind == "text/event-stream") {
				t.Errorf("%s: %q, %v", kind, got, w.Header())
			}
		}
	})
}
