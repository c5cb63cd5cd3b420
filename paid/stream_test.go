package paid_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

// TestStream proves the three ways into a stream and the order on the wire: hold, request id, bytes, settlement.
func TestStream(t *testing.T) {
	for name, f := range map[string]func(http.ResponseWriter, func()){
		"events": func(w http.ResponseWriter, arrived func()) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			fmt.Fprint(w, "data: 1\n\n")
			arrived()
			fmt.Fprint(w, "data: 2\n\n")
		},
		"flush": func(w http.ResponseWriter, arrived func()) {
			fmt.Fprint(w, "data: 1\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			arrived()
			fmt.Fprint(w, "data: 2\n\n")
		},
		"long": func(w http.ResponseWriter, arrived func()) {
			fmt.Fprint(w, "data: 1\n\n", strings.Repeat("x", 64<<10))
			arrived()
			fmt.Fprint(w, "data: 2\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(100)
			first := make(chan struct{})
			s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("PAYMENT-RESPONSE", "forged")
				f(w, func() {
					<-first
					if d.count("settle") != 0 {
						t.Error("settled before the end")
					}
				})
			}}, paid.MaxBuffer(1<<10), paid.MaxCredits(9), paid.CreditsFunc(func(_ *http.Request, resp paid.Response) toll.Credits {
				if !resp.Streamed || resp.Body != nil || resp.Size < 18 {
					t.Errorf("%+v", resp)
				}
				return 7
			}))
			req, _ := http.NewRequest("GET", s.URL, nil)
			req.Header.Set(sig, token)
			res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
			defer res.Body.Close()
			if res.Header.Get("Service-Request-Id") != "req_0001" || res.Header.Get("payment-response") != "" ||
				!strings.HasPrefix(res.Header.Get("Cache-Control"), "private") {
				t.Errorf("header %v", res.Header)
			}
			b := make([]byte, 9)
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "data: 1\n\n" {
				t.Fatalf("%q, %v", b, err)
			}
			close(first)
			rest, err := io.ReadAll(res.Body)
			if err != nil || !strings.HasSuffix(string(rest), "data: 2\n\n") {
				t.Errorf("rest of %d bytes, %v", len(rest), err)
			}
			d.want(t, 7, 1, 0)
		})
	}
}

// TestAbortedStream cuts a stream at each third, and before its first byte.
// T103
func TestAbortedStream(t *testing.T) {
	for _, part := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			d := newDesk(100)
			step := make(chan struct{})
			s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				http.NewResponseController(w).Flush()
				for i := range 3 {
					select {
					case <-step:
					case <-r.Context().Done():
						return
					}
					fmt.Fprintf(w, "data: %d\n\n", i)
				}
			}}, atEnd)
			c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\n\r\n", token)
			in := bufio.NewReader(c)
			for line := ""; line != "\r\n"; {
				line = must.Get(in.ReadString('\n'))(t)
			}
			for i := range part {
				step <- struct{}{}
				for line := ""; line != fmt.Sprintf("data: %d\n", i); {
					line = must.Get(in.ReadString('\n'))(t)
				}
			}
			c.Close()
			eventually(t, "one outcome", d.decided)
			if part == 0 {
				d.want(t, 0, 0, 1)
			} else {
				d.want(t, 2, 1, 0)
			}
		})
	}
}

// TestStreamEndsWithItsHold: nothing leaves when the hold is over, not even when a slow reader blocks the writer.
// T103
func TestStreamEndsWithItsHold(t *testing.T) {
	d := newDesk(100)
	var cause atomic.Value
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(w, "data: %d%s\n\n", i, strings.Repeat(".", 1000)); err != nil {
				cause.Store(err)
				select { // a write may hear of it first
				case <-r.Context().Done():
				case <-time.After(long):
				}
				if !errors.Is(context.Cause(r.Context()), paid.ErrHoldEnded) {
					t.Errorf("cause %v", context.Cause(r.Context()))
				}
				return
			}
			if r.URL.Path == "/calm" {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}}, atEnd, paid.HoldSecs(1))
	start := time.Now()
	r := send(t, "GET", s.URL+"/calm", sig, token)
	if took := time.Since(start); r.err == nil || took > long || took < 900*time.Millisecond {
		t.Errorf("after %v: %v, want a broken connection after 1 s", took, r.err)
	}
	d.want(t, 2, 1, 0)

	c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
	defer c.Close()
	fmt.Fprintf(c, "GET /slow HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\n\r\n", token) // and reads nothing
	eventually(t, "settled", func() bool { return d.count("settle") == 2 })
	if err, _ := cause.Load().(error); !errors.Is(err, paid.ErrHoldEnded) {
		t.Errorf("the handler got %v", err)
	}
}

// TestLateFlush: a handler that outlives its hold may not begin to stream.
// T103
func TestLateFlush(t *testing.T) {
	d := newDesk(100)
	var mu sync.Mutex
	now := time.Unix(0, 0)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now = now.Add(61 * time.Second)
		mu.Unlock()
		fmt.Fprint(w, content)
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, paid.ErrHoldEnded) {
			t.Errorf("flush: %v", err)
		}
	}}, atEnd, paid.Clock(clock))
	if r := send(t, "GET", s.URL, sig, token); r.status != 500 || strings.Contains(r.body, content) {
		t.Errorf("%+v", r)
	}
	d.want(t, 0, 0, 1)
}

// TestLongStream keeps its memory while 1 GB flows (64 MB with -short).
// T103
func TestLongStream(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	d := newDesk(100)
	block := make([]byte, 1<<20)
	runtime.GC() // what the tests before left is not memory of the stream
	var peak uint64
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		for i := int64(0); i < size; i += int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				t.Error(err)
				return
			}
			if i%(64<<20) == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
		}
	}}, paid.MaxBuffer(4<<20))
	req, _ := http.NewRequest("GET", s.URL, nil)
	req.Header.Set(sig, token)
	res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if n != size || err != nil || peak > 64<<20 {
		t.Errorf("%d bytes, %v, heap %d MiB", n, err, peak>>20)
	}
	d.want(t, 2, 1, 0)
}

// TestStreamOfFailure: what a handler answers without success is free, however it leaves.
func TestStreamOfFailure(t *testing.T) {
	d := newDesk(100)
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, strings.Repeat("own error ", 1000))
	}}, paid.MaxBuffer(100))
	if r := send(t, "GET", s.URL, sig, token); r.status != 400 || len(r.body) != 10000 || r.header.Get("Service-Request-Id") != "" {
		t.Errorf("%+v", r)
	}
	d.want(t, 0, 0, 1)
}

// TestLateWrites: what a goroutine of the handler writes after its end goes nowhere.
func TestLateWrites(t *testing.T) {
	d := newDesk(100)
	ended, wrote := make(chan struct{}), make(chan error, 1)
	d.before = func(op string, _ int) error {
		if op == "settle" {
			close(ended)
			if err := <-wrote; err == nil {
				t.Error("a late write was taken")
			}
		}
		return nil
	}
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, content)
		go func() {
			<-ended
			_, err := fmt.Fprint(w, "late")
			w.WriteHeader(500)
			w.(http.Flusher).Flush()
			wrote <- err
		}()
	}})
	if r := send(t, "GET", s.URL, sig, token); r.status != 200 || r.body != content {
		t.Errorf("%+v", r)
	}
}
