package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// watchedCollector reports what the database says of orders, webhooks and itself.
type watchedCollector struct {
	*store.Store
	clock func() time.Time
}

var (
	railLabel    = []string{"rail"}
	ordersOpen   = prometheus.NewDesc("toll_orders_open", "Open orders.", railLabel, nil)
	ordersOldest = prometheus.NewDesc("toll_orders_oldest_open_seconds", "Age of the oldest open order, or 0 if there is none.", railLabel, nil)
	undecided    = prometheus.NewDesc("toll_orders_undecided", "Orders whose payment outcome could not be applied yet.", railLabel, nil)
	webhooks     = prometheus.NewDesc("toll_webhooks", "Webhooks, by status.", []string{"status"}, nil)
	deliveries   = prometheus.NewDesc("toll_webhook_deliveries_waiting", "Events waiting for delivery to webhooks.", nil, nil)
	ordersStates = prometheus.NewDesc("toll_orders_open_by_state", "Open orders, by the state of their payment.", []string{"rail", "state"}, nil)
	mirrorOpen   = prometheus.NewDesc("toll_mirror_periods_open", "Periods of the burn mirror that have ended but are not yet final on the chain.", nil, nil)
	mirrorLag    = prometheus.NewDesc("toll_mirror_lag_seconds",
		"Age of the oldest ended period of the burn mirror that awaits finality on the chain, or 0.", nil, nil)
	auditAge    = prometheus.NewDesc("toll_audit_age_seconds", "Age of the last recorded audit, or -1 if there is none.", nil, nil)
	auditFaults = prometheus.NewDesc("toll_audit_findings", "Findings of the last recorded audit.", nil, nil)
	schemaDesc  = prometheus.NewDesc("toll_schema_version", "Schema version of the database.", nil, nil)
)

func (watchedCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ordersOpen, ordersStates, ordersOldest, undecided, webhooks, deliveries, mirrorOpen, mirrorLag, auditAge, auditFaults, schemaDesc,
	} {
		to <- d
	}
}

func (c watchedCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	w, err := c.Watch(ctx)
	if err != nil {
		return // toll_database_ready says that the database is away
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	since := func(t time.Time, none float64) float64 {
		if t.IsZero() {
			return none
		}
		return max(0, c.clock().Sub(t).Seconds())
	}
	for _, r := range store.Rails {
		gauge(ordersOpen, float64(w.Open[r.Name]), r.Name)
		gauge(undecided, float64(w.Undecided[r.Name]), r.Name)
		gauge(ordersOldest, since(w.Oldest[r.Name], 0), r.Name)
	}
	for of, n := range w.States {
		gauge(ordersStates, float64(n), of[0], of[1])
	}
	gauge(mirrorOpen, float64(w.Mirror))
	gauge(mirrorLag, since(w.MirrorEnd, 0))
	gauge(auditAge, since(w.Audit.At, -1))
	gauge(auditFaults, float64(w.Audit.Findings))
	for status, n := range w.Webhooks {
		gauge(webhooks, float64(n), status)
	}
	gauge(deliveries, float64(w.Waiting))
	gauge(schemaDesc, float64(w.Schema))
}

// Money reports orders, webhooks and the schema of a database.
func (m *Metrics) Money(st *store.Store, clock func() time.Time) {
	if m != nil {
		m.registry.MustRegister(watchedCollector{st, clock})
	}
}

// backupCollector reports the age of the newest backup that is known.
type backupCollector struct {
	*store.Store
	scheduled func() time.Time // nil: there is no schedule
	clock     func() time.Time
}

var backupAge = prometheus.NewDesc("toll_backup_age_seconds", "Age of the newest scheduled or recorded backup, or -1 if backups are scheduled but none exists.", nil, nil)

func (backupCollector) Describe(to chan<- *prometheus.Desc) { to <- backupAge }

func (c backupCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	last, _ := store.NotedBackup(ctx, c.Store) // toll_database_ready says that the database is away
	if c.scheduled != nil && c.scheduled().After(last) {
		last = c.scheduled()
	}
	age := -1.0
	switch {
	case !last.IsZero():
		age = max(0, c.clock().Sub(last).Seconds())
	case c.scheduled == nil:
		return // nobody tells this service of backups
	}
	to <- prometheus.MustNewConstMetric(backupAge, prometheus.GaugeValue, age)
}

// Backups reports the age of the newest backup, of the schedule or noted in the database.
func (m *Metrics) Backups(st *store.Store, scheduled, clock func() time.Time) {
	if m != nil {
		m.registry.MustRegister(backupCollector{st, scheduled, clock})
	}
}

// Settled counts settlements and their credits, as one of the processes reads them in the journal.
func (m *Metrics) Settled(settlements, credits int64) {
	if m != nil {
		m.settlements.Add(float64(settlements))
		m.credits.Add(float64(credits))
	}
}

// Pending counts settlements whose outcome was not known when their caller got an answer.
func (m *Metrics) Pending() {
	if m != nil {
		m.pending.Inc()
	}
}

// Refused counts an answer of the API that refuses or fails, by its code. A code that is not in the table of codes counts as
// [toll.CodeInternal], so that the label has no other values than those of the table.
func (m *Metrics) Refused(code toll.Code) {
	if m != nil {
		m.refusals[code.Info().Code].Inc()
	}
}

// Chain is what is known of the chain of a service.
type Chain struct {
	Head     time.Time          // time of the newest block that was read; zero: none
	Relayers map[string]float64 // wei, by address
	// What the signer may sign for in an hour and what it has signed for, in cents; a cap of 0 is none.
	Cap, Signed int64
}

type chainCollector struct {
	read  func() Chain
	clock func() time.Time
}

var (
	headAge   = prometheus.NewDesc("toll_chain_head_age_seconds", "Age of the newest block that the service has read.", nil, nil)
	relayers  = prometheus.NewDesc("toll_chain_relayer_wei", "Balance that a relayer has for gas, in wei.", []string{"relayer"}, nil)
	signerCap = prometheus.NewDesc("toll_signer_cap_cents",
		"Maximum amount of the payments that the signer of this process signs in an hour, in cents; 0 means no cap.", nil, nil)
	signed = prometheus.NewDesc("toll_signer_signed_cents", "Amount of the payments that the signer of this process signed in the last hour, in cents.", nil, nil)
)

func (chainCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{headAge, relayers, signerCap, signed} {
		to <- d
	}
}

func (c chainCollector) Collect(to chan<- prometheus.Metric) {
	seen := c.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if !seen.Head.IsZero() {
		gauge(headAge, max(0, c.clock().Sub(seen.Head).Seconds()))
	}
	for address, wei := range seen.Relayers {
		gauge(relayers, wei, address)
	}
	gauge(signerCap, float64(seen.Cap))
	gauge(signed, float64(seen.Signed))
}

// Chain reports the chain of a service, as far as it runs.
func (m *Metrics) Chain(read func() Chain, clock func() time.Time) {
	if m != nil {
		m.registry.MustRegister(chainCollector{read, clock})
	}
}
