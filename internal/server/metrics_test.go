package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// scrape returns what /metrics says.
func scrape(t *testing.T, s *server.Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// The metrics tell when an audit was noted, and what it found.
func TestMetrics_LastAudit(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t), Metrics: true}
	s, _ := start(t, cfg)
	if got := scrape(t, s); !strings.Contains(got, "\ntoll_audit_age_seconds -1\n") {
		t.Error("an audit that was not noted has an age")
	}
	must.Do(t, admin.NoteAudit(t.Context(), cfg, admin.Audited{Findings: make([]admin.Finding, 3)}, false))
	if got := scrape(t, s); !strings.Contains(got, "\ntoll_audit_findings 3\n") || strings.Contains(got, "\ntoll_audit_age_seconds -1\n") {
		t.Error("the metrics do not tell of the audit")
	}
	// An audit of new entries needs a seal, moves it, and leaves what the whole audit noted.
	if _, err := admin.AuditFrom(t.Context(), cfg, true); err == nil || !strings.Contains(err.Error(), "--record") {
		t.Errorf("without a seal: %v", err)
	}
	note := func(since bool) store.LastAudit {
		t.Helper()
		a, err := admin.AuditFrom(t.Context(), cfg, since)
		if err != nil || len(a.Findings) > 0 {
			t.Fatalf("%+v, %v", a.Findings, err)
		}
		must.Do(t, admin.NoteAudit(t.Context(), cfg, a, since))
		noted, err := store.NotedAudit(t.Context(), server.StoreOf(s))
		if err != nil || noted.Seal == nil || *noted.Seal != a.Seal {
			t.Fatalf("%+v, %v", noted, err)
		}
		return noted
	}
	whole := note(false)
	must.Get(server.LedgerOf(s).Mint(t.Context(), ledger.MintOp{Plan: "1", Subscriber: toll.Address{1}, Amount: 5, Ref: "mint:1"}))(t)
	if since := note(true); !since.At.Equal(whole.At) || since.Findings != 0 || since.Seal.Position != whole.Seal.Position+1 {
		t.Errorf("%+v after %+v", since, whole)
	}
}

// A backup that other tools made counts from the moment in which it is noted, on each database. Nothing is said of backups before
// the first one, unless there is a schedule; of two the newer one counts.
func TestMetrics_NotedBackup(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			at := storetest.Config(t, v)
			var moved atomic.Int64
			base := time.Now()
			cfg := server.Config{
				Data: at.Data, Database: at.Database, MasterKeyFile: freshMasterKey(t), Metrics: true,
				Clock: func() time.Time { return base.Add(time.Duration(moved.Load())) },
			}
			s, _ := start(t, cfg)
			if got := scrape(t, s); strings.Contains(got, "toll_backup_age_seconds") {
				t.Error("a backup that nobody told of has an age")
			}
			must.Do(t, admin.NoteBackup(t.Context(), cfg))
			moved.Store(int64(50 * time.Hour))
			if got := scrape(t, s); !regexp.MustCompile(`\ntoll_backup_age_seconds (1\.8\d+e\+05|180\d\d\d)`).MatchString(got) {
				t.Errorf("the backup is not 50 hours old: %s", regexp.MustCompile("toll_backup_age.*").FindAllString(got, -1))
			}
			must.Do(t, admin.NoteBackup(t.Context(), cfg))
			if got := scrape(t, s); !regexp.MustCompile(`\ntoll_backup_age_seconds [01](\.\d+)?\n`).MatchString(got) {
				t.Error("the second backup does not count")
			}
		})
	}
}

// The metrics have the numbers of the traffic and of the database.
func TestMetrics_Numbers(t *testing.T) {
	// Without a card rail nobody works on the payment below.
	s, url := start(t, server.Config{Data: storetest.Dir(t), Metrics: true, Rails: rails.Config{Card: rails.CardConfig{Mode: rails.CardOff}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 3)
	for n := range 4 {
		if r, err := c.settle(t.Context(), fmt.Sprint(n)); err != nil || r.Success != (n < 3) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	ctx, old := t.Context(), time.Now().Add(-time.Hour)
	o := &store.Order{
		ID: toll.NewUUID(), Account: [16]byte{1}, Plan: c.plan, Subscriber: c.buyer, Status: toll.OrderCreated, CreatedAt: old, UpdatedAt: old,
		Amount: toll.UnitsOf(7), Currency: "USD", Open: true, Rail: "card",
	}
	p := &store.CardPayment{
		OrderID: o.ID, Account: o.Account, Seller: c.owner, Payer: c.buyer, State: "page", Cents: 7, Currency: "usd", CreatedAt: old, UpdatedAt: old,
		Data: []byte(`{}`),
	}
	if err := server.StoreOf(s).Tx(ctx, func(tx *store.Tx) error {
		_, hooks := tx.Exec(ctx, `INSERT INTO webhooks (webhook_id, principal, url, types, description, status, secret, old_secret_until, seq,
			failing_since, created_at, updated_at) VALUES ('1', '2', 'https://a.example', '', '', 'paused', '', 0, 0, 0, 0, 0)`)
		_, waiting := tx.Exec(ctx, `INSERT INTO webhook_deliveries (webhook_id, delivery_id, seq, event_id, type, object, body, status, attempts, first_at,
			try_at, last_at, last_status, last_error, created_at, done_at) VALUES ('1', '2', 1, '', '', '', '', 'pending', 0, 0, 9e15, 0, 0, '', 0, 0)`)
		_, period := store.PutSettingIfAbsent(ctx, tx, store.SettingMirrorPeriod, []byte("1h0m0s"))
		return errors.Join(hooks, waiting, period,
			store.InsertMirrorPeriod(ctx, tx, &store.MirrorPeriod{Period: old.UnixMicro()/time.Hour.Microseconds() - 1, Credits: "0", State: "closed"}, nil, nil),
			store.InsertOrder(ctx, tx, o), store.InsertCardPayment(ctx, tx, p),
			store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte("an order"), Due: old}))
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`toll_settlements_total 3`, `toll_settled_credits_total 3`, `toll_settlements_pending_total 0`,
		`toll_orders_open\{rail="card"\} 1`, `toll_orders_open\{rail="crypto"\} 0`, `toll_orders_open_by_state\{rail="card",state="page"\} 1`,
		`toll_orders_oldest_open_seconds\{rail="card"\} 36\d\d.*`, `toll_orders_oldest_open_seconds\{rail="crypto"\} 0`,
		`toll_orders_undecided\{rail="card"\} 1`, `toll_orders_undecided\{rail="crypto"\} 0`,
		`toll_webhooks\{status="active"\} 0`, `toll_webhooks\{status="paused"\} 1`, `toll_webhook_deliveries_waiting 1`,
		`toll_mirror_periods_open 1`, `toll_mirror_lag_seconds [1-9].*`, `toll_schema_version [1-9]\d+`,
		`toll_build_info\{master_key_id="[0-9a-f]+",version=".*"\} 1`, `toll_ledger_retries_total 0`,
	} {
		eventually(t, want, func() bool { return regexp.MustCompile("(?m)^" + want + "$").MatchString(scrape(t, s)) })
	}
}

// Each expression of the board and of the alert rules is about metrics that the service has.
func TestDeploy_MetricNames(t *testing.T) {
	names := map[string]bool{}
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		at := storetest.Config(t, v)
		cfg := server.Config{
			Data: at.Data, Database: at.Database, MasterKeyFile: freshMasterKey(t), Metrics: true, PublicURL: "https://pay.example.com",
		}
		if v == storetest.SQLite {
			cfg.Backups = backup.Schedule{Dir: t.TempDir(), Every: time.Hour, Keep: 1}
		}
		s, url := start(t, cfg)
		builder, subscriber := keys(t, s)
		c := newStand(t, url, builder, subscriber, 10)
		if r, err := c.settle(t.Context(), toll.NewUUID()); err != nil || !r.Success {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err := c.settle(t.Context(), toll.NewUUID()); err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if v == storetest.SQLite {
			faucet(t, c.patient.subscriber, "1") // starts the chain
			eventually(t, "the chain is read", func() bool { return strings.Contains(scrape(t, s), "\ntoll_chain_relayer_wei{") })
		}
		eventually(t, "settlements are counted", func() bool { return strings.Contains(scrape(t, s), "\ntoll_settlements_total 2\n") })
		for _, line := range strings.Split(scrape(t, s), "\n") {
			if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, kind, _ := strings.Cut(name, " ")
				names[name] = true
				if kind == "histogram" {
					names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
				}
			}
		}
	}
	names["toll_orders_open_by_state"] = true // has no value without an open order
	metric := regexp.MustCompile(`\btoll_[a-z_]+\b`)
	check := func(what, expr string) {
		t.Helper()
		found := metric.FindAllString(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %q", what, expr)
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s: there is no metric %s", what, name)
			}
		}
		if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "[") != strings.Count(expr, "]") {
			t.Errorf("%s: brackets in %q", what, expr)
		}
	}
	rules := regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(example(t, "prometheus", "toll.rules.yml"), -1)
	for _, m := range rules {
		check("rules", m[1])
	}
	panels := board(t)
	var ids []int
	for _, p := range panels {
		ids = append(ids, p.ID)
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	slices.Sort(ids)
	if len(rules) < 10 || len(panels) < 10 || len(slices.Compact(ids)) != len(panels) {
		t.Errorf("%d rules, %d panels", len(rules), len(panels))
	}
}

// panel is a part of the Grafana board.
type panel struct {
	ID      int
	Title   string
	Targets []struct{ Expr string }
}

func board(t *testing.T) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	must.Do(t, json.Unmarshal([]byte(example(t, "grafana", "toll.json")), &board))
	return board.Panels
}

// Each alert fires for its reason, a healthy service has none, and Prometheus reads each expression of the board.
func TestDeploy_Prometheus(t *testing.T) {
	if !needs(t, "promtool") {
		return
	}
	dir := t.TempDir()
	succeeds(t, dir, "promtool", "test", "rules", filepath.Join("..", "..", "deploy", "prometheus", "toll.rules.test.yml"))
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: board\n    rules:\n")
	for _, p := range board(t) {
		for i, target := range p.Targets {
			fmt.Fprintf(&rules, "      - {record: 'panel:%d:%d', expr: '%s'}\n", p.ID, i, target.Expr)
		}
	}
	succeeds(t, dir, "promtool", "check", "rules", writeFile(t, dir, "board.yml", []byte(rules.String())))
}
