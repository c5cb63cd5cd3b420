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
	"strings"
	"sync"
	"testing"
	"time"
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
	ls, err := lanes([]string{"a", "b"}, func(string) (message, error) { return m.post(addr, "/", idText) })
	if err != nil {
		t.Fatal(err)
	}
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
	args := []string{"-rounds", "1", "-seconds", "0.2", "-accounts", "64", "-data", dir, "-json", results, "-profile", profiles}
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		args = append(args, "-no-postgres")
	}
	var out, errs bytes.Buffer
	for try := 1; ; try++ {
		err := run(context.Background(), args, &out, &errs)
		if err == nil {
			break
		}
		// What a service cannot answer, or cannot decide, in a standstill ends a run and leaves open what it did: another one is made.
		said := out.String() + errs.String() + err.Error()
		if try == 3 || !strings.Contains(said, "answer 503") && !strings.Contains(said, "answer 202") {
			t.Fatalf("%v\n%s%s", err, &out, &errs)
		}
		t.Logf("%v\n%s%s", err, &out, &errs)
		out.Reset()
		errs.Reset()
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
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
	for _, args := range [][]string{{"-rounds", "0"}, {"-accounts", "63"}, {"-scenario", "no such"}, {"-scenario", "("}, {"more"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q were taken", args)
		}
	}
}
