package interop

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/x402"
)

const (
	answersOfPair = 10   // that each buyer receives from each seller
	mintedCredits = 5000 // on the plan of each seller
)

// TestMatrixFaults has buyers in TypeScript, Python and Go buy from sellers in each of them, while answers of verify and
// settle are lost after their commit, and the service is killed and restarted on its database. Buyers repeat a failed call.
func TestMatrixFaults(t *testing.T) {
	if rounds.Deferred(t) {
		return // it runs for minutes: make test-all
	}
	typescript, python, golang := newSDKProject(t).matrix(), pythonMatrix(t), matrix{}
	s := run(t, servertest.Options{})
	f := &matrixFaults{recorder: newRecorder(t, s.process.URL), kills: make(chan struct{})}
	s.url = f.url
	var last *recorder // in front of the newest seller, where it sees what leaves
	for _, m := range []*matrix{&typescript, &python, &golang} {
		m.service, m.front = s, func(url string) string { last = newRecorder(t, url); return last.url }
	}
	buyers := map[string]func(*testing.T, string) (string, error){
		"TypeScript": typescript.buy, "Python": python.buy, "Go": golang.buyGo,
	}
	fronts, plans := map[string]*recorder{}, map[string]toll.PlanID{}
	for name, open := range map[string]func(*testing.T) (string, *client.Registered, *servertest.Log){
		"TypeScript": typescript.open, "Python": python.open, "Go": golang.openGo,
	} {
		_, r, _ := open(t)
		fronts[name], plans[name] = last, r.PlanID
		must.Get(s.client(s.builder).Mint(t.Context(), r.PlanID, s.subscriber.Address, mintedCredits, 0))(t)
	}

	f.schedule(t)
	var calls sync.WaitGroup
	end := time.Now().Add(5 * time.Minute)
	for seller, front := range fronts {
		for buyer, buy := range buyers {
			calls.Go(func() {
				for n := 0; n < answersOfPair; {
					if out, err := buy(t, front.url); err == nil && out == purchase {
						n++
					} else if f.failed.Add(1); time.Now().After(end) {
						t.Errorf("%s buys from %s: %q %v", buyer, seller, out, err)
						return
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	restarts := 0
	for open := true; open; {
		select {
		case <-f.kills:
			s.restart()
			restarts++
		case <-done:
			open = false
		}
	}

	settled, burned := f.settled(t, s)
	for name, front := range fronts {
		b, err := s.client(s.subscriber).Balance(t.Context(), plans[name])
		if err != nil || mintedCredits-b.Balance != burned[plans[name]] {
			t.Errorf("%s: %+v %v, but settled requests burned %d", name, b, err, burned[plans[name]])
		}
		answers := map[string]bool{}
		for _, c := range front.of("ask") {
			if c.status != http.StatusOK {
				continue
			}
			var r x402.SettleResponse
			err := x402.DecodeHeader(c.header.Get(x402.HeaderResponse), &r)
			if err != nil || r.Extra == nil || !settled[r.Extra.AgentRequestID] || answers[r.Extra.AgentRequestID] {
				t.Errorf("%s: an answer left with the receipt %+v %v, which is not of one settlement", name, r, err)
				continue
			}
			answers[r.Extra.AgentRequestID] = true
		}
		if want := len(buyers) * answersOfPair; len(answers) != want {
			t.Errorf("%s: %d paid answers left, buyers received %d", name, len(answers), want)
		}
	}
	if f.died.Load() == 0 || f.lost.Load() == f.died.Load() || restarts == int(f.died.Load()) {
		t.Error("not every fault happened")
	}
	t.Logf("%d calls failed, %d requests settled; %d answers lost, %d kills, %d of them after a commit",
		f.failed.Load(), len(settled), f.lost.Load(), restarts, f.died.Load())
	s.process.Kill()
	audit(t, s)
}

// matrixFaults stands between the sellers and the service. It asks for a restart through kills.
type matrixFaults struct {
	*recorder
	kills              chan struct{}
	lost, died, failed atomic.Int64
}

// schedule draws the fate of each call of verify and settle.
func (f *matrixFaults) schedule(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	oneIn := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return n > 0 && rnd.IntN(n) == 0
	}
	lostOneIn := map[string]int{"verify": 10, "settle": 4}
	kill := func() {
		select {
		case f.kills <- struct{}{}:
		case <-t.Context().Done():
		}
	}
	f.ahead = func(operation string) {
		if lostOneIn[operation] > 0 && oneIn(16) {
			kill() // and the call goes on while the service dies
		}
	}
	f.intercept(func(c *call) bool {
		if c.status != http.StatusOK || !oneIn(lostOneIn[c.operation]) {
			return true
		}
		f.lost.Add(1)
		if oneIn(4) {
			f.died.Add(1)
			kill()
		}
		return false
	})
}

// settled returns the requests that are settled, of all that a seller named, and what they burned on each plan. No payment
// may have been settled under two ids.
func (f *matrixFaults) settled(t *testing.T, s *service) (map[string]bool, map[toll.PlanID]toll.Credits) {
	settled, paidBy, burned := map[string]bool{}, map[string]string{}, map[toll.PlanID]toll.Credits{}
	for _, c := range append(f.of("verify"), f.of("settle")...) {
		var sent struct{ X402AccessToken, AgentRequestID string }
		must.Do(t, json.Unmarshal(c.sent, &sent))
		id := sent.AgentRequestID
		if c.operation == "verify" {
			id = c.text("agentRequestId")
		}
		if id == "" || settled[id] {
			continue
		}
		r, err := s.client(s.builder).Settlement(t.Context(), id)
		if c.operation == "settle" && errors.Is(err, toll.NewError(toll.CodeSettlementNotFound)) {
			continue // an id of a seller's own, which was refused
		}
		must.Do(t, err)
		if r.Status == "settled" {
			if other := paidBy[sent.X402AccessToken]; other != "" {
				t.Errorf("one payment was settled as %s and as %s", other, id)
			}
			settled[id], paidBy[sent.X402AccessToken] = true, id
			burned[r.PlanID] += *r.CreditsRedeemed
		}
	}
	return settled, burned
}
