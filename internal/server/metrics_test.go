package server_test

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/server"
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
	cfg := server.Config{Data: t.TempDir(), Metrics: true}
	s, _ := start(t, cfg)
	if got := scrape(t, s); !strings.Contains(got, "\ntoll_audit_age_seconds -1\n") {
		t.Error("an audit that was not noted has an age")
	}
	if err := server.NoteAudit(t.Context(), cfg, 3); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, s); !strings.Contains(got, "\ntoll_audit_findings 3\n") || strings.Contains(got, "\ntoll_audit_age_seconds -1\n") {
		t.Error("the metrics do not tell of the audit")
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
	names["toll_refusals_total"] = true       // has no value before the first refusal
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
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(example(t, "grafana", "toll.json")), &board); err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, p := range board.Panels {
		ids = append(ids, p.ID)
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	slices.Sort(ids)
	if len(rules) < 10 || len(board.Panels) < 10 || len(slices.Compact(ids)) != len(board.Panels) {
		t.Errorf("%d rules, %d panels", len(rules), len(board.Panels))
	}
}
