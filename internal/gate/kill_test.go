package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
)

// step is a place in a call at which a process is killed.
type step string

const (
	beforeHold     step = "before the hold"
	afterHold      step = "after the hold, before the upstream is called"
	beforeResponse step = "before the response"
	inResponse     step = "during the response"
	beforeSettle   step = "after the response, before the settlement"
	afterSettle    step = "after the settlement, before the answer reaches the caller"
)

// kill ends the gate of a call at a step, or breaks the connections to the service there. The upstreams of calls with the usage "reset" and
// "cut" are killed before and during their response.
type kill struct {
	service bool
	at      step
	stream  bool
	tries   int // of the service: connections that break
	fired   int // how often the kill happened
}

func (k *kill) String() string {
	victim := "gate"
	if k.service {
		victim = fmt.Sprintf("service (%d times)", k.tries)
	}
	return fmt.Sprintf("%s %s, streamed: %t", victim, k.at, k.stream)
}

// plans returns every kill.
func plans() (out []*kill) {
	for _, stream := range []bool{false, true} {
		for _, at := range []step{beforeHold, afterHold, beforeResponse, inResponse, beforeSettle, afterSettle} {
			out = append(out, &kill{at: at, stream: stream})
		}
		for _, at := range []step{beforeHold, afterHold, beforeSettle, afterSettle} {
			out = append(out, &kill{service: true, at: at, stream: stream, tries: 1})
			if at == beforeSettle || at == afterSettle {
				out = append(out, &kill{service: true, at: at, stream: stream, tries: 3}) // as often as a gate tries to settle a response
			}
		}
	}
	return out
}

// massacre is a service and an upstream with gates that are killed and replaced.
type massacre struct {
	*testing.T
	svc     *tolltest.Service
	buyers  []*tolltest.Subscriber
	config  *gate.Config
	key     string
	calls   []*randomCall
	running atomic.Pointer[gateProcess]
	starts  sync.WaitGroup
	quiet   sync.RWMutex // a call runs with a read lock, and a gate starts with the write lock

	mu      sync.Mutex
	gates   []*gateProcess
	ids     map[string]*randomCall // by the request id of the service
	kills   []*kill
	pending map[bool][]*kill // kills that are planned next, of gates and of the service
}

// gateProcess is a gate that a kill separates from its callers and from the service at once.
type gateProcess struct {
	m     *massacre
	front *httptest.Server
	queue *paid.Queue
	dead  atomic.Bool
	sends sync.RWMutex // a request to the service has a read lock

	mu    sync.Mutex
	conns []net.Conn
}

// acceptor keeps the connections of callers.
type acceptor struct {
	net.Listener
	p *gateProcess
}

func (a acceptor) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err == nil {
		a.p.mu.Lock()
		defer a.p.mu.Unlock()
		a.p.conns = append(a.p.conns, c)
	}
	return c, err
}

type callNumber struct{}

func newMassacre(t *testing.T, calls []*randomCall, balances []toll.Credits) *massacre {
	m := &massacre{T: t, svc: tolltest.New(t, wide), calls: calls, ids: map[string]*randomCall{}, kills: plans(), pending: map[bool][]*kill{}}
	m.key = must.Get(m.svc.NewKey("builder"))(t).Key
	up := httptest.NewServer(http.HandlerFunc(m.upstream))
	t.Cleanup(up.Close)
	m.config = must.Get(gate.Parse([]byte("plan: Models\n" + strings.ReplaceAll(randomTable, "UPSTREAM", up.URL))))(t)
	for _, n := range balances {
		m.buyers = append(m.buyers, m.svc.Subscriber(n))
	}
	return m
}

func (m *massacre) upstream(w http.ResponseWriter, r *http.Request) {
	var q struct {
		User  string
		Limit int64 `json:"max_completion_tokens"`
	}
	i := 0
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		m.Error(err)
	} else if _, err = fmt.Sscan(q.User, &i); err != nil {
		m.Error(err)
	}
	c := m.calls[i]
	m.mu.Lock()
	c.reached++
	c.limit = q.Limit
	p := c.gate
	m.mu.Unlock()
	c.serve(w, time.Duration(i%4)*time.Millisecond, func(at step) { p.fires(c, false, at) })
}

// start replaces the running gate.
func (m *massacre) start() {
	p := &gateProcess{m: m, queue: paid.NewQueue()}
	g := gate.New(m.config, gate.Deps{
		Facilitator: client.New(m.key, client.WithURL(m.svc.URL()), client.WithRetries(0), client.WithHTTPClient(&http.Client{Transport: p})),
		Plan:        m.svc.Plan(), Agent: m.svc.Agent(), Queue: p.queue, Metrics: gate.NewMetrics(), Log: slog.New(slog.DiscardHandler),
	})
	p.front = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.Header.Get("X-Call"))
		c := m.calls[i]
		m.mu.Lock()
		c.gate = p
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			c.ended = !p.dead.Load()
		}()
		g.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callNumber{}, c)))
	}))
	p.front.Listener = acceptor{p.front.Listener, p}
	p.front.Start()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gates = append(m.gates, p)
	m.running.Store(p)
}

// kill ends the gate. Nothing that it does afterwards reaches its callers or the service. When its calls have returned, their holds expire,
// and another gate starts. It returns false if the gate is dead already.
func (p *gateProcess) kill() bool {
	if p.dead.Swap(true) {
		return false
	}
	_ = p.front.Listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.m.starts.Go(func() {
		p.m.quiet.Lock()
		defer p.m.quiet.Unlock()
		p.sends.Lock()
		defer p.sends.Unlock()
		p.m.svc.Advance(time.Duration(p.m.config.HoldSecs+1) * time.Second)
		p.m.start()
	})
	return true
}

// fires kills at a step of a call, if that is planned, and reports whether it did.
func (p *gateProcess) fires(c *randomCall, service bool, at step) bool {
	if c == nil || c.kill == nil || c.kill.service != service || c.kill.at != at {
		return false
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if c.kill.fired >= max(c.kill.tries, 1) || !service && !p.kill() {
		return false
	}
	c.kill.fired++
	c.fired = true
	return true
}

var errKilled = errors.New("the connection was reset")

// RoundTrip sends a request of the gate to the service.
func (p *gateProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	p.sends.RLock()
	defer p.sends.RUnlock()
	before, after := step(""), step("")
	switch {
	case strings.HasSuffix(r.URL.Path, "/verify"):
		before, after = beforeHold, afterHold
	case strings.HasSuffix(r.URL.Path, "/settle"):
		before, after = beforeSettle, afterSettle
	}
	c, _ := r.Context().Value(callNumber{}).(*randomCall)
	if err := p.at(c, before); err != nil {
		return p.answer(r, err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || before == "" {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if p.m.observe(c, body) {
		if err := p.at(c, after); err != nil {
			return p.answer(r, err)
		}
	}
	if p.dead.Load() {
		return p.answer(r, errKilled)
	}
	return res, nil
}

// at kills at a step. The error ends the request.
func (p *gateProcess) at(c *randomCall, s step) error {
	if p.fires(c, false, s) || p.dead.Load() || p.fires(c, true, s) {
		return errKilled
	}
	return nil
}

// answer fails a request. A dead gate gets refusals, so that it ends soon.
func (p *gateProcess) answer(r *http.Request, err error) (*http.Response, error) {
	if !p.dead.Load() {
		return nil, err
	}
	const refusal = `{"isValid":false,"invalidReason":"insufficient_funds","success":false,"errorReason":"insufficient_funds","transaction":"","network":""}`
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(refusal)), ContentLength: int64(len(refusal)), Request: r}, nil
}

// observe records holds and settlements, and reports whether the request had an effect.
func (m *massacre) observe(c *randomCall, body []byte) bool {
	var v struct {
		IsValid, Success bool
		AgentRequestID   string
		CreditsRedeemed  *toll.Credits
		Extra            struct{ AgentRequestID string }
	}
	if err := json.Unmarshal(body, &v); err != nil {
		m.Errorf("%v: %s", err, body)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := v.Extra.AgentRequestID
	switch {
	case v.IsValid:
		if c == nil || v.AgentRequestID == "" {
			m.Errorf("a hold without its call or id: %s", body)
			return false
		}
		m.ids[v.AgentRequestID] = c
	case v.Success:
		if c = m.ids[id]; c == nil || v.CreditsRedeemed == nil {
			m.Errorf("a settlement without a hold: %s", body)
			return false
		}
		if n := big.NewInt(int64(*v.CreditsRedeemed)); c.settled != nil && c.settled.Cmp(n) != 0 {
			m.Errorf("%s was settled with %s and %s credits", id, c.settled, n)
		} else {
			c.settled = n
		}
		if !slices.Contains(c.ids, id) {
			c.ids = append(c.ids, id)
		}
	}
	return v.IsValid || v.Success
}

// call makes a call, again if its gate was dead before it arrived. Some calls, in turn, kill their gate or the service. A kill that another kill
// has preempted is planned again.
func (m *massacre) call(i int) {
	c := m.calls[i]
	var k *kill
	if every := rounds.Of(8, 40); i%every == every-1 {
		service := i/every%2 == 0
		m.mu.Lock()
		if len(m.pending[service]) == 0 {
			m.pending[service] = slices.DeleteFunc(slices.Clone(m.kills), func(k *kill) bool { return k.service != service })
		}
		k, m.pending[service] = m.pending[service][0], m.pending[service][1:]
		planned := *k
		planned.fired = 0
		c.kill, c.stream, c.usage, c.cancel, c.buyer = &planned, k.stream, "good", 0, 0
		m.mu.Unlock()
	}
	for done := false; !done; {
		m.quiet.RLock()
		done = m.make(c, i)
		m.quiet.RUnlock()
	}
	if k == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.fired += c.kill.fired; !c.fired {
		m.pending[k.service] = slices.Insert(m.pending[k.service], 0, k)
	}
}

// close waits for all gates, for calls whose callers have disconnected, and for queued settlements.
func (m *massacre) close() {
	m.starts.Wait()
	for _, p := range m.gates {
		p.front.Close()
		must.Do(m, p.queue.Drain(m.Context()))
	}
}

// owed returns the credits that a call must cost, and false if its gate was killed before the call ended, so that it is free if it was not
// settled.
func (c *randomCall) owed() (*big.Int, bool) {
	free, price := new(big.Int), c.price()
	alive := c.gate == nil || !c.gate.dead.Load()
	k := c.kill
	switch {
	case k == nil || !c.fired:
		return price, alive || c.ended
	case k.at == beforeHold, k.at == afterHold:
		return free, true
	case !k.service:
		if k.at == afterSettle {
			return price, true
		}
		return free, true
	case k.at == beforeSettle && k.tries == 3 && !k.stream:
		return free, true // the caller got 503 in place of the response
	}
	return price, alive || c.ended && !k.stream // the settlement of a stream waits in a queue of the gate
}

// check compares each call with its price, and the balances with the sums.
func (m *massacre) check(balances []toll.Credits) {
	sums := make([]*big.Int, len(balances))
	for i := range sums {
		sums[i] = new(big.Int)
	}
	var reached, left, refused, killed, unpaid int
	for i, c := range m.calls {
		if c.reached > 1 || len(c.ids) > 1 {
			m.Errorf("call %d reached the upstream %d times, and was settled as %v", i, c.reached, c.ids)
		}
		if c.reached > 0 {
			reached++
		}
		if c.status == 0 {
			left++
		}
		if c.status == http.StatusPaymentRequired {
			refused++
		}
		settled := c.settled
		if settled == nil {
			settled = new(big.Int)
		}
		owed, exact := c.owed()
		if settled.Cmp(owed) != 0 && (exact || settled.Sign() != 0) {
			m.Errorf("call %d: %s credits settled, want %s: %+v, kill %v (%t)", i, settled, owed, c, c.kill, c.fired)
		}
		if !exact {
			killed++
			if c.whole && settled.Cmp(c.price()) != 0 {
				unpaid++
				if !c.stream && c.status == http.StatusOK {
					m.Errorf("call %d: a delivered response is free: %+v", i, c)
				}
			}
		}
		sums[c.buyer].Add(sums[c.buyer], settled)
		if c.used != "" && c.used != owed.String() {
			m.Errorf("call %d: %s credits used, want %s: %+v", i, c.used, owed, c)
		}
		if c.held != "" && c.held != c.hold().String() {
			m.Errorf("call %d: %s credits held, want %s: %+v", i, c.held, c.hold(), c)
		}
		if hold := c.hold(); c.reached > 0 && settled.Cmp(hold) > 0 {
			m.Errorf("call %d: %s credits settled above the hold %s", i, settled, hold)
		}
	}
	for _, k := range m.kills {
		if k.fired == 0 {
			m.Errorf("no kill of %s", k)
		}
	}
	m.Logf("%d calls reached the upstream, %d had no response, %d were refused; %d gates, whose kills ended %d other calls, %d of them delivered streams",
		reached, left, refused, len(m.gates), killed, unpaid)
	m.svc.Advance(time.Duration(m.config.HoldSecs+1) * time.Second) // holds of calls that a kill ended
	for i, b := range m.buyers {
		of := must.Get(b.Client.Balance(m.Context(), m.svc.Plan()))(m)
		if want := new(big.Int).Sub(big.NewInt(int64(balances[i])), sums[i]); of.Balance.String() != want.String() || of.Available != of.Balance {
			m.Errorf("buyer %d: the balance is %d, and %d are available; want %s", i, of.Balance, of.Available, want)
		}
	}
}
