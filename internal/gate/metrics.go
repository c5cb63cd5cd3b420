package gate

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts the calls of a gate by route. The label route is the key of a configured route, or "other". A nil Metrics counts nothing.
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	credits   *prometheus.CounterVec
	uncovered *prometheus.CounterVec
}

// NewMetrics returns metrics with their own registry.
func NewMetrics() *Metrics {
	route := []string{"route"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "toll_gate_requests_total",
			Help: "Requests, by route and status. Status 402 counts refused payments."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "toll_gate_upstream_seconds",
			Help: "Time from a request to the end of the upstream's response.", Buckets: prometheus.ExponentialBuckets(0.005, 3, 11)}, route),
		credits:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "toll_gate_credits_total", Help: "Credits charged, by route."}, route),
		uncovered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "toll_gate_uncovered_credits_total", Help: "Cost of reported usage above the held credits, which is not charged."}, route),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.credits, m.uncovered, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler returns the page for Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *Metrics) count(c *call, status int) {
	if m == nil {
		return
	}
	route := "other"
	if c.route != nil {
		route = c.route.Match
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if c.answered {
		m.seconds.WithLabelValues(route).Observe(float64(c.upstream) / float64(time.Second))
	}
	if s := c.receipt.Load(); s != nil && s.CreditsRedeemed != nil {
		m.credits.WithLabelValues(route).Add(float64(*s.CreditsRedeemed))
		m.uncovered.WithLabelValues(route).Add(float64(c.over))
	}
}
