// Package metrics counts what an operator watches, for the listener of the operator.
package metrics

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// Metrics counts requests and background work. Every label has a fixed set of values, whatever callers send, and none names an
// account, a plan or a key. A nil Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	seconds  map[string]prometheus.Observer
	answers  map[string]*[4]prometheus.Counter // by operation, by class of the status
	inFlight prometheus.Gauge
	swept    prometheus.Counter
	retained *prometheus.CounterVec
	handles  prometheus.Histogram
	batches  prometheus.Histogram
	commits  prometheus.Histogram
	retries  prometheus.Counter
	failed   prometheus.Counter

	settlements, credits, pending prometheus.Counter
	refusals                      map[toll.Code]prometheus.Counter // one for each code of the table
}

// operations are the values of the label operation: the acts on credits, then groups of routes by the first segments of their path.
var operations = []struct{ name, prefix string }{
	{"verify", "/x402/verify"}, {"settle", "/x402/settle"}, {"release", "/x402/release"},
	{"settlements", "/x402/settlements"}, {"permissions", "/x402/permissions"},
	{"agents", "/protocol/agents"}, {"plans", "/protocol/plans"}, {"orders", "/protocol/orders"},
	{"api-keys", "/api-keys"}, {"versions", "/meta/versions"},
}

const otherOperation = "other"

var statusClasses = [4]string{"2xx", "3xx", "4xx", "5xx"}

// New returns metrics of a service whose loops are those of g. ready reports whether the database takes writes.
func New(st *store.Store, ready func() bool, g *jobs.Group) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		seconds:  map[string]prometheus.Observer{},
		answers:  map[string]*[4]prometheus.Counter{},
		refusals: map[toll.Code]prometheus.Counter{},
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "toll_http_requests_in_flight", Help: "HTTP requests in progress."}),
		retained: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "toll_retention_removed_total", Help: "Rows removed after their retention period, by kind."}, []string{"kind"}),
		swept:    prometheus.NewCounter(prometheus.CounterOpts{Name: "toll_swept_accounts_total", Help: "Balances in which the sweeper expired holds or credit lots."}),
	}
	m.handles = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "toll_ledger_handle_seconds", Help: "Time of a ledger transaction on one balance, including the other records that it writes.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	})
	m.batches = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "toll_ledger_batch_operations", Help: "Holds, settlements, and other operations that the ledger writer committed in one batch.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
	})
	m.commits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "toll_ledger_commit_seconds", Help: "Time the ledger writer took for a batch, from reading to the end of the commit, including retries.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30},
	})
	m.retries = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toll_ledger_retries_total", Help: "Retries of ledger batches after a database error.",
	})
	m.settlements = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toll_settlements_total", Help: "Settlements. Only one process counts a settlement, a few seconds later.",
	})
	m.credits = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toll_settled_credits_total", Help: "Credits burned by settlements. Only one process counts a settlement, a few seconds later.",
	})
	m.pending = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toll_settlements_pending_total", Help: "Settlements whose outcome was unknown when the API responded.",
	})
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toll_refusals_total", Help: "Error responses of the API, by error code.",
	}, []string{"code"})
	for _, known := range toll.Codes() {
		m.refusals[known.Code] = refusals.WithLabelValues(string(known.Code))
	}
	m.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toll_ledger_failed_batches_total", Help: "Ledger batches that failed, including batches that were then retried in parts.",
	})
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toll_http_answers_total", Help: "HTTP responses, by operation and status class.",
	}, []string{"operation", "status"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "toll_http_answer_seconds", Help: "HTTP response time, by operation.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30},
	}, []string{"operation"})
	m.registry.MustRegister(m.settlements, m.credits, m.pending, refusals, answers, seconds, m.inFlight, m.swept, m.retained, m.handles, m.batches, m.commits, m.retries, m.failed, loopCollector{g}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.flag("toll_database_ready", "1 while the database accepts writes, otherwise 0.", ready)
	if _, ok := st.Disk(); ok {
		const help = "Free bytes on the disk of the embedded database."
		m.gauge("toll_disk_free_bytes", help, func() float64 {
			free, _ := st.Disk()
			return float64(free)
		})
		m.gauge("toll_database_log_pages", "Pages in the write-ahead log of the embedded database.", func() float64 {
			return float64(st.Log().Pages)
		})
		m.gauge("toll_database_log_waiting_pages", "Pages of the write-ahead log that are not yet in the database file.", func() float64 {
			return float64(st.Log().Waiting)
		})
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "toll_database_checkpoints_total", Help: "Checkpoints that copied the complete write-ahead log into the database file.",
		}, func() float64 { return float64(st.Log().Checkpoints) }))
	}
	if pool := st.Pool(); pool != nil {
		m.gauge("toll_database_connections", "Open connections to the database.", func() float64 { return float64(pool.Stat().TotalConns()) })
		m.gauge("toll_database_connections_max", "Maximum number of connections to the database.", func() float64 { return float64(pool.Stat().MaxConns()) })
		m.registry.MustRegister(tableCollector{st})
		m.gauge("toll_database_connections_used", "Connections to the database in use.", func() float64 { return float64(pool.Stat().AcquiredConns()) })
	}
	for _, name := range operationNames() {
		m.seconds[name] = seconds.WithLabelValues(name)
		m.answers[name] = &[4]prometheus.Counter{}
		for i, class := range statusClasses {
			m.answers[name][i] = answers.WithLabelValues(name, class)
		}
	}
	return m
}

func (m *Metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// flag is a gauge that is 0 or 1.
func (m *Metrics) flag(name, help string, on func() bool) {
	m.gauge(name, help, func() float64 {
		if on() {
			return 1
		}
		return 0
	})
}

// Build reports the release of the program, and the master key of the database by its id.
func (m *Metrics) Build(release, masterKeyID string) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "toll_build_info", Help: "Always 1. The labels have the release of the program and the id of the master key.",
		ConstLabels: prometheus.Labels{"version": release, "master_key_id": masterKeyID},
	}, func() float64 { return 1 }))
}

// Unmatched reports payments that no order explains, as count says.
func (m *Metrics) Unmatched(count func(context.Context) (byRail map[string]int64, err error)) {
	if m != nil {
		m.registry.MustRegister(unmatchedCollector(count))
	}
}

// unmatchedCollector reports payments that no order explains, by rail.
type unmatchedCollector func(context.Context) (byRail map[string]int64, err error)

var unmatchedDesc = prometheus.NewDesc("toll_unmatched_payments",
	"Payments that a rail reports and that match no order. List them with toll orders unmatched.", []string{"rail"}, nil)

func (unmatchedCollector) Describe(to chan<- *prometheus.Desc) { to <- unmatchedDesc }

func (c unmatchedCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	counts, _ := c(ctx) // none when the database is away, which toll_database_ready reports
	for rail, n := range counts {
		to <- prometheus.MustNewConstMetric(unmatchedDesc, prometheus.GaugeValue, float64(n), rail)
	}
}

// Alarms returns a handler that counts alarms by their id.
func (m *Metrics) Alarms(next slog.Handler) slog.Handler {
	if m == nil {
		return next
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toll_alarms_total", Help: "Alarms, by id. docs/OPERATING.md lists the response to each alarm.",
	}, []string{"alarm"})
	m.registry.MustRegister(counts)
	for _, id := range alarm.IDs() {
		counts.WithLabelValues(id.String()) // 0, so that a rule sees the first one
	}
	return alarm.Count(next, func(id string) { counts.WithLabelValues(id).Inc() })
}

// Recovery reports whether the database is marked as restored.
func (m *Metrics) Recovery(open *atomic.Bool) {
	if m != nil {
		m.flag("toll_recovery_open", "1 from a restore of the database until an operator runs toll recovery end, otherwise 0.", open.Load)
	}
}

// Watch reports how many operations wait for the writer of a ledger, and what it remembers.
func (m *Metrics) Watch(l *ledger.Ledger) {
	if m == nil {
		return
	}
	m.gauge("toll_ledger_waiting", "Operations waiting for the ledger writer. Above 8192, requests are rejected.", func() float64 { return float64(l.Waiting()) })
	m.gauge("toll_ledger_memory_bytes", "Estimated size of the balances that the ledger writer caches, in bytes; at most 64 MiB.",
		func() float64 { return float64(l.Remembered()) })
	m.registry.MustRegister(lagCollector{l})
}

// lagCollector reports how far events and indexes are behind the ledger.
type lagCollector struct{ *ledger.Ledger }

var (
	lagEntries = prometheus.NewDesc("toll_journal_lag_entries", "Ledger entries whose events and indexes are not written yet.", nil, nil)
	lagSeconds = prometheus.NewDesc("toll_journal_lag_seconds", "Age of the oldest ledger entry whose events and indexes are not written yet.", nil, nil)
)

func (lagCollector) Describe(to chan<- *prometheus.Desc) { to <- lagEntries; to <- lagSeconds }

func (c lagCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	entries, waited, err := c.Lag(ctx)
	if err != nil {
		return // toll_database_ready says that the database is away
	}
	to <- prometheus.MustNewConstMetric(lagEntries, prometheus.GaugeValue, float64(entries))
	to <- prometheus.MustNewConstMetric(lagSeconds, prometheus.GaugeValue, waited.Seconds())
}

// TimeBatch measures one batch of the ledger, until stop is called.
func (m *Metrics) TimeBatch() (stop func(ledger.Batch)) {
	if m == nil {
		return func(ledger.Batch) {}
	}
	begun := time.Now()
	return func(b ledger.Batch) {
		m.commits.Observe(time.Since(begun).Seconds())
		m.batches.Observe(float64(b.Operations))
		m.retries.Add(float64(b.Attempts - 1))
		if b.Failed {
			m.failed.Inc()
		}
	}
}

// TimeHandle measures one call of ledger.Do, until stop is called.
func (m *Metrics) TimeHandle() (stop func()) {
	if m == nil {
		return func() {}
	}
	begun := time.Now()
	return func() { m.handles.Observe(time.Since(begun).Seconds()) }
}

// Retained counts rows that were removed after their time: requests, permissions, events; and settlements of which the entry stays.
func (m *Metrics) Retained(what string, rows int) {
	if m != nil && rows > 0 {
		m.retained.WithLabelValues(what).Add(float64(rows))
	}
}

// Swept counts accounts in which the sweeper ended a hold or a lot.
func (m *Metrics) Swept(accounts int) {
	if m != nil {
		m.swept.Add(float64(accounts))
	}
}

func operationNames() []string {
	names := []string{otherOperation}
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}

func operationOf(path string) string {
	rest, ok := strings.CutPrefix(path, api.Base)
	if !ok {
		return otherOperation
	}
	for _, op := range operations {
		if after, ok := strings.CutPrefix(rest, op.prefix); ok && (after == "" || after[0] == '/') {
			return op.name
		}
	}
	return otherOperation
}

// Count returns next, whose requests it counts.
func (m *Metrics) Count(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		c := counted{ResponseWriter: w, status: http.StatusInternalServerError}
		defer func() {
			m.inFlight.Dec()
			op := operationOf(r.URL.Path)
			m.seconds[op].Observe(time.Since(began).Seconds())
			m.answers[op][min(max(c.status/100, 2), 5)-2].Inc()
		}()
		next.ServeHTTP(&c, r)
	})
}

// counted remembers the status of an answer; a handler that panics before one counts as a failure.
type counted struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (c *counted) WriteHeader(status int) {
	if !c.wrote && status >= http.StatusOK {
		c.status, c.wrote = status, true
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(b []byte) (int, error) {
	if !c.wrote {
		c.status, c.wrote = http.StatusOK, true
	}
	return c.ResponseWriter.Write(b)
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// tableCollector reports the rows of tables of PostgreSQL, whose names are constant.
type tableCollector struct{ *store.Store }

// queryTime bounds queries for metrics, so that a database that does not answer leaves the other metrics readable.
const queryTime = 2 * time.Second

var (
	tableLabels = []string{"table"}
	tableLive   = prometheus.NewDesc("toll_database_rows", "Rows per table, according to the statistics of PostgreSQL.", tableLabels, nil)
	tableDead   = prometheus.NewDesc("toll_database_dead_rows", "Dead rows per table that a vacuum has not removed yet.", tableLabels, nil)
)

func (tableCollector) Describe(to chan<- *prometheus.Desc) { to <- tableLive; to <- tableDead }

func (c tableCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	tables, err := c.TableRows(ctx)
	if err != nil {
		return // toll_database_ready says that the database is away
	}
	for _, t := range tables {
		to <- prometheus.MustNewConstMetric(tableLive, prometheus.GaugeValue, float64(t.Live), t.Table)
		to <- prometheus.MustNewConstMetric(tableDead, prometheus.GaugeValue, float64(t.Dead), t.Table)
	}
}

// loopCollector reports the background loops by their names, which are constant.
type loopCollector struct{ *jobs.Group }

var (
	loopLabels   = []string{"loop"}
	loopTurns    = prometheus.NewDesc("toll_loop_turns_total", "Runs of background loops.", loopLabels, nil)
	loopFailures = prometheus.NewDesc("toll_loop_failures_total", "Failed runs of background loops.", loopLabels, nil)
	loopBusy     = prometheus.NewDesc("toll_loop_busy_seconds_total", "Time spent in runs of background loops.", loopLabels, nil)
	loopFailing  = prometheus.NewDesc("toll_loop_failing", "1 if the last run of a background loop failed, otherwise 0.", loopLabels, nil)
)

func (loopCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{loopTurns, loopFailures, loopBusy, loopFailing} {
		to <- d
	}
}

func (c loopCollector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.Status() {
		failing := 0.0
		if s.Error != "" {
			failing = 1
		}
		to <- prometheus.MustNewConstMetric(loopTurns, prometheus.CounterValue, float64(s.Runs), s.Name)
		to <- prometheus.MustNewConstMetric(loopFailures, prometheus.CounterValue, float64(s.Failures), s.Name)
		to <- prometheus.MustNewConstMetric(loopBusy, prometheus.CounterValue, s.Busy.Seconds(), s.Name)
		to <- prometheus.MustNewConstMetric(loopFailing, prometheus.GaugeValue, failing, s.Name)
	}
}

// Handler returns the handler of the operator's own listener: /metrics in the text form of Prometheus unless m is nil, and /loops,
// the background loops of g as JSON. It must not be reachable for callers of the service.
func Handler(m *Metrics, g *jobs.Group) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /loops", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(g.Status()) // the reader may be gone
	})
	if m != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	}
	return mux
}
