package paid_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// renewing is a desk that renews holds.
type renewing struct {
	*desk
	until time.Time // when it begins to refuse, zero: never
	why   *toll.Error
}

func (d *renewing) Renew(_ context.Context, r *x402.RenewRequest) (*x402.RenewResponse, error) {
	if err := d.enter("renew"); err != nil {
		return nil, err
	}
	if !d.until.IsZero() && !time.Now().Before(d.until) {
		return nil, d.why
	}
	return &x402.RenewResponse{Success: true, AgentRequestID: r.AgentRequestID, HoldExpiresAt: toll.At(time.Now().Add(time.Duration(r.HoldSecs) * time.Second))}, nil
}

// ticker is an event stream with an event every 10 s.
func ticker(w http.ResponseWriter, r *http.Request, n int) (sent int) {
	w.Header().Set("Content-Type", "text/event-stream")
	for ; sent < n; sent++ {
		if _, err := fmt.Fprintf(w, "data: %d\n\n", sent); err != nil {
			return sent
		}
		select {
		case <-time.After(10 * time.Second):
		case <-r.Context().Done():
			return sent + 1
		}
	}
	return sent
}

func stream(h http.Handler) (w *httptest.ResponseRecorder, cut bool) {
	w = httptest.NewRecorder()
	return w, streamTo(w, h)
}

func streamTo(w http.ResponseWriter, h http.Handler) (cut bool) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(sig, token)
	defer func() { cut = recover() == http.ErrAbortHandler }()
	h.ServeHTTP(w, r)
	return false
}

// TestFixedPriceStream: a stream whose price is known is settled before its first byte leaves, and then runs for longer than a hold.
// Without a settlement it does not begin.
// T103
func TestFixedPriceStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(100)
		before := 0
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(nil)
			w.(http.Flusher).Flush() // headers alone cost nothing
			before = d.count("settle")
			ticker(w, r, 20)
		}), paid.Plan(plan), paid.Credits(2), paid.HoldSecs(60))
		w, cut := stream(h)
		got := reply{w.Code, w.Header(), w.Body.String(), nil}
		if cut || w.Code != 200 || before != 0 || strings.Count(got.body, "data: ") != 20 || !got.receipt(t).Success {
			t.Errorf("cut %v, %d settled before, %+v", cut, before, got)
		}
		d.want(t, 2, 1, 0)

		d = newDesk(100)
		d.refuseS = &x402.SettleResponse{ErrorReason: x402.ReasonInsufficientFunds, Code: toll.CodeInsufficientCredits, Network: "eip155:84532"}
		sent := -1
		w, cut = stream(paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sent = ticker(w, r, 3) }), paid.Plan(plan)))
		if cut || w.Code != 402 || strings.Contains(w.Body.String(), "data: 0") || sent != 0 {
			t.Errorf("refused: cut %v, sent %d, %d %s", cut, sent, w.Code, w.Body)
		}
		d.want(t, 0, 0, 1)
	})
}

// TestRenewedStream: the hold of a stream whose price is known at its end is renewed at half of its life, and the stream is not cut.
// T103
func TestRenewedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &renewing{desk: newDesk(100)}
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(95 * time.Second) // before its first byte too
			ticker(w, r, 20)
		}), paid.Plan(plan), atEnd, paid.HoldSecs(60))
		w, cut := stream(h)
		if cut || strings.Count(w.Body.String(), "data: ") != 20 || d.count("renew") != 9 {
			t.Errorf("cut %v, %d renewals: %s", cut, d.count("renew"), w.Body)
		}
		d.want(t, 2, 1, 0)
		time.Sleep(time.Hour)
		if d.count("renew") != 9 {
			t.Error("it is renewed when it has ended")
		}
	})
}

// TestStreamNotRenewed: a stream whose hold cannot be renewed is cut when the hold ends, ends with an error event, and pays. A hold is
// renewed for 24 hours at most.
// T103
func TestStreamNotRenewed(t *testing.T) {
	for name, c := range map[string]struct {
		why  *toll.Error
		from time.Duration
		last time.Duration // at least and at most a minute more
	}{
		"refused":      {toll.NewError(toll.CodeHoldOver), 100 * time.Second, 140 * time.Second},
		"away":         {toll.NewError(toll.CodeUnavailable), 100 * time.Second, 140 * time.Second},
		"for 24 hours": {nil, 48 * time.Hour, 24*time.Hour - 2*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, took := time.Now(), time.Duration(0)
				d := &renewing{desk: newDesk(100), why: c.why, until: start.Add(c.from)}
				h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ticker(w, r, 100_000)
					took = time.Since(start)
					time.Sleep(40 * time.Second) // a handler that ends late: no comment follows
				}), paid.Plan(plan), atEnd, paid.HoldSecs(60))
				w, cut := stream(h)
				if !cut || took < c.last || took > c.last+2*time.Minute || took > 24*time.Hour {
					t.Errorf("cut %v after %v", cut, took)
				}
				if !strings.HasSuffix(w.Body.String(), "\n\nevent: error\ndata: {\"message\":\"The hold for this stream has expired.\"}\n\n") {
					t.Errorf("the end: %s", w.Body.String()[max(0, w.Body.Len()-200):])
				}
				if most := 40; name == "away" && d.count("renew") > most {
					t.Errorf("%d tries", d.count("renew"))
				}
				d.want(t, 2, 1, 0)
			})
		})
	}
}

// TestStreamCutBesideWrites: a write is under way when the hold ends, and the handler writes again before the stream is cut. The stream still
// ends with its error event.
// T103
func TestStreamCutBesideWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(100) // renews nothing. The hold ends before the first comment, whose lock would stop the clock of the test
		w := &slowWrites{ResponseRecorder: httptest.NewRecorder()}
		var last error
		cut := streamTo(w, paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for last == nil {
				_, last = io.WriteString(w, "data: 1\n\n")
			}
			time.Sleep(time.Second) // the cut waits for the lock of the writer
		}), paid.Plan(plan), atEnd, paid.HoldSecs(10)))
		if body := w.Body.String(); !cut || last != paid.ErrHoldEnded || !strings.HasSuffix(body, "\n\nevent: error\ndata: {\"message\":\"The hold for this stream has expired.\"}\n\n") {
			t.Errorf("cut %v, %v, the end: %q", cut, last, body[max(0, len(body)-100):])
		}
		d.want(t, 2, 1, 0)
	})
}

// slowWrites takes 70 ms for each write.
type slowWrites struct{ *httptest.ResponseRecorder }

func (w *slowWrites) Write(p []byte) (int, error) {
	time.Sleep(70 * time.Millisecond)
	return w.ResponseRecorder.Write(p)
}

func (w *slowWrites) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// TestErrorStream: a stream that is no 2xx costs nothing, so its hold is released before its first byte leaves. It runs for longer
// than a hold, whether the price is fixed or not.
// T103
func TestErrorStream(t *testing.T) {
	for name, price := range map[string]paid.Option{"fixed": paid.Credits(2), "at the end": atEnd} {
		for _, renews := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(100)
				var f x402.Facilitator = d
				if renews {
					f = &renewing{desk: d}
				}
				released := 0
				w, cut := stream(paid.Handler(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(http.StatusBadGateway)
					_, _ = io.WriteString(w, "data: sorry\n\n")
					released = d.count("release")
					ticker(w, r, 20)
				}), paid.Plan(plan), price, paid.HoldSecs(60)))
				if cut || w.Code != http.StatusBadGateway || strings.Count(w.Body.String(), "data: ") != 21 || released != 1 || d.count("renew") != 0 {
					t.Errorf("%s, renews %v: cut %v, %d after %d releases and %d renewals: %s", name, renews, cut, w.Code, released, d.count("renew"), w.Body)
				}
				d.want(t, 0, 0, 1)
			})
		}
	}
}

// TestStalledReader: a reader who takes nothing of a stream, or no more of it, until its hold ends pays for it.
// T103
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(100)
		w := &stalled{header: http.Header{}, woken: make(chan struct{})}
		cut := streamTo(w, paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush() // no event stream: its comments would wait for the write
			_, _ = io.WriteString(w, "answer")
		}), paid.Plan(plan), atEnd))
		if !cut {
			t.Error("the connection lasts")
		}
		d.want(t, 2, 1, 0)
	})
	d := newDesk(100)
	event := strings.Repeat("data: x\n", 16<<20/8) // which no buffer of the system holds
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event)
	}}, atEnd, paid.HoldSecs(2))
	req, _ := http.NewRequest("GET", s.URL, nil)
	req.Header.Set(sig, token)
	res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
	defer res.Body.Close()
	must.Get(bufio.NewReader(res.Body).ReadByte())(t)
	eventually(t, "one outcome", d.decided)
	d.want(t, 2, 1, 0)
}

// stalled is a connection whose reader takes nothing, as one of HTTP/2 with an empty window.
type stalled struct {
	header http.Header
	woken  chan struct{}
	once   sync.Once
}

func (w *stalled) Header() http.Header { return w.header }
func (w *stalled) WriteHeader(int)     {}

func (w *stalled) Write([]byte) (int, error) {
	<-w.woken
	return 0, os.ErrDeadlineExceeded
}

func (w *stalled) SetWriteDeadline(time.Time) error {
	w.once.Do(func() { close(w.woken) })
	return nil
}
