package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tollhq/toll/x402"
)

// sdkAgent is an agent in a framework of some language: one handler, bare at /bare, and behind a middleware that costs a credit at /paid.
type sdkAgent struct {
	name    string
	program []string // empty: this program; from the root of the repository
	behind  bool     // the middleware stands around the application: /behind is a route without a price
}

var sdkAgents = []sdkAgent{
	{name: "go"},
	{name: "express", program: []string{"node", "sdk/typescript/scripts/agent.mjs", "express"}},
	{name: "hono", program: []string{"node", "sdk/typescript/scripts/agent.mjs", "hono"}},
	{name: "starlette", program: []string{"/usr/bin/python3", "sdk/python/scripts/agent.py", "starlette"}, behind: true},
	{name: "flask", program: []string{"/usr/bin/python3", "sdk/python/scripts/agent.py", "flask"}, behind: true},
}

// sdkScenarios measure each framework bare and with its middleware. The processor time of these rows is that of the agent alone.
func (b *bench) sdkScenarios() (out []*scenario) {
	for _, a := range sdkAgents {
		row := func(kind, about string) *scenario {
			s := &scenario{name: "sdk-" + kind + "-" + a.name, about: about, engine: sqlite, sdk: a.name}
			s.load = func(b *bench) (*load, error) {
				m := b.markets[sqlite]
				addr := m.sdks[a.name].addr
				ls, err := lanes(connections, m.tokens[1:], func(token string) (message, error) {
					return callOf(addr, "/"+kind, token), nil
				})
				return &load{addr: addr, lanes: ls, want: []byte(`{"characters":`)}, err
			}
			if kind != "bare" {
				s.of = "sdk-bare-" + a.name
			}
			out = append(out, s)
			return s
		}
		row("bare", "the handler without a middleware")
		if a.behind {
			row("behind", "a route without a price, behind the middleware")
		}
		row("paid", "hold, work, settle").burns = true
	}
	return out
}

// startSDKs starts the agents.
func (m *market) startSDKs() error {
	m.sdks = map[string]*process{}
	for _, a := range sdkAgents {
		r := role{Agent: &agentRole{URL: m.url(), Key: m.key, Plan: m.plan, Agent: m.seller}}
		p, err := spawn("agent-"+a.name, r, a.program...)
		if err != nil {
			return fmt.Errorf("%w (build sdk/typescript first with npm ci and npm run build)", err)
		}
		m.sdks[a.name] = p
	}
	return nil
}

func (m *market) stopSDKs() error {
	var faults []error
	for _, p := range m.sdks {
		_, err := p.quit(false)
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// callOf is a request to an agent, as a subscriber sends it.
func callOf(addr, path, token string) message {
	const text = "How many characters are there in this text?"
	return message{raw: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: toll-bench\r\nContent-Length: %d\r\n"+
		"Content-Type: text/plain\r\n%s: %s\r\n\r\n%s", path, addr, len(text), x402.HeaderSignature, token, text)}
}

// sdkTable compares each row of the middlewares with its framework.
func (r *report) sdkTable(out io.Writer) error {
	if r.row("sdk-bare-go").Name == "" {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nmiddleware\treq/s\tof bare\tp50 ms\tcpu us of the agent\tbeyond bare\t")
	for _, w := range r.Rows {
		if !strings.HasPrefix(w.Name, "sdk-") || w.Missing != "" {
			continue
		}
		fmt.Fprintf(t, "%s\t%.0f\t", w.Name, w.PerSec)
		if bare := r.row(w.Of); w.Of != "" {
			fmt.Fprintf(t, "%.3f\t%.2f\t%.0f\t%.0f\t\n", w.OfRatio, w.P50/1e3, w.CPU, w.CPU-bare.CPU)
		} else {
			fmt.Fprintf(t, "\t%.2f\t%.0f\t\t\n", w.P50/1e3, w.CPU)
		}
	}
	return t.Flush()
}
