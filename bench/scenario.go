package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

const yardstick = "json-echo"

// scenario is one row of the table.
type scenario struct {
	name   string
	about  string
	engine string // "": needs no service
	agent  bool   // needs a process that serves a paid handler
	peer   bool   // needs the handler with one transaction each
	sdk    string // agent of sdkAgents that is measured
	cold   bool   // needs subscribers of its own
	burns  bool   // every answer is a settlement
	orders bool   // every answer is an order that is paid on the chain
	// of names the row, of the same rounds, with which this one is compared beside the yardstick. May be empty.
	of   string
	aims []aim
	load func(b *bench) (*load, error) // nil: run needs none
	// run measures a slice; nil: that of the load does.
	run func(l *load, warm, window time.Duration) *slice
	// ready comes before a slice and rest after it, outside of what is measured. Either may be nil.
	ready func() error
	rest  func() error
}

func (b *bench) all() []*scenario {
	echo := func(path string, n int) func(b *bench) (*load, error) {
		return func(b *bench) (*load, error) {
			m := b.anyMarket()
			ls, err := lanes(n, m.tokens[1:], func(token string) (message, error) { return m.settle(b.echo.addr, path, token) })
			return &load{addr: b.echo.addr, lanes: ls, want: []byte(`"`)}, err
		}
	}
	out := []*scenario{
		{name: "echo", about: "a handler that returns the body", load: echo("/echo", connections)},
		{name: yardstick, about: "decode a settle request and encode a settle response, nothing else", load: echo("/json", connections)},
	}
	for _, share := range b.loads {
		out = append(out, &scenario{
			name:  fmt.Sprintf("open-echo-%g", share),
			about: fmt.Sprintf("the JSON echo in an open loop, at %g of its closed-loop rate", share), of: yardstick,
			load: echo("/json", openConnections), run: b.openAt(yardstick, share),
		})
	}
	for _, engine := range []string{sqlite, postgres} {
		out = append(out, b.on(engine)...)
	}
	if b.sdks {
		out = append(out, b.sdkScenarios()...)
	}
	return append(out, b.chainScenarios()...)
}

func (b *bench) on(engine string) []*scenario {
	bytes := map[string]float64{sqlite: 600, postgres: 700}[engine]
	hold := &scenario{name: "hold-" + engine, about: "verify with hold, 1 credit", engine: engine,
		aims: []aim{{Of: "share", Value: 0.4}, {Of: "ratio", Value: 0.35}},
	}
	inStep := func() error {
		m := b.markets[engine]
		_, err := m.waitForEvents(m.settled, time.Now().Add(eventsPatience*b.length()))
		return err
	}
	derived := func(l *load, _, window time.Duration) *slice { return b.markets[engine].settleAndDerive(l, window) }
	hold.load = func(b *bench) (*load, error) { return b.holds(hold, engine) }
	out := []*scenario{
		{
			name: "verify-" + engine, about: "verify without hold, 64 subscribers", engine: engine,
			aims: []aim{{Of: "ratio", Value: 0.9}},
			load: b.requests(engine, 1, connections, `"isValid":true`, func(m *market, token string) (message, error) { return m.verify(token, false) }),
		},
		{
			name: "verify-wide-" + engine, about: "verify without hold, all subscribers", engine: engine,
			load: b.requests(engine, 1, 0, `"isValid":true`, func(m *market, token string) (message, error) { return m.verify(token, false) }),
		},
		hold,
		{
			name: "settle-" + engine, about: "settle with an id, all subscribers", engine: engine, burns: true,
			aims: []aim{{Of: "share", Value: 0.5}, {Of: "ratio", Value: 0.38}},
			load: b.requests(engine, 1, 0, `"success":true`, settleAt),
		},
		{
			name: "settle-hot-" + engine, about: "settle with an id, one subscriber", engine: engine, burns: true, of: "settle-" + engine,
			aims: []aim{{Of: "settle-" + engine, Value: 1}},
			load: b.requests(engine, 0, 1, `"success":true`, settleAt),
		},
		{
			name: "derived-" + engine, about: "settle, all subscribers, until the last event is listed", engine: engine, burns: true, of: "settle-" + engine,
			aims: []aim{{Of: "settle-" + engine, Value: 0.8}, {Of: "bytes", Value: bytes, Most: true}},
			load: b.requests(engine, 1, 0, `"success":true`, settleAt), run: derived, ready: inStep,
		},
		{
			name: "derived-hot-" + engine, about: "settle, one subscriber, until the last event is listed", engine: engine, burns: true,
			aims: []aim{{Of: "settle-hot-" + engine, Value: 0.8}}, of: "settle-hot-" + engine,
			load: b.requests(engine, 0, 1, `"success":true`, settleAt), run: derived, ready: inStep,
		},
		{
			name: "paid-" + engine, about: "a call of paid.Handler: hold, work, settle", engine: engine, agent: true, burns: true,
			aims: []aim{{Of: "ratio", Value: 0.12}},
			load: func(b *bench) (*load, error) {
				m := b.markets[engine]
				ls, err := lanes(connections, m.tokens[1:], m.paidCall)
				return &load{addr: m.agent.addr, lanes: ls, want: []byte(`{"characters":`)}, err
			},
		},
	}
	out = append(out, b.openLoops(engine)...)
	out = append(out, &scenario{
		name: "full-settle-" + engine, about: "settle in a database with many settlements", engine: full + engine, burns: true, of: "settle-" + engine,
		aims: []aim{{Of: "settle-" + engine, Value: 0.95}}, load: b.requests(full+engine, 1, 0, `"success":true`, settleAt),
	}, &scenario{
		name: "cold-settle-" + engine, about: "the first settle of each subscriber after a start of the service", engine: engine, burns: true,
		cold:  true,
		ready: func() error { return b.markets[engine].restart(nil) },
		load: func(b *bench) (*load, error) {
			m := b.markets[engine]
			ls, err := lanes(connections, m.cold, func(token string) (message, error) { return settleAt(m, token) })
			return &load{addr: m.service.addr, lanes: ls, want: []byte(`"success":true`), limit: len(m.cold) / connections}, err
		},
	})
	out = append(out, b.lists(engine)...)
	out = append(out, b.pages(engine)...)
	if engine == postgres {
		out = append(out, b.severalProcesses())
	}
	if b.peers {
		out = append(out, &scenario{
			name: "peer-" + engine, about: "one transaction for each settlement", engine: engine, peer: true,
			load: func(b *bench) (*load, error) {
				m := b.markets[engine]
				settle := func(token string) (message, error) { return m.settle(m.peer.addr, "/", token) }
				ls, err := lanes(connections, m.tokens[1:], settle)
				l := &load{addr: m.peer.addr, lanes: ls, want: []byte(`"success":true`)}
				if err == nil {
					err = l.once() // makes the accounts
				}
				return l, err
			},
		})
	}
	return out
}

// severalProcesses settles with several services on one database, which run for its slices only.
func (b *bench) severalProcesses() *scenario {
	s := &scenario{name: "processes-settle-postgres", about: "settle, several services on one database", engine: postgres, burns: true,
		of: "settle-postgres"}
	s.load = func(b *bench) (*load, error) {
		l, err := b.requests(postgres, 1, 0, `"success":true`, settleAt)(b)
		m := b.markets[postgres]
		s.ready = func() error {
			l.others = nil
			for range b.processes - 1 {
				p, err := spawn("service-more", role{Service: &m.role})
				if err != nil {
					return err
				}
				m.more, l.others = append(m.more, p), append(l.others, p.addr)
			}
			return nil
		}
		s.rest = func() (err error) {
			for _, p := range m.more {
				_, e := p.quit(false)
				err = errors.Join(err, e)
			}
			m.more = nil
			return err
		}
		return l, err
	}
	return s
}

// audited says whether the ledger is proved after the scenario. One with many settlements is proved at the end of a run alone.
func (s *scenario) audited() bool {
	return s.engine == kindOf(s.engine) && (s.burns || strings.HasPrefix(s.name, "hold-"))
}

// openAt sends at a share of the rate that a row has just had in a closed loop.
func (b *bench) openAt(of string, share float64) func(l *load, warm, window time.Duration) *slice {
	return func(l *load, warm, window time.Duration) *slice {
		rates := b.report.row(of).Rates
		return l.open(share*rates[len(rates)-1], warm, window)
	}
}

// openLoops send at shares of the rate that the same requests have just had in a closed loop.
func (b *bench) openLoops(engine string) (out []*scenario) {
	open := func(name, want string, count int, most float64, burns bool, make func(m *market, token string) (message, error)) {
		for _, share := range b.loads {
			s := &scenario{
				name: fmt.Sprintf("open-%s-%g-%s", name, share, engine), engine: engine,
				about: fmt.Sprintf("%s in an open loop, at %g of its closed-loop rate", name, share),
				burns: burns, of: name + "-" + engine, load: b.over(openConnections, engine, 1, count, want, make),
			}
			if share == 0.5 {
				s.aims = []aim{{Of: "p99 ms", Value: most, Most: true}}
			}
			s.run = b.openAt(s.of, share)
			out = append(out, s)
		}
	}
	open("verify", `"isValid":true`, connections, 5, false, func(m *market, token string) (message, error) { return m.verify(token, false) })
	open("settle", `"success":true`, 0, 15, true, settleAt)
	return out
}

func settleAt(m *market, token string) (message, error) {
	return m.settle(m.service.addr, "/api/v1/x402/settle", token)
}

// requests returns the load of a request for each of count subscribers from the first on, 0 for all.
func (b *bench) requests(engine string, first, count int, want string, make func(m *market, token string) (message, error)) func(b *bench) (*load, error) {
	return b.over(connections, engine, first, count, want, make)
}

// over is requests over a number of connections.
func (b *bench) over(n int, engine string, first, count int, want string, make func(m *market, token string) (message, error)) func(b *bench) (*load, error) {
	return func(b *bench) (*load, error) {
		m := b.markets[engine]
		tokens := m.tokens[first:]
		if count > 0 {
			tokens = tokens[:min(count, len(tokens))]
		}
		ls, err := lanes(n, tokens, func(token string) (message, error) { return make(m, token) })
		return &load{addr: m.service.addr, lanes: ls, want: []byte(want)}, err
	}
}

// holdsPerToken stays below the 64 open holds that a permission may have.
const holdsPerToken = 60

// holds is a load whose holds are released after each slice.
func (b *bench) holds(s *scenario, engine string) (*load, error) {
	m := b.markets[engine]
	l, err := b.requests(engine, 1, 0, `"isValid":true`, func(m *market, token string) (message, error) { return m.verify(token, true) })(b)
	if err != nil {
		return nil, err
	}
	l.limit = len(m.tokens) / connections * holdsPerToken
	ids := make([][]string, connections)
	l.seen = func(lane int, body []byte) { ids[lane] = append(ids[lane], requestID(body)) }
	s.rest = func() error {
		back := &load{addr: l.addr, lanes: make([][]message, connections), want: []byte(`"status":"released"`)}
		for lane, mine := range ids {
			for _, id := range mine {
				msg, err := m.release(id)
				if err != nil {
					return err
				}
				back.lanes[lane] = append(back.lanes[lane], msg)
			}
			ids[lane] = mine[:0]
		}
		return back.once()
	}
	return l, nil
}

var requestIDName = []byte(`"agentRequestId":"`)

func requestID(body []byte) string {
	_, rest, _ := bytes.Cut(body, requestIDName)
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// choose returns the scenarios that the patterns name, and the rows that they are compared with.
func choose(all []*scenario, match func(name string) bool) ([]*scenario, error) {
	want := map[string]bool{yardstick: true}
	found := false
	for _, s := range slices.Backward(all) { // what a row is compared with stands before it
		if match(s.name) {
			found, want[s.name] = true, true
		}
		if want[s.name] {
			want[s.of] = true
			want[blockYardstick] = want[blockYardstick] || s.engine == onChain
		}
	}
	if !found {
		return nil, errors.New("no scenario has a matching name")
	}
	return slices.DeleteFunc(all, func(s *scenario) bool { return !want[s.name] }), nil
}
