package main

import (
	"bytes"
	"errors"
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
	burns  bool   // every answer is a settlement
	orders bool   // every answer is an order that is paid on the chain
	// goal is the share of the rate of the row named by of (empty: the yardstick) that is aimed at, 0 for none.
	goal float64
	of   string
	load func(b *bench) (*load, error)
	// run measures in place of a load. nil where there is one.
	run func(warm, window time.Duration) *slice
	// rest makes up for a slice, outside of what is measured. May be nil.
	rest func() error
}

func (b *bench) all() []*scenario {
	echo := func(path string) func(b *bench) (*load, error) {
		return func(b *bench) (*load, error) {
			m := b.anyMarket()
			ls, err := lanes(m.tokens[1:], func(token string) (message, error) { return m.settle(b.echo.addr, path, token) })
			return &load{addr: b.echo.addr, lanes: ls, want: []byte(`"`)}, err
		}
	}
	out := []*scenario{
		{name: "echo", about: "a handler that returns the body", load: echo("/echo")},
		{name: yardstick, about: "decode a settle request, encode a settle answer, nothing else", load: echo("/json"), goal: 1},
	}
	for _, engine := range []string{sqlite, postgres} {
		out = append(out, b.on(engine)...)
	}
	return append(out, b.chainScenarios()...)
}

func (b *bench) on(engine string) []*scenario {
	goal := map[string]float64{sqlite: 0.3, postgres: 0.4}[engine]
	hold := &scenario{name: "hold-" + engine, about: "verify with hold, 1 credit", engine: engine, goal: 0.35}
	hold.load = func(b *bench) (*load, error) { return b.holds(hold, engine) }
	out := []*scenario{
		{
			name: "verify-" + engine, about: "verify without hold, 64 subscribers", engine: engine, goal: 0.8,
			load: b.requests(engine, 1, connections, `"isValid":true`, func(m *market, token string) (message, error) { return m.verify(token, false) }),
		},
		{
			name: "verify-wide-" + engine, about: "verify without hold, all subscribers", engine: engine,
			load: b.requests(engine, 1, 0, `"isValid":true`, func(m *market, token string) (message, error) { return m.verify(token, false) }),
		},
		hold,
		{
			name: "settle-" + engine, about: "settle with an id, all subscribers", engine: engine, burns: true, goal: goal,
			load: b.requests(engine, 1, 0, `"success":true`, settleAt),
		},
		{
			name: "settle-hot-" + engine, about: "settle with an id, one subscriber", engine: engine, burns: true, goal: 1, of: "settle-" + engine,
			load: b.requests(engine, 0, 1, `"success":true`, settleAt),
		},
		{
			name: "paid-" + engine, about: "a call of paid.Handler: hold, work, settle", engine: engine, agent: true, burns: true, goal: 0.15,
			load: func(b *bench) (*load, error) {
				m := b.markets[engine]
				ls, err := lanes(m.tokens[1:], m.paidCall)
				return &load{addr: m.agent.addr, lanes: ls, want: []byte(`{"characters":`)}, err
			},
		},
	}
	return out
}

func settleAt(m *market, token string) (message, error) {
	return m.settle(m.service.addr, "/api/v1/x402/settle", token)
}

// requests returns the load of a request for each of count subscribers from the first on, 0 for all.
func (b *bench) requests(engine string, first, count int, want string, make func(m *market, token string) (message, error)) func(b *bench) (*load, error) {
	return func(b *bench) (*load, error) {
		m := b.markets[engine]
		tokens := m.tokens[first:]
		if count > 0 {
			tokens = tokens[:min(count, len(tokens))]
		}
		ls, err := lanes(tokens, func(token string) (message, error) { return make(m, token) })
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

// choose returns the scenarios that the patterns name, and their yardsticks.
func choose(all []*scenario, match func(name string) bool) ([]*scenario, error) {
	var out []*scenario
	found, blocks := false, false
	for _, s := range all {
		hit := match(s.name)
		found, blocks = found || hit, blocks || hit && s.engine == onChain
	}
	for _, s := range all {
		if match(s.name) || s.name == yardstick || blocks && s.name == blockYardstick {
			out = append(out, s)
		}
	}
	if !found {
		return nil, errors.New("no scenario has such a name")
	}
	return out, nil
}
