package paid_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// leaves sends a paid request whose caller goes away when the handler says so, and returns when the gate is done with it.
func leaves(t *testing.T, f x402.Facilitator, method, value string, h func(w http.ResponseWriter, r *http.Request, leave func()), opts ...paid.Option) *httptest.ResponseRecorder {
	t.Helper()
	log, _ := logs(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	front := paid.Handler(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, leave) }), append([]paid.Option{
		paid.Plan(plan), paid.Agent(agent), paid.Credits(2), paid.PublicURL("https://agent.example.com"), log,
	}, opts...)...)
	r := httptest.NewRequest(method, "/ask", nil).WithContext(ctx)
	r.Header.Set(sig, value)
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler && fmt.Sprint(v) != "handler" {
				panic(v)
			}
		}()
		front.ServeHTTP(w, r)
	}()
	return w
}

// How a handler ends after its caller has gone.
var endings = map[string]struct {
	end    func(w http.ResponseWriter, r *http.Request)
	worked bool // what it did is to be paid where that is chosen
}{
	"answers":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content) }, true},
	"created":      {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }, true},
	"says nothing": {func(w http.ResponseWriter, r *http.Request) {}, true},
	"streams":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content); w.(http.Flusher).Flush() }, true},
	"events": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content)
	}, true},
	"long":        {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 2048)) }, true},
	"proxy, long": {func(w http.ResponseWriter, r *http.Request) { abortOnError(fmt.Fprint(w, strings.Repeat("x", 2048))) }, true},
	"fails":       {func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, false},
	"refuses":     {func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusNotFound) }, false},
	"redirects":   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, false},
	"panics":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content); panic("handler") }, false},
	"aborts":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content); panic(http.ErrAbortHandler) }, false},
	"too short": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "99")
		fmt.Fprint(w, content)
	}, false},
	"fails, stream": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); w.(http.Flusher).Flush() }, false},
}

func abortOnError(_ int, err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Work that succeeds is paid although its caller has gone: by default where the method is not safe, and where the builder says
// so. What does not succeed is free in any case.
func TestCallerGone_Buffered(t *testing.T) {
	for _, c := range []struct {
		method  string
		opts    []paid.Option
		settles bool
		unheld  bool
	}{
		{"POST", nil, true, false}, {"PUT", nil, true, false}, {"PATCH", nil, true, false}, {"DELETE", nil, true, false}, {"BREW", nil, true, false},
		{"GET", nil, false, false}, {"HEAD", nil, false, false}, {"OPTIONS", nil, false, false},
		{"GET", []paid.Option{paid.OnDisconnect(paid.Settle)}, true, false}, {"POST", []paid.Option{paid.OnDisconnect(paid.Release)}, false, false},
		{"POST", []paid.Option{paid.OnDisconnect(paid.Release), paid.OnDisconnect(paid.DisconnectByMethod)}, true, false},
		{"POST", []paid.Option{paid.Hold(false)}, true, true},
	} {
		for name, e := range endings {
			for _, wallet := range []bool{false, true} {
				if wallet && c.unheld {
					continue
				}
				f := newTill()
				value, opts := token, append([]paid.Option{paid.MaxBuffer(1024)}, c.opts...)
				if wallet {
					value = walletOf(t, asks(t, callServer(t, f, &work{t: t}).URL), 1, 1, "")
					opts = append(opts, cents)
				}
				leaves(t, f, c.method, value, func(w http.ResponseWriter, r *http.Request, leave func()) {
					leave()
					if ended := r.Context().Err() != nil; ended == c.settles {
						t.Errorf("%s %s: the context of the handler has ended: %v", c.method, name, ended)
					}
					e.end(w, r)
				}, opts...)
				paidFor := c.settles && e.worked
				if c.unheld && strings.Contains(name, "long") {
					paidFor = false // without a hold nothing streams, and what is longer than the buffer fails
				}
				switch {
				case wallet && (f.moved == 20_000) != paidFor, wallet && f.moved != 0 && f.moved != 20_000:
					t.Errorf("%s %s, wallet: moved %d, want %v", c.method, name, f.moved, paidFor)
				case !wallet && (f.burnedNow() == 2) != paidFor, !wallet && f.held != 0:
					t.Errorf("%s %s: burned %d, held %d, want %v", c.method, name, f.burnedNow(), f.held, paidFor)
				}
			}
		}
	}
}

// A stream whose caller leaves ends at once: nobody reads on. What was delivered is paid, and what was worked before the first
// byte where that is chosen.
func TestCallerGone_Stream(t *testing.T) {
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
	}
	ended := func(t *testing.T, r *http.Request) {
		select {
		case <-r.Context().Done():
			if cause := context.Cause(r.Context()); !errors.Is(cause, context.Canceled) {
				t.Errorf("the handler streamed on for nobody, until %v", cause)
			}
		case <-time.After(long):
			t.Error("the handler streams on for nobody")
		}
	}
	for name, c := range map[string]struct {
		h              func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func())
		settle, releas toll.Credits // burned
	}{
		"before the first byte": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			begin(w)
			leave()
			ended(t, r)
		}, 2, 0},
		"before the first byte, abort": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			begin(w)
			leave()
			ended(t, r)
			panic(http.ErrAbortHandler)
		}, 2, 0},
		"before the first byte, panic": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			begin(w)
			leave()
			panic("handler")
		}, 0, 0},
		"before the first byte of an error": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			w.WriteHeader(http.StatusTeapot)
			begin(w)
			leave()
			ended(t, r)
		}, 0, 0},
		"after some": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			begin(w)
			fmt.Fprint(w, "data: 1\n\n")
			leave()
			ended(t, r)
		}, 2, 2},
		"before it began": {func(t *testing.T, w http.ResponseWriter, r *http.Request, leave func()) {
			leave()
			time.Sleep(20 * time.Millisecond) // the gate has noticed, and lets the work go on
			w.Header().Set("Content-Type", "text/event-stream")
			if _, err := fmt.Fprint(w, "data: 1\n\n"); !errors.Is(err, context.Canceled) {
				t.Errorf("a write for nobody: %v", err)
			}
			ended(t, r)
		}, 2, 0},
	} { // the hold is shorter than a test waits
		for method, want := range map[string]toll.Credits{"POST": c.settle, "GET": c.releas} {
			t.Run(name+" "+method, func(t *testing.T) {
				d := newDesk(10)
				leaves(t, d, method, token, func(w http.ResponseWriter, r *http.Request, leave func()) { c.h(t, w, r, leave) }, paid.HoldSecs(5))
				if d.burnedNow() != want || d.held != 0 {
					t.Errorf("burned %d, held %d, want %d", d.burnedNow(), d.held, want)
				}
			})
		}
	}
}

// A function prices what was worked.
func TestCallerGone_Priced(t *testing.T) {
	for name, c := range map[string]struct {
		h    func(w http.ResponseWriter)
		want paid.Response
	}{
		"whole": {func(w http.ResponseWriter) { fmt.Fprint(w, content) }, paid.Response{Status: 200, Body: []byte(content), Size: int64(len(content))}},
		"stream": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content)
		}, paid.Response{Status: 200, Streamed: true, Size: int64(len(content))}},
	} {
		d := newDesk(10)
		calls := 0
		leaves(t, d, "POST", token, func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); c.h(w) }, paid.MaxCredits(9),
			paid.CreditsFunc(func(_ *http.Request, r paid.Response) toll.Credits {
				calls++
				if r.Status != c.want.Status || r.Streamed != c.want.Streamed || r.Size != c.want.Size || string(r.Body) != string(c.want.Body) {
					t.Errorf("%s: %+v", name, r)
				}
				return 7
			}))
		if d.want(t, 7, 1, 0); calls != 1 {
			t.Errorf("%s: priced %d times", name, calls)
		}
	}
}

// Work for nobody ends with its hold, and what a handler leaves unsaid then is no success.
func TestCallerGone_EndsWithTheHold(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(w http.ResponseWriter)
		burned toll.Credits
	}{
		"says nothing": {func(http.ResponseWriter) {}, 0},
		"fails":        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) }, 0},
		"succeeds":     {func(w http.ResponseWriter) { fmt.Fprint(w, content) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(10)
				start := time.Now()
				leaves(t, d, "POST", token, func(w http.ResponseWriter, r *http.Request, leave func()) {
					time.Sleep(10 * time.Second)
					leave()
					<-r.Context().Done()
					if took := time.Since(start); took != 300*time.Second || !errors.Is(context.Cause(r.Context()), paid.ErrHoldEnded) {
						t.Errorf("ended after %v by %v", took, context.Cause(r.Context()))
					}
					c.end(w)
				}, paid.HoldSecs(300))
				if d.burnedNow() != c.burned || d.held != 0 {
					t.Errorf("burned %d, held %d", d.burnedNow(), d.held)
				}
			})
		})
	}
	// A caller who stays is waited for as long as its handler works.
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		leaves(t, d, "POST", token, func(w http.ResponseWriter, r *http.Request, _ func()) {
			time.Sleep(time.Hour)
			if r.Context().Err() != nil {
				t.Error("the context ended")
			}
		}, paid.HoldSecs(300))
		d.want(t, 2, 1, 0)
	})
}

// A deadline that the builder has put on the request is no caller who leaves: what it stops is free.
func TestCallerGone_Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		log, _ := logs(t)
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := r.Context().Deadline(); !ok {
				t.Error("the handler does not see its deadline")
			}
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), context.DeadlineExceeded) {
				t.Errorf("ended by %v", context.Cause(r.Context()))
			}
			fmt.Fprint(w, content)
		}), paid.Plan(plan), log)
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set(sig, token)
		w := httptest.NewRecorder()
		http.TimeoutHandler(h, time.Second, "too late").ServeHTTP(w, r)
		synctest.Wait()
		if w.Code != 503 {
			t.Errorf("%d", w.Code)
		}
		d.want(t, 0, 0, 1)
	})
}

// Without somebody else who answers, the caller hears of the deadline, and not of a success without content.
func TestDeadlineIsNoSuccess(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		d := newDesk(10)
		log, _ := logs(t)
		h := paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), paid.Plan(plan), log)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r := httptest.NewRequest(method, "/", nil).WithContext(ctx)
		r.Header.Set(sig, token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if d.want(t, 0, 0, 1); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}

// goneServer serves over real connections, and tells when the server has noticed that a caller left.
func goneServer(t *testing.T, h http.Handler) (addr string, noticed <-chan struct{}) {
	t.Helper()
	out := make(chan struct{}, 100)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { out <- struct{}{} })
		h.ServeHTTP(w, r)
	}))
	return s.Listener.Addr().String(), out
}

// Hanging up does not get work for free, in front of a handler and of an upstream: this was 19 of 19.
func TestHangingUpIsNotFree(t *testing.T) {
	const calls = 19
	d := newDesk(1000)
	var mu sync.Mutex
	finished := 0
	left, entered := make(chan struct{}), make(chan struct{}, calls)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		entered <- struct{}{}
		select {
		case <-left:
		case <-r.Context().Done(): // an upstream notices that its caller, the gate, has gone
			t.Error("the work was cancelled")
		}
		mu.Lock()
		finished++
		mu.Unlock()
		fmt.Fprint(w, content)
	})
	log, _ := logs(t)
	u, _ := url.Parse(serve(t, h).URL)
	opts := []paid.Option{paid.Plan(plan), paid.Credits(2), log}
	for name, front := range map[string]http.Handler{
		"handler": paid.Handler(d, h, opts...), "proxy": paid.Proxy(d, u, paid.With(opts...), paid.Default()),
	} {
		t.Run(name, func(t *testing.T) {
			before := d.burnedNow()
			addr, noticed := goneServer(t, front)
			left = make(chan struct{})
			for range calls {
				c := must.Get(net.Dial("tcp", addr))(t)
				fmt.Fprintf(c, "POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nPayment-Signature: %s\r\n\r\nwork", token)
				<-entered
				c.Close()
				<-noticed
			}
			close(left)
			eventually(t, "all settled", func() bool { return d.burnedNow()-before == 2*calls })
			mu.Lock()
			defer mu.Unlock()
			if finished != calls {
				t.Errorf("%d of %d finished", finished, calls)
			}
			finished = 0
		})
	}
}

// A handler that reads half a request to its error works for free, even if it ignores the error. A handler that does not read the
// body sees no error, and its answer is settled (decision 5).
func TestCallerGone_HalfARequest(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("reads %v", reads), func(t *testing.T) {
			d := newDesk(100)
			log, _ := logs(t)
			addr, _ := goneServer(t, paid.Handler(d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if reads {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				<-time.After(50 * time.Millisecond)
				fmt.Fprint(w, content)
			}), paid.Plan(plan), log))
			c := must.Get(net.Dial("tcp", addr))(t)
			fmt.Fprintf(c, "POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\nPayment-Signature: %s\r\n\r\nhalf", token)
			eventually(t, "verified", func() bool { return d.count("verify") == 1 })
			c.Close()
			eventually(t, "one outcome", d.decided)
			if reads {
				d.want(t, 0, 0, 1)
			} else {
				d.want(t, 1, 1, 0)
			}
		})
	}
}

// Who leaves before the handler runs has asked for nothing.
func TestCallerGone_BeforeTheHandler(t *testing.T) {
	d := newDesk(10)
	ctx, leave := context.WithCancel(t.Context())
	d.after = func(op string, _ int) error {
		if op == "verify" {
			leave()
		}
		return nil
	}
	h := &work{t: t}
	log, _ := logs(t)
	r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
	r.Header.Set(sig, token)
	paid.Handler(d, h, paid.Plan(plan), paid.OnDisconnect(paid.Settle), log).ServeHTTP(httptest.NewRecorder(), r)
	if d.want(t, 0, 0, 1); h.count() != 0 {
		t.Error("the handler ran for nobody")
	}
}

// An upstream that fails is free, also when its caller has gone: what the gate says then is no success.
func TestCallerGone_UpstreamFails(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"abort":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(10)
			entered, left := make(chan struct{}), make(chan struct{})
			u, _ := url.Parse(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-left
				fail(w, r)
			})).URL)
			log, _ := logs(t)
			addr, noticed := goneServer(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.Default()))
			c := must.Get(net.Dial("tcp", addr))(t)
			fmt.Fprintf(c, "DELETE /ask HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\n\r\n", token)
			<-entered
			c.Close()
			<-noticed
			close(left)
			eventually(t, "one outcome", d.decided)
			d.want(t, 0, 0, 1)
		})
	}
}

// An upstream's stream ends when its reader leaves, and what came before is paid.
func TestCallerGone_UpstreamStreams(t *testing.T) {
	d := newDesk(10)
	ended := make(chan struct{})
	u, _ := url.Parse(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})).URL)
	log, _ := logs(t)
	addr, _ := goneServer(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), paid.Credits(2), log), paid.Default()))
	c := must.Get(net.Dial("tcp", addr))(t)
	fmt.Fprintf(c, "POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nPayment-Signature: %s\r\n\r\n", token)
	in := bufio.NewReader(c)
	for line := ""; line != "data: 1\n"; {
		line = must.Get(in.ReadString('\n'))(t)
	}
	c.Close()
	select {
	case <-ended:
	case <-time.After(long):
		t.Error("the upstream streams on for nobody")
	}
	eventually(t, "one outcome", d.decided)
	d.want(t, 2, 1, 0)
}
