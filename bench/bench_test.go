package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
)

// TestMain lets the test program be a process under test, as the command itself is.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := childMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSlice_Latency(t *testing.T) {
	a, b := newSlice(time.Second), newSlice(time.Second)
	for i := range 1000 {
		a.add(time.Duration(i) * time.Millisecond)
		b.add(2 * time.Hour)
	}
	if p := a.latency.ValueAtQuantile(50); p < 490_000 || p > 510_000 {
		t.Errorf("median of 0 to 999 ms is %d us", p)
	}
	a.latency.Merge(b.latency)
	p := time.Duration(a.latency.ValueAtQuantile(99)) * time.Microsecond
	if n := a.latency.TotalCount(); n != 2000 || p < 59*time.Minute || p > 61*time.Minute {
		t.Errorf("p99 of %d values is %v, want an hour", n, p)
	}
}

func TestRequestIDsAreNeverTheSame(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[string(b)]++
		mu.Unlock()
		_, _ = w.Write([]byte("fine"))
	}))
	defer s.Close()
	m := &market{}
	addr := strings.TrimPrefix(s.URL, "http://")
	ls := must.Get(lanes(connections, []string{"a", "b"}, func(string) (message, error) { return m.post(addr, "/", idText) }))(t)
	l := &load{addr: addr, lanes: ls, want: []byte("fine")}
	answered := 0
	for slices := 0; slices < 2; {
		got := l.run(10*time.Millisecond, 100*time.Millisecond)
		if got.fault != nil || got.done > got.answered {
			t.Fatalf("%d of %d answers, %v", got.done, got.answered, got.fault)
		}
		answered += got.answered
		if got.done > 0 { // a busy machine may do nothing in a tenth of a second
			slices++
		}
	}
	if len(seen) != answered {
		t.Errorf("%d ids in %d requests", len(seen), answered)
	}
}

func TestRefusalsFailASlice(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"status":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "fine", http.StatusPaymentRequired) },
		"content": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"isValid":false}`)) },
		"chunks": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("fine"))
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			l := &load{addr: strings.TrimPrefix(s.URL, "http://"), lanes: [][]message{{{raw: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")}}}, want: []byte("fine")}
			if got := l.run(0, time.Minute); got.fault == nil || got.done > 0 {
				t.Errorf("%d answers were taken, %v", got.done, got.fault)
			}
			if l.once() == nil {
				t.Error("once took it")
			}
		})
	}
}

// TestRun is a whole run, as short as it can be: every scenario answers, and the ledgers are clean.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	results, profiles := filepath.Join(dir, "results", "latest.json"), filepath.Join(dir, "profiles")
	args := []string{"-rounds", "1", "-seconds", "0.15", "-accounts", "64", "-rows", "1000", "-cold", "128", "-peers", "-loads", "0.5", "-data", dir, "-json", results, "-profile", profiles}
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		args = append(args, "-no-postgres")
	}
	var out, errs bytes.Buffer
	var r report
	// When the machine stalls, a service answers 503 or 202, which ends the run, or a slice ends before the first answer. Then the test
	// makes another run.
	for try := 1; ; try++ {
		err := run(context.Background(), args, &out, &errs)
		if err == nil {
			text := must.Get(os.ReadFile(results))(t)
			r = report{}
			must.Do(t, json.Unmarshal(text, &r))
			if try == 3 || !slices.ContainsFunc(r.Rows, func(w *row) bool { return w.Missing == "" && w.P50 == 0 }) {
				break
			}
		} else if said := out.String() + errs.String() + err.Error(); try == 3 || !strings.Contains(said, "answer 503") && !strings.Contains(said, "answer 202") {
			t.Fatalf("%v\n%s%s", err, &out, &errs)
		}
		t.Logf("%v\n%s%s", err, &out, &errs)
		out.Reset()
		errs.Reset()
	}
	for _, w := range r.Rows {
		if w.Missing == "" && (w.PerSec == 0 || w.P50 == 0 || w.P99 < w.P50) {
			t.Errorf("%s: %+v", w.Name, w)
		}
		if w.Missing != "" && !strings.Contains(out.String(), "MISSING "+w.Name) {
			t.Errorf("%s is missing silently", w.Name)
		}
	}
	echo, settle := r.row(yardstick).InOut, r.row("settle-sqlite").InOut
	if diff := echo[1] - settle[1]; diff < -32 || diff > 32 {
		t.Errorf("an answer of the echo has %d bytes, one of settle %d", echo[1], settle[1])
	}
	if len(r.Audits) == 0 || r.Audits[0].Burns < 2 {
		t.Errorf("audits: %+v", r.Audits)
	}
	loaded := func(p *proof) bool { return p.Engine == full+sqlite && p.Burns > 1000 }
	if !slices.ContainsFunc(r.Audits, loaded) {
		t.Error("no database with a thousand settlements was audited")
	}
	if w := r.row("derived-sqlite"); w.Bytes < 100 || w.Logged < w.Bytes {
		t.Errorf("a settlement keeps %g bytes and writes %g to the log", w.Bytes, w.Logged)
	}
	for _, name := range []string{blockYardstick, "order-chain", "order-delegated-chain"} {
		if w := r.row(name); w.PerBlock <= 0 || w.P50Blocks <= 0 || w.P99Blocks < w.P50Blocks {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if p := r.Audits[len(r.Audits)-1]; p.Engine != onChain || p.Paid < 2*buyers || p.Orders != int64(p.Paid) || p.Transfers != int64(p.Paid) ||
		p.Units != int64(p.Paid)*orderPrice || p.Granted != int64(p.Paid)*orderGrant {
		t.Errorf("audit of the orders: %+v", p)
	}
	if p, _ := filepath.Glob(filepath.Join(profiles, "paid-sqlite.agent-sqlite.0.pprof")); len(p) != 1 {
		t.Error("no profile of the agent")
	}
}

func TestOrdersThatDoNotAddUp(t *testing.T) {
	right := func() (*proof, *audit) {
		return &proof{Paid: 7, Transfers: 7, Units: 7 * orderPrice}, &audit{Orders: 7, Granted: 7 * orderGrant}
	}
	if p, a := right(); len(p.prove(a)) > 0 {
		t.Errorf("7 orders: %q", p.prove(a))
	}
	for name, spoil := range map[string]func(*proof, *audit){
		"an order that was not answered": func(_ *proof, a *audit) { a.Orders++ },
		"paid twice":                     func(p *proof, _ *audit) { p.Transfers, p.Units = p.Transfers+1, p.Units+orderPrice },
		"not paid":                       func(p *proof, _ *audit) { p.Transfers, p.Units = p.Transfers-1, p.Units-orderPrice },
		"another amount":                 func(p *proof, _ *audit) { p.Units-- },
		"granted twice":                  func(_ *proof, a *audit) { a.Granted += orderGrant },
		"a credit too many":              func(_ *proof, a *audit) { a.Granted++ },
	} {
		p, a := right()
		if spoil(p, a); len(p.prove(a)) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-accounts", "63"}, {"-cold", "63"}, {"-processes", "1"}, {"-loads", "0"}, {"-scenario", "no such"}, {"-scenario", "("}, {"more"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q were taken", args)
		}
	}
}

// A stall shows in every request that was due in it, not only in those that were under way.
func TestOpenLoop_Stall(t *testing.T) {
	var n, begun atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%10 == 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		begun.CompareAndSwap(0, time.Now().UnixNano())
		time.Sleep(300*time.Millisecond - time.Since(time.Unix(0, begun.Load())))
		_, _ = w.Write([]byte("fine"))
	}))
	defer s.Close()
	msg := message{raw: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")}
	l := &load{addr: strings.TrimPrefix(s.URL, "http://"), lanes: [][]message{{msg}, {msg}}, want: []byte("fine")}
	got := l.open(1000, 0, 400*time.Millisecond)
	if got.fault != nil || got.failed > 0 || got.done+got.refused != 400 || got.refused != 40 {
		t.Fatalf("%d done, %d refused, %d failed, %v", got.done, got.refused, got.failed, got.fault)
	}
	// 300 ms of 400 are stalled, and only two connections were waiting.
	if p := time.Duration(got.latency.ValueAtQuantile(50)) * time.Microsecond; p < 50*time.Millisecond {
		t.Errorf("the median is %v", p)
	}
}

func TestAims(t *testing.T) {
	for _, c := range []struct {
		a     aim
		w     row
		reach bool
	}{
		{aim{Of: "ratio", Value: 0.9}, row{Ratio: 0.9}, true},
		{aim{Of: "ratio", Value: 0.9}, row{Ratio: 0.89}, false},
		{aim{Of: "share", Value: 0.5}, row{Share: 0.6, Ratio: 0.1}, true},
		{aim{Of: "p99 ms", Value: 5, Most: true}, row{P99: 5001}, false},
		{aim{Of: "p99 ms", Value: 5, Most: true}, row{P99: 4999}, true},
		{aim{Of: "bytes", Value: 600, Most: true}, row{}, false},
		{aim{Of: "settle-sqlite", Value: 1}, row{OfRatio: 1.2}, true},
		{aim{Of: "settle-sqlite", Value: 1}, row{OfRatio: 1.2, Missing: "no PostgreSQL"}, false},
	} {
		if c.a.judge(&c.w); c.a.Reached != c.reach {
			t.Errorf("%+v of %+v", c.a, c.w)
		}
	}
}

func TestAimTable(t *testing.T) {
	r := &report{Rows: []*row{
		{Name: yardstick},
		{Name: "settle-hot-" + sqlite, Aims: []aim{{Of: "settle-" + sqlite, Value: 1, Shown: 1.25, Reached: true}}},
		{Name: "open-settle-0.5-" + postgres, Aims: []aim{{Of: "p99 ms", Value: 15, Most: true, Shown: 37.04}}},
		{Name: "settle-hot-" + postgres, Aims: []aim{{Of: "settle-" + postgres, Value: 1}}, Missing: "left out"},
	}}
	var out bytes.Buffer
	must.Do(t, r.aimTable(&out))
	want := []string{
		"aim sqlite postgres", "settle-hot settle 1.25 >= 1 reached -", "open-settle-0.5 p99 ms - 37 <= 15 missed",
	}
	var got []string
	for line := range strings.Lines(strings.TrimSpace(out.String())) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestGuard(t *testing.T) {
	try := func(verify, settle float64) map[string]float64 {
		return map[string]float64{"verify": verify, "settle": settle}
	}
	for _, c := range []struct {
		tries []map[string]float64
		want  string
	}{
		{[]map[string]float64{try(0.8, 1.3)}, ""},
		{[]map[string]float64{try(0.79, 1.3)}, "verify"},
		{[]map[string]float64{try(0.79, 1.3), try(0.9, 0.5)}, ""}, // another row each time: the machine
		{[]map[string]float64{try(0.7, 0.7), try(0.9, 0.5), try(0.79, 0.79)}, "settle"},
		{[]map[string]float64{try(0.7, 0.7), try(0.7, 0.7)}, "settle verify"},
		{[]map[string]float64{try(0.7, 0.9), {"settle": 0.9}}, "verify"}, // a row that a run does not have is not fast
	} {
		if got := strings.Join(slower(c.tries), " "); got != c.want {
			t.Errorf("%v: %q, want %q", c.tries, got, c.want)
		}
	}
}

func TestSDKTable(t *testing.T) {
	r := &report{Rows: []*row{
		{Name: "sdk-bare-go", PerSec: 1000, P50: 900, CPU: 20},
		{Name: "sdk-paid-go", PerSec: 100, P50: 9000, CPU: 150, Of: "sdk-bare-go", OfRatio: 0.1},
		{Name: "settle-sqlite"},
	}}
	var out bytes.Buffer
	must.Do(t, r.sdkTable(&out))
	var got []string
	for line := range strings.Lines(strings.TrimSpace(out.String())) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"middleware req/s of bare p50 ms cpu us of the agent beyond bare",
		"sdk-bare-go 1000 0.90 20", "sdk-paid-go 100 0.100 9.00 150 130",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
