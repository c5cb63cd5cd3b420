package paid_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
)

// TestCutStreamIsBroken: a handler that ends in peace when its hold is over has still not ended its answer, so the
// connection must break. The recorder has no deadline that would break it by itself.
// T103
func TestCutStreamIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(100)
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "data")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), paid.Plan(plan), paid.HoldSecs(900), paid.CreditsFunc(func(*http.Request, paid.Response) toll.Credits { return 1 }))
		defer func() {
			if v, _ := recover().(error); !errors.Is(v, http.ErrAbortHandler) {
				t.Errorf("panic %v", v)
			}
			d.want(t, 1, 1, 0)
		}()
		start := time.Now()
		defer func() {
			if took := time.Since(start); took != 900*time.Second {
				t.Errorf("after %v", took)
			}
		}()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(sig, token)
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// TestQueueGivesUp: a stream that cannot be settled for a day is listed as final.
// F09
func TestQueueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(100)
		d.before = func(op string, _ int) error {
			if op == "settle" {
				return &toll.Error{Code: toll.CodeRateLimited, RetryAfterSecs: 7200}
			}
			return nil
		}
		q := paid.NewQueue()
		var got []paid.Unsettled
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "data")
			w.(http.Flusher).Flush()
		}), paid.Plan(plan), atEnd, paid.WithQueue(q), paid.OnUnsettled(func(u paid.Unsettled) { got = append(got, u) }))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(sig, token)
		h.ServeHTTP(httptest.NewRecorder(), r)
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if len(got) != 2 || got[0].Final || !got[1].Final || got[1].Attempts < 1400 || got[1].Attempts > 1500 || q.Len() != 0 {
			t.Errorf("%+v", got)
		}
	})
}
