package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// act is one call of a recorded history, and outcome its answer.
type act struct {
	account int
	kind    string // mint, order, verify, hold, settle, release, balance
	id      string
	n       toll.Credits
}

type outcome struct {
	refused  string // reason word or code; "" when it was done
	n        toll.Credits
	balance  toll.Credits
	held     toll.Credits
	replayed bool
}

// books is what one account must look like after a part of the history.
type books struct {
	balance  toll.Credits
	requests map[string]entry
}

type entry struct {
	state   string // held, settled, released
	n       toll.Credits
	balance toll.Credits // after the burn
}

func (b books) held() (n toll.Credits) {
	for _, r := range b.requests {
		if r.state == "held" {
			n += r.n
		}
	}
	return n
}

func (b books) with(id string, e entry, balance toll.Credits) books {
	c := books{balance: balance, requests: maps.Clone(b.requests)}
	c.requests[id] = e
	return c
}

// bookkeeping is the service on one account, written down in the simplest way. Amounts of a request never change, so that
// a repeat is always the same request.
func bookkeeping(orderGrants toll.Credits) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return books{requests: map[string]entry{}} },
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := map[int][]porcupine.Operation{}
			for _, o := range history {
				a := o.Input.(act).account
				by[a] = append(by[a], o)
			}
			var out [][]porcupine.Operation
			for _, h := range by {
				out = append(out, h)
			}
			return out
		},
		Step: func(state, input, output any) (bool, any) {
			b, in, out := state.(books), input.(act), output.(outcome)
			r, known := b.requests[in.id]
			available := b.balance - b.held()
			switch in.kind {
			case "mint":
				b.balance += in.n
				return out.refused == "" && out.balance == b.balance, b
			case "order":
				b.balance += orderGrants
				return out.refused == "", b
			case "balance":
				return out.balance == b.balance && out.held == b.held(), b
			case "verify": // advice: a yes may be a second old, a no may not
				return out.refused == "" || out.refused == x402.ReasonInsufficientFunds && in.n > available, b
			case "hold":
				switch {
				case known && r.state == "held":
					return out.refused == x402.ReasonInFlight, b
				case known:
					return out.refused == x402.ReasonDuplicate, b
				case in.n > available:
					return out.refused == x402.ReasonInsufficientFunds, b
				}
				return out.refused == "" && out.n == in.n, b.with(in.id, entry{state: "held", n: in.n}, b.balance)
			case "settle":
				switch {
				case known && r.state == "settled":
					return out.refused == "" && out.replayed && out.n == r.n && out.balance == r.balance, b
				case known && r.state == "released":
					return out.refused == x402.ReasonConflict, b
				case !known && in.n > available:
					return out.refused == x402.ReasonInsufficientFunds, b
				}
				after := b.balance - in.n
				return out.refused == "" && !out.replayed && out.n == in.n && out.balance == after,
					b.with(in.id, entry{state: "settled", n: in.n, balance: after}, after)
			case "release":
				switch {
				case !known:
					return out.refused == string(toll.CodeSettlementNotFound), b
				case r.state == "settled":
					return out.refused == string(toll.CodeReleaseOfSettled), b
				}
				return out.refused == "" && out.n == r.n, b.with(in.id, entry{state: "released", n: r.n}, b.balance)
			}
			panic(in.kind)
		},
		Equal:             func(a, b any) bool { return reflect.DeepEqual(a, b) },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
}

// Concurrent verify, settle, release, mint and order on one account and on ten are explained by some order of the calls,
// one after the other: there is no lost, doubled or half-seen act.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	type size struct{ accounts, callers, each int }
	for _, z := range []size{{accounts: 1, callers: 8, each: 40}, {accounts: 10, callers: 16, each: 60}} {
		t.Run(strconv.Itoa(z.accounts)+" accounts", func(t *testing.T) {
			eachProcesses(t, func(t *testing.T, services []*servertest.Process, opts servertest.Options) {
				var history []porcupine.Operation
				var lost error
				for range 3 {
					m := openMarket(t, services, opts, z.accounts)
					if history, lost = m.record(t, services, z.callers, z.each); lost == nil || t.Failed() {
						break
					}
					t.Log("another history, as an answer was lost: ", lost)
				}
				if t.Failed() || lost != nil {
					t.Fatal(lost)
				}
				model := bookkeeping(marketGrants)
				if got := porcupine.CheckOperationsTimeout(model, history, 2*time.Minute); got != porcupine.Ok {
					t.Fatalf("%d operations: %s", len(history), got)
				}
				plantFaults(t, model, history)
			})
		})
	}
}

// record makes calls from several callers at once. The error is that of a call without an answer: what it did is in no history.
func (m *market) record(t *testing.T, services []*servertest.Process, callers, each int) (history []porcupine.Operation, lost error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		rng := rand.New(rand.NewPCG(7, uint64(caller)))
		wg.Go(func() {
			for range each {
				in := m.draw(rng)
				call := time.Since(began)
				out, err := m.do(in, services[rng.IntN(len(services))])
				end := time.Since(began)
				mu.Lock()
				switch {
				case err == nil:
					history = append(history, porcupine.Operation{ClientId: caller, Input: in, Call: int64(call), Output: out, Return: int64(end)})
				case toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable:
					lost = fmt.Errorf("%+v: %w", in, err)
				default:
					t.Errorf("%+v: %v", in, err)
				}
				over := err != nil || lost != nil
				mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	wg.Wait()
	return history, lost
}

// plantFaults changes a history that is right so that no service could have made it. Each fault must be found.
func plantFaults(t *testing.T, model porcupine.Model, history []porcupine.Operation) {
	faults := map[string]func(in *act, out *outcome) bool{
		"a burn is lost": func(in *act, out *outcome) bool {
			ok := in.kind == "settle" && out.refused == "" && !out.replayed
			out.balance += in.n
			return ok
		},
		"a request is burned twice": func(in *act, out *outcome) bool {
			ok := in.kind == "settle" && out.replayed
			out.replayed = false
			out.balance -= in.n
			return ok
		},
		"credits appear": func(in *act, out *outcome) bool {
			ok := in.kind == "mint"
			in.n++
			return ok
		},
		"a hold holds nothing": func(in *act, out *outcome) bool {
			ok := in.kind == "balance" && out.held > 0
			out.held = 0
			return ok
		},
		"a release gives back what was burned": func(in *act, out *outcome) bool {
			ok := in.kind == "release" && out.refused == string(toll.CodeReleaseOfSettled)
			*out = outcome{n: in.n}
			return ok
		},
	}
	for name, plant := range faults {
		tries, found := 0, false
		// A changed call beside others can still be explained by another order of them, so that one place is not enough.
		for i := len(history) / 3; i < len(history) && tries < 20 && !found; i++ {
			in, out := history[i].Input.(act), history[i].Output.(outcome)
			if !plant(&in, &out) {
				continue
			}
			tries++
			planted := slices.Clone(history)
			planted[i].Input, planted[i].Output = in, out
			found = porcupine.CheckOperationsTimeout(model, planted, time.Minute) == porcupine.Illegal
		}
		switch {
		case tries == 0:
			t.Errorf("%s: the history has no call to plant it in", name)
		case !found:
			t.Errorf("%s: planted %d times and not found", name, tries)
		}
	}
}

// eachProcesses runs on one process over SQLite, and on two processes over one PostgreSQL.
func eachProcesses(t *testing.T, f func(t *testing.T, services []*servertest.Process, opts servertest.Options)) {
	t.Run("sqlite", func(t *testing.T) {
		opts := servertest.Options{Data: storetest.Dir(t)}
		t.Cleanup(func() { auditAfter(t, opts) })
		servertest.Key(t, opts, "builder")
		f(t, []*servertest.Process{servertest.Start(t, opts)}, opts)
	})
	t.Run("postgres, 2 processes", func(t *testing.T) {
		opts := servertest.Options{Database: storetest.Config(t, storetest.Postgres).Database, MasterKeyFile: masterKey(t)}
		t.Cleanup(func() { auditAfter(t, opts) })
		servertest.Key(t, opts, "builder")
		f(t, []*servertest.Process{servertest.Start(t, opts), servertest.Start(t, opts)}, opts)
	})
}

// market is a free plan with dynamic credits and some subscribers of it.
type market struct {
	plan    toll.PlanID
	builder toll.APIKey
	subs    []toll.APIKey
	tokens  []string
	run     string
}

const (
	marketGrants = 20
	marketMost   = 6 // credits a request
	marketIDs    = 24
)

func openMarket(t *testing.T, services []*servertest.Process, opts servertest.Options, accounts int) *market {
	t.Helper()
	ctx := t.Context()
	m := &market{builder: servertest.Key(t, opts, "builder"), run: toll.NewUUID()[:8]}
	reg := must.Get(services[0].Client(m.builder.Key, servertest.Patient).RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "market"}, Price: toll.Price{IsCrypto: true},
		Credits: toll.CreditsConfig{Amount: marketGrants, MinAmount: 1, MaxAmount: marketMost},
	}))(t)
	m.plan = reg.PlanID
	for i := range accounts {
		// As toll keys create does, without a process for each.
		key := must.Get(insist(func() (toll.APIKey, error) {
			return server.CreateLocalKey(ctx, server.Config{Data: opts.Data, Database: opts.Database, MasterKeyFile: opts.MasterKeyFile},
				server.KeyRequest{Account: fmt.Sprintf("subscriber %d", i)})
		}))(t)
		c := services[0].Client(key.Key, servertest.Patient)
		token := must.Get(c.AccessToken(ctx, m.plan))(t)
		m.subs = append(m.subs, key)
		m.tokens = append(m.tokens, token.AccessToken)
		// A free plan is ordered by the first verify or settle: that order shall not hide in another call.
		must.Get(c.OrderPlan(ctx, m.plan))(t)
		must.Get(services[0].Client(m.builder.Key, servertest.Patient).Settle(ctx, m.settle(i, "first-"+m.run, marketGrants)))(t)
		for spent := toll.Credits(marketMost); spent < marketGrants; spent += marketMost {
			n := min(marketMost, marketGrants-spent)
			must.Get(services[0].Client(m.builder.Key, servertest.Patient).Settle(ctx, m.settle(i, fmt.Sprintf("first-%s-%d", m.run, spent), n)))(t)
		}
	}
	return m
}

// draw picks a call. The amount of a request depends on its id alone.
func (m *market) draw(rng *rand.Rand) act {
	account, k := rng.IntN(len(m.subs)), rng.IntN(marketIDs)
	in := act{account: account, id: fmt.Sprintf("%s-%d-%d", m.run, account, k), n: toll.Credits(1 + k%marketMost)}
	switch d := rng.IntN(100); {
	case d < 10:
		in.kind, in.n = "mint", toll.Credits(1+rng.IntN(5))
	case d < 13:
		in.kind = "order"
	case d < 25:
		in.kind = "balance"
	case d < 33:
		in.kind = "verify"
	case d < 55:
		in.kind = "hold"
	case d < 85:
		in.kind = "settle"
	default:
		in.kind = "release"
	}
	return in
}

func (m *market) required() x402.PaymentRequired {
	return *x402.NewPaymentRequired([]*x402.Terms{{
		PlanID: m.plan, Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), MinAmount: 1, MaxAmount: marketMost,
	}}, x402.Options{})
}

func (m *market) settle(account int, id string, n toll.Credits) *x402.SettleRequest {
	return &x402.SettleRequest{PaymentRequired: m.required(), AccessToken: m.tokens[account], AgentRequestID: id, MaxAmount: &n}
}

// do makes the call. An error means that its outcome is not known, or that it is not one that the model has.
func (m *market) do(in act, p *servertest.Process) (outcome, error) {
	ctx := context.Background()
	// A repeat would hide what the first call did.
	builder, sub := p.Client(m.builder.Key, client.WithRetries(0)), p.Client(m.subs[in.account].Key, client.WithRetries(0))
	switch in.kind {
	case "mint":
		r, err := builder.Mint(ctx, m.plan, m.subs[in.account].Address, in.n, 0)
		if err != nil {
			return outcome{}, err
		}
		balance, err := toll.ParseCredits(fmt.Sprint(r.Data["balance"]))
		return outcome{balance: balance}, err
	case "order":
		_, err := sub.OrderPlan(ctx, m.plan)
		return outcome{}, err
	case "balance":
		b, err := sub.Balance(ctx, m.plan)
		if err != nil {
			return outcome{}, err
		}
		return outcome{balance: b.Balance, held: b.Held}, nil
	case "verify", "hold":
		req := &x402.VerifyRequest{PaymentRequired: m.required(), AccessToken: m.tokens[in.account], MaxAmount: &in.n}
		if in.kind == "hold" {
			req.AgentRequestID, req.Hold, req.HoldSecs = in.id, true, x402.MaxHoldSecs
		}
		v, err := builder.Verify(ctx, req)
		if err != nil {
			return outcome{}, err
		}
		if !v.IsValid {
			return outcome{refused: v.InvalidReason}, nil
		}
		return outcome{n: *v.Amount}, nil
	case "settle":
		r, err := builder.Settle(ctx, m.settle(in.account, in.id, in.n))
		if err != nil {
			return outcome{}, err
		}
		if !r.Success {
			return outcome{refused: r.ErrorReason}, nil
		}
		return outcome{n: *r.CreditsRedeemed, balance: *r.RemainingBalance, replayed: r.Replayed}, nil
	case "release":
		r, err := builder.Release(ctx, &x402.ReleaseRequest{AgentRequestID: in.id})
		var e *toll.Error
		if errors.As(err, &e) && (e.Code == toll.CodeSettlementNotFound || e.Code == toll.CodeReleaseOfSettled) {
			return outcome{refused: string(e.Code)}, nil
		}
		if err != nil {
			return outcome{}, err
		}
		return outcome{n: r.Released}, nil
	}
	panic(in.kind)
}
