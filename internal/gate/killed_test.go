package gate_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const processKills = 30

// processCall is a call through the processes of TestProcessesKilled.
type processCall struct {
	randomCall
	begin, end epochs // when the call began and ended
}

// epochs count the kills of the gate and of the service.
type epochs struct{ gate, service int64 }

// processes are a gate and a service, which are killed, and an upstream in the test.
type processes struct {
	*testing.T
	service       servertest.Options
	config        string // file
	address       string // of the gate
	env           []string
	token         string
	gate          *exec.Cmd
	running       *servertest.Process
	gates, serves atomic.Int64 // kills

	mu    sync.Mutex
	calls []*processCall
}

func (p *processes) epochs() epochs { return epochs{p.gates.Load(), p.serves.Load()} }

func (p *processes) startGate() {
	p.gate = exec.Command(servertest.Program(p), "gate", "--config", p.config, "--listen", p.address, "--log-level", "error")
	p.gate.Env = p.env
	must.Do(p, p.gate.Start())
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.address); err == nil {
			_ = c.Close()
			return
		} else if time.Now().After(end) {
			p.Fatalf("the gate does not listen: %v", err)
		}
	}
}

func (p *processes) killGate() {
	_ = p.gate.Process.Kill()
	_ = p.gate.Wait() // it was killed
}

// call makes a random call and reads its response.
func (p *processes) call() {
	p.mu.Lock()
	c, i := &processCall{randomCall: *newRandomCall(rand.New(rand.NewPCG(rand.Uint64(), 1)))}, len(p.calls)
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	messages := `[{"role":"user","content":"` + strings.Repeat("x", i*37%1900) + `"}]`
	c.input, c.begin = 256+int64(len(messages)), p.epochs()
	body := fmt.Sprintf(`{"model":%q,"user":"%d","n":%d,"stream":%t,"messages":%s}`, c.model, i, c.n, c.stream, messages)
	req := must.Get(http.NewRequestWithContext(p.Context(), "POST", fmt.Sprintf("http://%s/v1/chat/completions?call=%d", p.address, i), strings.NewReader(body)))(p)
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + p.token}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		time.Sleep(5 * time.Millisecond) // the gate was killed
		return
	}
	defer res.Body.Close()
	c.status = res.StatusCode
	_, err = io.Copy(io.Discard, res.Body)
	c.whole, c.end = err == nil, p.epochs()
}

// mustBePaid reports whether a delivered response must be settled: a stream that ended while the service was killed is settled later, unless
// its gate is killed too.
func (p *processes) mustBePaid(c *processCall) bool {
	return c.whole && c.status == http.StatusOK && (!c.stream || c.begin.service == c.end.service || c.begin.gate == p.gates.Load())
}

// TestProcessesKilled kills the processes of a gate and of its service under load. Every settlement is the price of its call, no call is
// settled twice, every delivered response is settled unless the rules make it free, and the balance is the sum.
func TestProcessesKilled(t *testing.T) {
	if rounds.Deferred(t) {
		return
	}
	p := &processes{T: t, service: servertest.Options{Data: storetest.Dir(t), Listen: servertest.FreeAddress(t)}, address: servertest.FreeAddress(t)}
	builder, buyer := servertest.Key(t, p.service, "builder"), servertest.Key(t, p.service, "buyer")
	p.running = servertest.Start(t, p.service)
	b, a := p.running.Client(builder.Key, servertest.Patient), p.running.Client(buyer.Key, servertest.Patient)
	plan := must.Get(b.RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Models"}, Credits: toll.CreditsDynamic(1_000_000, 1, 1_000_000)}))(t).PlanID
	const credits = 1_000_000_000
	must.Get(b.Mint(t.Context(), plan, buyer.Address, credits, 0))(t)
	p.token = must.Get(a.AccessToken(t.Context(), plan, client.WithExpiry(24*time.Hour)))(t).AccessToken
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			User  string
			Limit int64 `json:"max_completion_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			return // the gate was killed
		}
		i, _ := strconv.Atoi(q.User)
		p.mu.Lock()
		c := p.calls[i]
		c.reached++
		c.limit = q.Limit
		p.mu.Unlock()
		c.serve(w, time.Duration(i%4)*time.Millisecond, func(step) {})
	}))
	t.Cleanup(up.Close)
	p.config = filepath.Join(t.TempDir(), "gate.yaml")
	text := fmt.Sprintf("plan: %q\npublic_url: http://%s\n%s", plan, p.address, strings.NewReplacer("UPSTREAM", up.URL, "hold_secs: 60", "hold_secs: 5").Replace(randomTable))
	must.Do(t, os.WriteFile(p.config, []byte(text), 0o600))
	p.env = append(os.Environ(), "TOLL_API_KEY="+builder.Key, "TOLL_URL="+p.running.URL)
	p.startGate()
	t.Cleanup(func() { p.killGate() })

	var workers sync.WaitGroup
	var stop atomic.Bool
	for range 8 {
		workers.Go(func() {
			for !stop.Load() {
				p.call()
			}
		})
	}
	made := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.calls)
	}
	for n := range processKills {
		t.Logf("kill %d, after %d calls", n, made())
		for next := made() + 20 + rand.IntN(100); made() < next; {
			time.Sleep(time.Millisecond)
		}
		if n%3 != 1 {
			p.gates.Add(1)
			p.killGate()
		}
		if n%3 != 0 {
			p.serves.Add(1)
			p.running.Kill()
			p.running = servertest.Start(t, p.service)
		}
		if n%3 != 1 {
			p.startGate()
		}
	}
	stop.Store(true)
	workers.Wait()
	p.check(b, a, plan, credits)
}

// check waits for the settlements, and compares them with the calls.
func (p *processes) check(seller, buyer *client.Client, plan toll.PlanID, credits int64) {
	settled := map[int][]toll.Credits{}
	sum := new(big.Int)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		clear(settled)
		sum.SetInt64(0)
		for s, err := range seller.Requests(p.Context(), client.OfPlan(plan), client.InState("settled"), client.PageSize(100)) {
			must.Do(p, err)
			u := must.Get(url.Parse(*s.Resource))(p)
			i := must.Get(strconv.Atoi(u.Query().Get("call")))(p)
			settled[i] = append(settled[i], *s.CreditsRedeemed)
			sum.Add(sum, big.NewInt(int64(*s.CreditsRedeemed)))
		}
		unpaid := 0
		for i, c := range p.calls {
			if p.mustBePaid(c) && len(settled[i]) == 0 && c.price().Sign() > 0 {
				unpaid++
			}
		}
		of := must.Get(buyer.Balance(p.Context(), plan))(p)
		if want := new(big.Int).Sub(big.NewInt(credits), sum); unpaid == 0 && of.Balance.String() == want.String() && of.Available == of.Balance {
			break
		} else if time.Now().After(end) {
			p.Errorf("%d delivered responses are not settled; the balance is %d, and %d are available; want %s", unpaid, of.Balance, of.Available, want)
			break
		}
	}
	var free, delivered int
	for i, c := range p.calls {
		switch {
		case len(settled[i]) > 1 || c.reached > 1:
			p.Errorf("call %d reached the upstream %d times, and was settled with %d", i, c.reached, settled[i])
		case len(settled[i]) == 1 && settled[i][0].String() != c.price().String():
			p.Errorf("call %d was settled with %d, want %s: %+v", i, settled[i][0], c.price(), c)
		case c.whole && c.status == http.StatusOK:
			delivered++
			if len(settled[i]) == 0 && c.price().Sign() > 0 {
				free++ // a stream
			}
		}
	}
	p.Logf("%d calls, %d delivered, %d of them streams that were lost with their gate; %d kills of the gate, %d of the service; %s credits",
		len(p.calls), delivered, free, p.gates.Load(), p.serves.Load(), sum)
}
