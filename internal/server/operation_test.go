package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// T166
func TestInnerPages(t *testing.T) {
	s, url := start(t, server.Config{Data: storetest.Dir(t), Metrics: true})
	builder, _ := keys(t, s)
	for _, path := range []string{"/metrics", "/metrics/", "/loops", "/debug/pprof/", "/debug/vars", "/api/v1/metrics"} {
		if got := status(t, url+path); got != http.StatusNotFound {
			t.Errorf("%s on the public side: %d", path, got)
		}
	}
	c := client.New(builder.Key, client.WithURL(url))
	must.Get(c.Versions(t.Context()))(t)
	for _, path := range []string{"/api/v1/x402/verify", "/api/v1/x402/verify/" + builder.Key, "/api/v1/hostile-" + builder.Tail, "/x"} {
		status(t, url+path)
	}

	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ServeMetrics(ctx, inner) }()
	defer func() { stop(); <-done }()
	var text string
	for _, want := range []string{`toll_http_answers_total{operation="versions",status="2xx"} 1`, `toll_http_answers_total{operation="verify",status="4xx"} 2`, "toll_http_requests_in_flight 0"} {
		eventually(t, "metrics have "+want, func() bool { // a call is counted when its answer is on its way
			text = metricsAt(t, "http://"+inner.Addr().String())
			return strings.Contains(text, want+"\n")
		})
	}
	for _, secret := range []string{builder.Key, builder.Tail, "hostile"} {
		if strings.Contains(text, secret) {
			t.Errorf("metrics hold what a caller sent")
		}
	}
	for _, want := range []string{`toll_loop_turns_total{loop="ledger.sweep"} `, `toll_loop_failing{loop="ledger.follow"} 0`,
		`toll_loop_failing{loop="database.checkpoint"} 0`, "toll_database_log_pages ", "toll_database_log_waiting_pages ",
		"toll_ledger_waiting 0", "toll_ledger_memory_bytes ", "toll_ledger_retries_total 0", "toll_ledger_failed_batches_total 0", "toll_ledger_batch_operations_count ",
		"toll_ledger_commit_seconds_count ", "toll_journal_lag_entries ", "toll_journal_lag_seconds "} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if got := status(t, "http://"+inner.Addr().String()+"/loops"); got != http.StatusOK {
		t.Errorf("the loops on the operator's listener: %d", got)
	}
	if got := status(t, "http://"+inner.Addr().String()+"/api/v1/protocol/plans"); got != http.StatusNotFound {
		t.Errorf("the API answers on the operator's listener: %d", got)
	}
}

// No loop of an idle service looks for work more than twice a second.
func TestLoops_Idle(t *testing.T) {
	t.Parallel() // it mostly waits
	s, _ := start(t, server.Config{Data: storetest.Dir(t)})
	turns := func() map[string]uint64 {
		w := httptest.NewRecorder()
		s.Metrics().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/loops", nil))
		var all []jobs.Status
		must.Do(t, json.Unmarshal(w.Body.Bytes(), &all))
		named := map[string]uint64{}
		for _, l := range all {
			named[l.Name] = l.Runs
		}
		return named
	}
	began, before := time.Now(), turns()
	time.Sleep(4 * time.Second)
	after, seconds := turns(), time.Since(began).Seconds()
	for name, n := range after {
		if rate := float64(n-before[name]) / seconds; rate > 2.75 { // the jitter of half a second makes it 2.7
			t.Errorf("loop %s: %.1f turns a second", name, rate)
		}
	}
	if after["database.checkpoint"] == 0 || after["database.report"] == 0 {
		t.Error("loops of the database do not run")
	}
}

// metricsAt reads the page of an operator's listener.
func metricsAt(t *testing.T, url string) string {
	t.Helper()
	res := must.Get(http.Get(url + "/metrics"))(t)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %d %v", res.StatusCode, err)
	}
	return string(text)
}

// T170
func TestCarelessConfiguration(t *testing.T) {
	weak := freshMasterKey(t)
	must.Do(t, os.Chmod(weak, 0o640))
	open := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(open, "toll.db"), nil, 0o644))
	for name, tc := range map[string]struct {
		cfg  server.Config
		says string
	}{
		"live with a generated master key": {server.Config{Data: t.TempDir(), Environment: toll.Live, PublicURL: "https://pay.example.com"}, "TOLL_MASTER_KEY_FILE"},
		"live over http":                   {server.Config{Data: t.TempDir(), Environment: toll.Live, MasterKeyFile: freshMasterKey(t), PublicURL: "http://pay.example.com"}, "TOLL_PUBLIC_URL"},
		"live with loopback webhooks":      {server.Config{Data: t.TempDir(), Environment: toll.Live, MasterKeyFile: freshMasterKey(t), PublicURL: "https://pay.example.com", LoopbackWebhooks: true}, "TOLL_LOOPBACK_WEBHOOKS"},
		"database without master key":      {server.Config{Database: "postgres://u:canary@127.0.0.1:1/x"}, "TOLL_MASTER_KEY_FILE"},
		"database of another kind":         {server.Config{Database: "mysql://u:canary@127.0.0.1:1/x"}, "postgres://"},
		"master key that others read":      {server.Config{Data: t.TempDir(), MasterKeyFile: weak}, "chmod 600"},
		"database that others read":        {server.Config{Data: open}, "chmod 600"},
		"missing master key":               {server.Config{Data: t.TempDir(), MasterKeyFile: weak + ".missing"}, "TOLL_MASTER_KEY_FILE"},
		"unknown environment":              {server.Config{Data: t.TempDir(), Environment: "moon"}, "sandbox"},
		"public address that is none":      {server.Config{Data: t.TempDir(), PublicURL: "pay.example.com"}, "http"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := server.New(t.Context(), tc.cfg)
			if err == nil {
				_ = closeService(s)
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("error: %v", err)
			}
		})
	}
	t.Run("a card key of the other mode", func(t *testing.T) { // nothing is made, so that the right environment starts there
		dir := filepath.Join(t.TempDir(), "data")
		for env, key := range map[toll.Environment]string{"": "sk_live_0123456789", toll.Sandbox: "sk_live_0123456789", toll.Live: "sk_test_0123456789"} {
			_, err := server.New(t.Context(), server.Config{Data: dir, Environment: env, Rails: rails.Config{Card: rails.CardConfig{SecretKey: key}}})
			if err == nil || !strings.Contains(err.Error(), "TOLL_STRIPE_SECRET_KEY_FILE") || strings.Contains(err.Error(), key) {
				t.Errorf("%q: %v", env, err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: the data directory: %v", env, err)
			}
		}
	})
	t.Run("live as it should be", func(t *testing.T) {
		s, err := server.New(t.Context(), server.Config{Data: t.TempDir(), Environment: toll.Live, MasterKeyFile: freshMasterKey(t), PublicURL: "https://pay.example.com"})
		must.Do(t, err)
		if s.PublicURL() != "https://pay.example.com" || s.Environment() != toll.Live {
			t.Errorf("url %s, environment %s", s.PublicURL(), s.Environment())
		}
		must.Check(t, closeService(s))
	})
}

// A ledger on asynchronous commit does not start.
// T170
func TestAsynchronousCommit(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	s, err := server.New(t.Context(), server.Config{Database: cfg.Database + "&options=-c%20synchronous_commit%3Doff", MasterKeyFile: freshMasterKey(t)})
	if err == nil {
		_ = closeService(s)
		t.Fatal("it starts")
	}
	var says bool // the error for callers is general; its causes are for the operator
	for cause := err; cause != nil && !says; cause = errors.Unwrap(cause) {
		says = strings.Contains(cause.Error(), "synchronous_commit")
	}
	if !says {
		t.Errorf("error: %v", err)
	}
}

func TestAddressOfFirstStartStays(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		cfg := server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile}
		urlOf := func(listen, public string) string {
			t.Helper()
			c := cfg
			c.Listen, c.PublicURL = listen, public
			s := must.Get(server.New(t.Context(), c))(t)
			defer closeService(s)
			return s.PublicURL()
		}
		// What local administration guesses is no first start.
		must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "ann", Init: true}))(t)
		for _, step := range []struct{ listen, public, want string }{
			{"127.0.0.1:9001", "", "http://localhost:9001"},
			{"127.0.0.1:9002", "", "http://localhost:9001"},
			{"127.0.0.1:9002", "https://pay.example.com/", "https://pay.example.com"},
			{"127.0.0.1:9003", "", "https://pay.example.com"},
		} {
			if got := urlOf(step.listen, step.public); got != step.want {
				t.Errorf("listening on %s with %q: %s, want %s", step.listen, step.public, got, step.want)
			}
		}
	})
}

func TestTwoProcessesOnOneDatabase(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	first := server.Config{Database: cfg.Database, MasterKeyFile: freshMasterKey(t), Listen: "127.0.0.1:9001"}
	a, urlA := start(t, first)
	second := first
	second.Listen = "127.0.0.1:9002"
	b, urlB := start(t, second)
	if a.PublicURL() != b.PublicURL() {
		t.Errorf("%s and %s", a.PublicURL(), b.PublicURL())
	}
	builder, subscriber := keys(t, a)
	standA := newStand(t, urlA, builder, subscriber, 2)
	standB := standA.on(urlB, builder, subscriber)
	for i, c := range []*stand{standA, standB} {
		if res, err := c.patient.settle(t.Context(), []string{"one", "two"}[i]); err != nil || !res.Success {
			t.Fatalf("settle through process %d: %+v %v", i, res, err)
		}
	}
	if res, err := standA.patient.settle(t.Context(), "three"); err != nil || res.Success {
		t.Errorf("a third credit: %+v %v", res, err)
	}

	other := first
	other.MasterKeyFile = freshMasterKey(t)
	if s, err := server.New(t.Context(), other); err == nil {
		_ = closeService(s)
		t.Error("a process with another master key starts")
	} else if !strings.Contains(err.Error(), "master key") {
		t.Errorf("error: %v", err)
	}
}

// F17
func TestSecondProcess(t *testing.T) {
	o := servertest.Options{Data: storetest.Dir(t)}
	first := servertest.Start(t, o)
	second := servertest.Launch(t, o)
	code, err := second.Wait(patience)
	if err != nil || code == 0 || !strings.Contains(second.Log.String(), "another service") {
		t.Errorf("the second process: code %d, %v\n%s", code, err, second.Log)
	}
	if got := status(t, first.URL+"/health"); got != http.StatusOK {
		t.Errorf("the first process: %d", got)
	}
	// The lock goes with the process, however that ends.
	first.Kill()
	servertest.Start(t, o)
}

// I25: after the run nothing is left.
// I25
func TestNothingIsLeft(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		before := descriptors(t)
		leaks := goleak.IgnoreCurrent()
		for range 3 {
			s, err := server.New(t.Context(), server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile, Metrics: true})
			must.Do(t, err)
			ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Serve(ctx, ln) }()
			builder, subscriber := keys(t, s)
			c := newStand(t, "http://"+ln.Addr().String(), builder, subscriber, 5)
			if res, err := c.patient.settle(t.Context(), toll.NewUUID()); err != nil || !res.Success {
				t.Fatalf("settle: %+v %v", res, err)
			}
			stop()
			must.Do(t, errors.Join(<-done, closeService(s), closeService(s)))
		}
		http.DefaultClient.CloseIdleConnections()
		noLeak(t, leaks)
		eventually(t, "no descriptor is left", func() bool { runtime.GC(); return descriptors(t) <= before })
		if o.Data == "" {
			return
		}
		entries := must.Get(os.ReadDir(o.Data))(t)
		for _, e := range entries {
			if !slices.Contains([]string{"toll.db", "toll.lock", "toll.turn", "master.key", "card-double.json"}, e.Name()) {
				t.Errorf("%s is left", e.Name())
			}
		}
	})
}

// noLeak waits until nothing else runs than what the options leave out.
func noLeak(t *testing.T, but ...goleak.Option) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(but...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not list descriptors")
	}
	return len(entries)
}
