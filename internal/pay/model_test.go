package pay_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// model is what verify, settle and release must do, written for reading: one account, two access tokens, no concurrency.
type model struct {
	ordered  bool // a mint counts
	balance  toll.Credits
	now      time.Time
	tokens   []modelToken
	requests map[string]*modelRequest
}

type modelToken struct {
	limit    toll.Credits // 0: none
	redeemed toll.Credits
}

type modelRequest struct {
	state  string // held, settled, released, lapsed or given up
	token  int
	held   toll.Credits
	until  time.Time
	asked  string // of the settle
	answer []byte
}

const modelMin, modelMax = 2, 10

func tooLow(asked *toll.Credits) bool { return asked != nil && *asked > 0 && *asked < modelMin }

func clamp(n toll.Credits) toll.Credits {
	if n == 0 {
		return 0
	}
	return min(max(n, modelMin), modelMax)
}

// tick lapses holds, the first to end first. What a token then has in claims beyond what it may hold
// is given up, the oldest first.
func (m *model) tick() {
	for {
		end := m.now.Add(1)
		for _, r := range m.requests {
			if r.state == "held" && r.until.Before(end) {
				end = r.until
			}
		}
		if end.After(m.now) {
			return
		}
		ended := map[int]bool{}
		for _, r := range m.requests {
			if r.state == "held" && r.until.Equal(end) {
				r.state = "lapsed"
				ended[r.token] = true
			}
		}
		for i := range ended {
			most := m.balance
			if t := m.tokens[i]; t.limit > 0 {
				most = min(most, t.limit-t.redeemed)
			}
			m.capClaims(i, most)
		}
	}
}

func (m *model) capClaims(token int, most toll.Credits) {
	for {
		oldest, sum := "", toll.Credits(0)
		for id, r := range m.requests {
			if r.state != "lapsed" || r.token != token {
				continue
			}
			sum += r.held
			if o := m.requests[oldest]; o == nil || r.until.Before(o.until) || r.until.Equal(o.until) && id < oldest {
				oldest = id
			}
		}
		if sum <= most {
			return
		}
		m.requests[oldest].state = "given up"
	}
}

func (m *model) heldBy(token int) (n toll.Credits) {
	for _, r := range m.requests {
		if r.state == "held" && (token < 0 || r.token == token) {
			n += r.held
		}
	}
	return n
}

// check is the reason to refuse n credits to a token when its own hold of own credits is given back, "" for none.
func (m *model) check(token int, n, own toll.Credits) string {
	t := m.tokens[token]
	if t.limit > 0 && t.redeemed+m.heldBy(token)-own+n > t.limit {
		return x402.ReasonRedemptionLimit
	}
	if !m.ordered || n > m.balance-m.heldBy(-1)+own {
		return x402.ReasonInsufficientFunds
	}
	return ""
}

func askedText(n *toll.Credits) string {
	if n == nil {
		return "none"
	}
	return n.String()
}

// settle returns the reason to refuse, "replay", or "" after a burn of n.
func (m *model) settle(token int, id string, asked *toll.Credits) (n toll.Credits, outcome string) {
	n = modelMax
	if asked != nil {
		n = clamp(*asked)
	}
	r := m.requests[id]
	own := toll.Credits(0)
	switch {
	case r == nil && tooLow(asked):
		return 0, x402.ReasonAmountOutOfRange
	case r == nil:
		r = &modelRequest{token: token}
	case r.state == "settled" && r.token == token && r.asked == askedText(asked):
		return 0, "replay"
	case r.state == "settled", r.state == "released", r.token != token:
		return 0, x402.ReasonConflict
	case r.state == "given up":
		return 0, x402.ReasonHoldExpired
	case tooLow(asked):
		return 0, x402.ReasonAmountOutOfRange
	default:
		if asked == nil {
			n = r.held
		}
		if r.state == "held" {
			own = r.held
		}
	}
	if why := m.check(token, n, own); why != "" {
		return 0, why
	}
	r.state, r.asked = "settled", askedText(asked)
	m.requests[id] = r
	m.balance -= n
	m.tokens[token].redeemed += n
	return n, ""
}

// Whatever is called in whatever order, the service does what the model says.
func TestModel(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			instances := 2
			if v == storetest.SQLite {
				instances = 1
			}
			s := newScene(t, v, instances)
			rapid.Check(t, func(rt *rapid.T) { runModel(rt, s) })
		})
	}
}

func runModel(t *rapid.T, s *scene) {
	s.clock.set(start)
	p := s.plan(dynamic(modelMin, modelMax))
	m := &model{now: start, requests: map[string]*modelRequest{}, tokens: []modelToken{{}, {limit: 25}}}
	calls := []*call{s.call(p, nil, s.token(p, s1, nil)), s.call(p, nil, s.token(p, s1, limit(25)))}
	run := toll.NewUUID() // ids of callers are looked up by themselves, so each run has its own
	ids := []string{"a-" + run, "b-" + run, "c-" + run}
	pick := func() (int, string, *instance) {
		return rapid.IntRange(0, 1).Draw(t, "token"), ids[rapid.IntRange(0, len(ids)-1).Draw(t, "id")], s.at(rapid.IntRange(0, 1).Draw(t, "instance"))
	}
	ask := func() *toll.Credits {
		n := toll.Credits(rapid.IntRange(-1, 12).Draw(t, "asked"))
		if n < 0 {
			return nil
		}
		return &n
	}
	want := func(format string, args ...any) { t.Helper(); t.Fatal(fmt.Sprintf(format, args...)) }
	t.Repeat(map[string]func(*rapid.T){
		"mint": func(t *rapid.T) {
			n := toll.Credits(rapid.IntRange(1, 20).Draw(t, "credits"))
			s.mint(p, s1, n)
			m.balance += n
			m.ordered = true
		},
		"time": func(t *rapid.T) {
			d := time.Duration(rapid.IntRange(1, 90).Draw(t, "secs")) * time.Second
			s.clock.add(d)
			m.now = m.now.Add(d)
			m.tick()
		},
		"verify": func(t *rapid.T) {
			token, id, i := pick()
			asked, hold := ask(), rapid.Bool().Draw(t, "hold")
			fresh := rapid.Bool().Draw(t, "fresh id")
			v, err := calls[token].verify(i, func(r *x402.VerifyRequest) {
				r.MaxAmount, r.Hold = asked, hold
				if !fresh {
					r.AgentRequestID = id
				}
			})
			if err != nil {
				want("verify: %v", err)
			}
			n := toll.Credits(modelMax)
			if asked != nil {
				n = clamp(*asked)
			}
			reason := ""
			if tooLow(asked) {
				reason = x402.ReasonAmountOutOfRange
			} else if r := m.requests[id]; r != nil && !fresh {
				reason = x402.ReasonDuplicate
				if r.state == "held" {
					reason = x402.ReasonInFlight
				}
			} else {
				reason = m.check(token, n, 0)
			}
			// Advice may be a second old: the clock of the model stands still, so a stale yes of the other instance is right.
			if !hold && reason != "" && v.IsValid && len(s.inst) > 1 {
				return
			}
			if v.IsValid != (reason == "") || v.InvalidReason != reason {
				want("verify of %d: valid %v, %q; want %q", n, v.IsValid, v.InvalidReason, reason)
			}
			if v.IsValid && *v.Amount != n {
				want("verify of %d: %d", n, *v.Amount)
			}
			if v.IsValid && hold {
				if fresh && len(ids) < 12 {
					ids = append(ids, v.AgentRequestID)
				}
				m.requests[v.AgentRequestID] = &modelRequest{state: "held", token: token, held: n, until: m.now.Add(time.Minute)}
			}
		},
		"settle": func(t *rapid.T) {
			token, id, i := pick()
			asked := ask()
			r, err := calls[token].settle(i, id, func(r *x402.SettleRequest) { r.MaxAmount = asked })
			if err != nil {
				want("settle: %v", err)
			}
			n, outcome := m.settle(token, id, asked)
			switch {
			case outcome == "replay":
				if !r.Success || !r.Replayed || !bytes.Equal(r.Raw, m.requests[id].answer) {
					want("not the stored answer: %+v", r)
				}
			case outcome != "":
				if r.Success || r.ErrorReason != outcome {
					want("settle: %+v; want %q", r, outcome)
				}
			default:
				if !r.Success || r.Replayed || *r.CreditsRedeemed != n || *r.RemainingBalance != m.balance {
					want("settle: %+v; want %d, balance %d", r, n, m.balance)
				}
				m.requests[id].answer = r.Raw
			}
		},
		"release": func(t *rapid.T) {
			_, id, i := pick()
			out, err := i.Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: id})
			r := m.requests[id]
			switch {
			case r == nil:
				if !errors.Is(err, toll.NewError(toll.CodeSettlementNotFound)) {
					want("release of nothing: %v", err)
				}
				return
			case r.state == "settled":
				if !errors.Is(err, toll.NewError(toll.CodeReleaseOfSettled)) {
					want("release of a settled request: %v", err)
				}
				return
			case r.state == "held":
				r.state = "released"
			}
			state := r.state
			if state == "given up" {
				state = "lapsed"
			}
			if err != nil || out.Status != state || out.Released != r.held {
				want("release: %v %+v; want %s of %d", err, out, state, r.held)
			}
		},
		"": func(t *rapid.T) {
			b, err := s.one().checkout.Balance(s.ctx, p, s1, false)
			if err != nil {
				want("balance: %v", err)
			}
			if b.Balance != m.balance || b.Held != m.heldBy(-1) {
				want("balance %d, held %d; want %d, %d", b.Balance, b.Held, m.balance, m.heldBy(-1))
			}
		},
	})
}
