package gate_test

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/rounds"
)

const randomTable = `
hold_secs: 60
upstreams: { m: { url: UPSTREAM } }
routes:
  - match: POST /v1/chat/completions
    preset: openai
    price:
      - { when: { model: "a-*" }, per: 1000, base: 1, input: 150, cache_read: 75, output: 600, reasoning: 900, max_input: 2000, max_output: 1000 }
      - { when: { model: "b-*" }, per: 7, input: 3, output: 11, max_input: 1500, max_output: 300, above: { input: 1000, rates: { input: 5, output: 13 } } }
`

// randomCall is one call of TestRandomCalls, as its upstream decides it.
type randomCall struct {
	model                             string
	stream                            bool
	input, n                          int64 // bounds of the request
	prompt, cached, output, reasoning int64
	usage                             string // "good", "missing", "negative", "cut", "reset", or "failed"
	cancel                            time.Duration
	buyer                             int
	reached                           int   // requests at the upstream
	limit                             int64 // output limit that the upstream received
	used, held                        string
	status                            int
	whole                             bool // the caller received the complete response

	kill    *kill        // planned for this call; may be nil
	fired   bool         // the kill happened
	gate    *gateProcess // has received the call
	ended   bool         // before a kill of the gate
	settled *big.Int     // credits that the service burned; nil without a settlement
	ids     []string     // requests of the service that it settled
}

// cost returns (base + sum of rate * count / per), rounded up. It is independent of package rates.
func cost(base, per int64, products ...int64) *big.Int {
	sum := new(big.Rat)
	for i := 0; i < len(products); i += 2 {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(products[i], per), big.NewRat(products[i+1], 1)))
	}
	sum.Add(sum, big.NewRat(base, 1))
	up, rest := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		up.Add(up, big.NewInt(1))
	}
	return up
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// hold returns the largest price of the call.
func (c *randomCall) hold() *big.Int {
	if c.model == "a-1" {
		return cost(1, 1000, 150, min(c.input, 2000), 900, c.limit*c.n)
	}
	input := min(c.input, 1500)
	most := cost(0, 7, 3, min(input, 1000), 11, c.limit*c.n)
	if input > 1000 {
		most = larger(most, cost(0, 7, 5, input, 13, c.limit*c.n))
	}
	return most
}

// price returns the price of the call, 0 if it did not reach the upstream.
func (c *randomCall) price() *big.Int {
	switch {
	case c.reached == 0, c.usage == "failed", c.usage == "reset", c.usage == "cut" && !c.stream:
		return new(big.Int)
	case c.usage != "good":
		return c.hold()
	}
	var p *big.Int
	switch {
	case c.model == "a-1":
		p = cost(1, 1000, 150, c.prompt-c.cached, 75, c.cached, 600, c.output-c.reasoning, 900, c.reasoning)
	case c.prompt > 1000:
		p = cost(0, 7, 5, c.prompt, 13, c.output)
	default:
		p = cost(0, 7, 3, c.prompt, 11, c.output)
	}
	if h := c.hold(); p.Cmp(h) > 0 {
		return h
	}
	return p
}

func newRandomCall(r *rand.Rand) *randomCall {
	c := &randomCall{model: "a-1", stream: r.IntN(2) == 0, n: 1 + r.Int64N(3), usage: "good", buyer: r.IntN(3)}
	if r.IntN(2) == 0 {
		c.model = "b-1"
	}
	c.prompt = r.Int64N(300)
	if r.IntN(8) == 0 {
		c.prompt = r.Int64N(1 << (10 + r.IntN(30))) // often above the hold
	}
	c.cached = r.Int64N(c.prompt + 1)
	c.output = r.Int64N(400)
	c.reasoning = r.Int64N(c.output + 1)
	if r.IntN(6) == 0 {
		c.usage = []string{"missing", "negative", "cut", "reset", "failed"}[r.IntN(5)]
	}
	if r.IntN(4) == 0 {
		c.cancel = 1 + time.Duration(r.Int64N(int64(8*time.Millisecond)))
	}
	return c
}

// serve is the upstream. It calls at at its steps.
func (c *randomCall) serve(w http.ResponseWriter, pause time.Duration, at func(step)) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		c.prompt, c.output, c.prompt+c.output, c.cached, c.reasoning)
	at(beforeResponse)
	switch c.usage {
	case "missing":
		usage = "null"
	case "negative":
		usage = `{"prompt_tokens":1,"completion_tokens":-5}`
	case "failed":
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	case "reset":
		panic(http.ErrAbortHandler)
	}
	flush := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	if !c.stream {
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"}}],`)
		_ = flush.Flush()
		time.Sleep(pause)
		at(inResponse)
		if c.usage == "cut" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `"usage":`+usage+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range 3 {
		fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"hi"}}]}`+"\n\n")
		_ = flush.Flush()
		time.Sleep(pause)
	}
	at(inResponse)
	if c.usage == "cut" {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(w, `data: {"choices":[],"usage":`+usage+"}\n\ndata: [DONE]\n\n")
}

// TestRandomCalls makes random calls, plain and streamed. Their callers disconnect, their upstreams fail, and gates and connections to the
// service are killed between them. Every settlement is the price of the usage and at most the hold, each call is settled at most once, and
// delivered calls are free only if their gate was killed. The balances are the sums.
func TestRandomCalls(t *testing.T) {
	count := rounds.Of(400, 10_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	calls := make([]*randomCall, count)
	for i := range calls {
		calls[i] = newRandomCall(r)
	}
	// The second runs out of credits, and the third buys what its balance pays for.
	balances := []toll.Credits{toll.Credits(count) * 10_000, toll.Credits(count) * 200, 20_000}
	m := newMassacre(t, calls, balances)
	running := goleak.IgnoreCurrent()
	m.start()
	work := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range work {
				m.call(i)
			}
		})
	}
	for i := range calls {
		work <- i
		if i%20 == 0 {
			for _, b := range m.buyers {
				if n := b.Balance(); n < 0 {
					t.Errorf("a balance of %d", n)
				}
			}
		}
	}
	close(work)
	workers.Wait()
	m.close()
	goleak.VerifyNone(t, running, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve")) // idle connections; the gates have waited for their own
	m.check(balances)
}

// make makes a call and reads the response, or disconnects earlier. It returns false if no gate has received the call.
func (m *massacre) make(c *randomCall, i int) bool {
	ctx, stop := context.WithCancel(m.Context())
	defer stop()
	messages := `[{"role":"user","content":"` + strings.Repeat("x", i*37%1900) + `"}]`
	body := fmt.Sprintf(`{"model":%q,"user":"%d","n":%d,"stream":%t,"messages":%s}`, c.model, i, c.n, c.stream, messages)
	c.input = 256 + int64(len(messages))
	at := m.running.Load()
	req := must.Get(http.NewRequestWithContext(ctx, "POST", at.front.URL+"/v1/chat/completions", strings.NewReader(body)))(m)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+m.buyers[c.buyer].AccessToken)
	req.Header.Set("X-Call", strconv.Itoa(i))
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, stop).Stop()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if c.cancel == 0 && !at.dead.Load() {
			m.Errorf("call %d: %v", i, err)
		}
		return c.gate != nil || !at.dead.Load()
	}
	defer res.Body.Close()
	c.status, c.used, c.held = res.StatusCode, res.Header.Get(gate.HeaderUsed), res.Header.Get(gate.HeaderHeld)
	_, err = io.Copy(io.Discard, res.Body) // cut for the calls that a caller, the upstream, or a kill ends
	c.whole = err == nil
	return true
}
