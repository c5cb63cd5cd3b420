package chain_test

import (
	"encoding/json"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

func at(d *chaintest.Double) func(*world) *endpoints.Pool {
	return func(w *world) *endpoints.Pool { return w.pool(endpoints.Config{URLs: []string{d.URL}}) }
}

// T64
func TestDelegationOverrun(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(usdc, 100_000_000)
		w.paid(r, purchase(owner, usdc, receiver(1), 1)) // the account has its code

		// Units that were spent elsewhere: the sink hears what the chain has counted.
		d := w.delegation(owner, 5_000)
		elsewhere := w.operation(w.service, "elsewhere", pays(t, w.signedBy(owner, w.onChain(d)), usdc, receiver(2), 40_000_000))
		if e := w.lands(elsewhere, w.service); !e.success {
			t.Fatalf("%+v", e)
		}
		w.books.Spent(t.Context(), nil, d.ID, toll.Units{})
		f := w.fails(r, by(d, purchase(owner, usdc, receiver(2), 20_000_000)), toll.CodeDelegationInsufficient)
		is(t, "reason", f.FailureReason, "ERC20TransferAmountEnforcer:allowance-exceeded")
		is(t, "spent units", w.books.spentOf(d.ID), "40000000")
		w.paid(r, by(d, purchase(owner, usdc, receiver(2), 10_000_000)))
		w.has(receiver(2), usdc, 50_000_000)

		// A limit for three orders, asked for at the same time by two processes that keep no budget.
		three := w.delegation(owner, 300)
		both := []*chain.Rail{r, w.running()}
		var wg sync.WaitGroup
		var mu sync.Mutex
		states := map[toll.OrderStatus]int{}
		for i := range 8 {
			wg.Go(func() {
				o := w.pay(both[i%2], by(three, purchase(owner, usdc, receiver(3), 1_000_000)))
				if o.Status == toll.OrderFailed && o.FailureCode != toll.CodeDelegationInsufficient {
					t.Errorf("failure: %+v", o)
				}
				mu.Lock()
				defer mu.Unlock()
				states[o.Status]++
			})
		}
		wg.Wait()
		if paid := states[toll.OrderConfirmed] + states[toll.OrderFinal]; paid != 3 || states[toll.OrderFailed] != 5 {
			t.Errorf("outcomes: %v, want 3 paid and 5 failed", states)
		}
		w.has(receiver(3), usdc, 3_000_000)
	})
}

// T65
func TestDelegationMisuse(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(usdc, 100_000_000, eurc, 100_000_000)
		w.paid(r, by(w.delegation(owner, 100), purchase(owner, usdc, receiver(1), 1_000_000)))

		pinned, listed := w.delegation(owner, 1_000), w.delegation(owner, 1_000)
		pinned.AllowedRecipients = []toll.Address{toll.Address(receiver(1))}
		listed.AllowedRecipients = []toll.Address{toll.Address(receiver(1)), toll.Address(receiver(2))}
		for _, d := range []*rail.Delegation{pinned, listed} {
			w.fails(r, by(d, purchase(owner, usdc, receiver(3), 1)), toll.CodeDelegationPlanMismatch)
			w.fails(r, by(d, purchase(owner, usdc, receiver(1), 1, receiver(3), 1)), toll.CodeDelegationPlanMismatch)
			w.paid(r, by(d, purchase(owner, usdc, receiver(1), 1)))
		}
		w.has(receiver(1), usdc, 1_000_002, receiver(3), usdc, 0)
		// Only the single receiver is known to the chain.
		is(t, "another receiver, pinned", w.redeems(w.signedBy(owner, w.onChain(pinned)), simple, single(usdc, 0, move(transfer, receiver(3), 1))),
			"AllowedCalldataEnforcer:invalid-calldata")

		w.fails(r, by(listed, purchase(owner, eurc, receiver(1), 1)), toll.CodeUnsupportedScheme)
		w.has(owner, eurc, 100_000_000)

		short := w.delegation(owner, 1_000)
		short.ExpiresAt = w.Now().Add(time.Hour)
		w.paid(r, by(short, purchase(owner, usdc, receiver(4), 1)))
		must.Do(t, w.Advance(time.Hour+2*time.Second))
		f := w.fails(r, by(short, purchase(owner, usdc, receiver(4), 1)), toll.CodeDelegationExpired)
		is(t, "reason", f.FailureReason, "TimestampEnforcer:expired-delegation")

		revoked := w.delegation(owner, 1_000)
		w.revokes(owner, revoked)
		f = w.fails(r, by(revoked, purchase(owner, usdc, receiver(4), 1)), toll.CodeDelegationRevoked)
		is(t, "reason", f.FailureReason, "CannotUseADisabledDelegation()")
		w.has(receiver(4), usdc, 1)
	})
}

// A delegation that is revoked when its order was tried, signed and tried again: the event says that nothing was paid.
// T65
func TestRevokedBeforeItLands(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(usdc, 1_000_000)
		d := w.delegation(owner, 100)
		p := by(d, purchase(owner, usdc, receiver(1), 1_000_000))
		w.signs(w.rail(), p)
		w.revokes(owner, d)
		double := chaintest.NewDouble(t, w.Client())
		double.Answer("eth_simulateV1", func([]json.RawMessage) (any, error) {
			return nil, &chaintest.Refusal{Code: -32601, Message: "the method eth_simulateV1 does not exist/is not available"}
		})
		double.Answer("eth_call", func(params []json.RawMessage) (any, error) {
			var m struct{ To common.Address }
			if err := json.Unmarshal(params[0], &m); err != nil || m.To != contracts.EntryPoint {
				return nil, chaintest.ErrPass
			}
			return hexutil.Bytes{}, nil
		})
		r := w.running(func(c *chain.Config) { c.Pool = at(double)(w) })
		f := w.fails(r, p, toll.CodeDelegationRevoked)
		is(t, "reason", f.FailureReason, "CannotUseADisabledDelegation()")
		op := w.op(p.OrderID)
		at := op.Failure.Position
		if at.Tx == (common.Hash{}) || at.Hash == (common.Hash{}) || op.SentAt.IsZero() {
			t.Fatalf("the failure has no evidence: %+v", at)
		}
		if e := w.eventOf(at.Tx, op.Hash); e != (event{false, "CannotUseADisabledDelegation()"}) {
			t.Errorf("event: %+v", e)
		}
		w.has(owner, usdc, 1_000_000, receiver(1), usdc, 0)
	})
}

// revokes disables a delegation from outside of the service.
func (w *world) revokes(owner common.Address, d *rail.Delegation) {
	w.Helper()
	var need []common.Address
	code := must.Get(w.Eth().CodeAt(w.Context(), owner, nil))(w)
	if len(code) == 0 {
		need = append(need, owner)
	}
	if e := w.lands(w.operation(owner, "outside "+d.ID, userop.RevokeCall(*w.onChain(d))), need...); !e.success {
		w.Fatalf("the revocation: %+v", e)
	}
}

// redelegates gives an account other code, as its key can at any time.
func (w *world) redelegates(a common.Address) {
	w.Helper()
	w.sendWith(w.outside, nil, w.gives(a, contracts.EntryPoint, w.nonce(a)))
}

// T70
func TestWalletRedelegated(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		idle := w.rail()
		direct, delegator, before := w.account(usdc, 1_000_000), w.account(usdc, 1_000_000), w.account(usdc, 1_000_000)
		// Replaced between signing and sending.
		orders := []rail.Purchase{
			purchase(direct, usdc, receiver(1), 1_000_000),
			by(w.delegation(delegator, 100), purchase(delegator, usdc, receiver(1), 1_000_000)),
		}
		for _, p := range orders {
			w.signs(idle, p)
		}
		// Replaced before anything is signed.
		orders = append(orders, purchase(before, usdc, receiver(1), 1_000_000), by(w.delegation(before, 100), purchase(before, usdc, receiver(1), 1)))
		for _, a := range []common.Address{direct, delegator, before} {
			w.redelegates(a)
			is(t, "code", w.wallet(idle, a).Code, "foreign")
		}
		r := w.running()
		for _, p := range orders {
			f := w.fails(r, p, toll.CodeChainForeignCode)
			account := p.Subscriber.String()
			if f.Params["address"] != account {
				t.Errorf("params: %v, want the address %s", f.Params, account)
			}
			if !w.op(p.OrderID).SentAt.IsZero() {
				t.Error("the order was sent")
			}
		}
		w.has(direct, usdc, 1_000_000, delegator, usdc, 1_000_000, before, usdc, 1_000_000, receiver(1), usdc, 0)
	})
}

// While the manager is paused by its owner, orders through delegations wait, and direct ones go on.
func TestPay_PausedManager(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		double := chaintest.NewDouble(t, w.Client())
		double.Pause(contracts.DelegationManager)
		r := w.running(func(c *chain.Config) { c.Pool = at(double)(w) })
		owner := w.account(usdc, 10_000_000)
		p := by(w.delegation(owner, 500), purchase(owner, usdc, receiver(1), 1_000_000))
		for range 2 {
			o, err := r.Pay(t.Context(), p)
			unusable(t, err, toll.CodeChainPaused, 60)
			if o.Status != toll.OrderCreated || w.op(p.OrderID).State != chain.Created {
				t.Errorf("the order is %s, want created", o.Status)
			}
		}
		w.paid(r, purchase(owner, usdc, receiver(2), 1_000_000))
		w.has(owner, usdc, 9_000_000, receiver(1), usdc, 0, receiver(2), usdc, 1_000_000)

		user := w.userHeld()
		unusable(t, r.CheckSignature(t.Context(), user.delegation(100)), toll.CodeChainPaused, 60)
		double.Clear()
		w.paid(r, p)
		w.has(owner, usdc, 8_000_000, receiver(1), usdc, 1_000_000)
	})
}

// unusable fails the test unless the error is this one with status 503.
func unusable(t testing.TB, err error, code toll.Code, after int) {
	t.Helper()
	e := toll.AsError(err)
	if err == nil || e.Code != code || e.HTTPStatus() != 503 || e.RetryAfterSecs != after {
		t.Errorf("error %v, want %s with status 503 and Retry-After %d", err, code, after)
	}
}

func TestReady(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 1_000_000)
	double := chaintest.NewDouble(t, w.Client())
	gone := w.pool(endpoints.Config{URLs: []string{"http://127.0.0.1:1"}, Tries: 1})
	for what, one := range map[string]struct {
		change func(*chain.Config)
		code   toll.Code
		after  int
	}{
		"no endpoint": {func(c *chain.Config) { c.Pool = gone }, toll.CodeChainUnreachable, 5},
		"contract with other code": {func(c *chain.Config) {
			double.Answer("eth_getCode", func(params []json.RawMessage) (any, error) {
				var a common.Address
				if err := json.Unmarshal(params[0], &a); err != nil || a != contracts.TimestampEnforcer {
					return nil, chaintest.ErrPass
				}
				return "0x6001", nil
			})
			c.Pool = at(double)(w)
		}, toll.CodeChainContracts, 60},
		"relayer below its floor": {func(c *chain.Config) {
			c.RelayerFloor = new(big.Int).Mul(big.NewInt(11), big.NewInt(1e18))
		}, toll.CodeChainRelayerLow, 60},
		"base fee above the cap": {func(c *chain.Config) { c.MaxBaseFee = big.NewInt(1) }, toll.CodeChainFeeCap, 15},
	} {
		t.Run(what, func(t *testing.T) {
			r := w.rail(one.change)
			unusable(t, r.Ready(t.Context()), one.code, one.after)
			p := purchase(owner, usdc, receiver(1), 1)
			o, err := r.Pay(t.Context(), p)
			unusable(t, err, one.code, one.after)
			if o.Status != toll.OrderCreated {
				t.Errorf("the order is %s, want created", o.Status)
			}
			w.signs(w.rail(), p) // nothing is lost

			// A signed order that cannot be sent says so, too.
			o, err = w.rail(one.change).Pay(t.Context(), p)
			unusable(t, err, one.code, one.after)
			if o.Status != toll.OrderSigned {
				t.Errorf("the order is %s, want signed", o.Status)
			}
		})
	}
	must.Check(t, w.rail().Ready(t.Context()), "Ready")
}

// What an endpoint says that is no revert decides nothing, and a first order is signed without overrides where the endpoint
// has none.
func TestPay_PoorEndpoints(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	double := chaintest.NewDouble(t, w.Client())
	r := w.rail(func(c *chain.Config) { c.Pool = at(double)(w) })
	owner := w.account(usdc, 1_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	for _, method := range []string{"eth_call", "eth_estimateGas"} {
		for _, text := range []string{"header not found", "missing trie node", "rate limit exceeded", "daily request count exceeded"} {
			double.Refuse(-1, method, text)
			if o, err := r.Pay(t.Context(), p); err == nil || o.Status != toll.OrderCreated {
				t.Fatalf("%s answers %q: %+v, %v", method, text, o, err)
			}
			double.Clear()
		}
	}
	few := func(params []json.RawMessage) (any, error) {
		if len(params) < 3 {
			return nil, chaintest.ErrPass
		}
		return nil, &chaintest.Refusal{Code: -32602, Message: "too many arguments, want at most 2"}
	}
	double.Answer("eth_call", few)
	double.Answer("eth_estimateGas", few)
	w.fails(r, purchase(owner, usdc, receiver(1), 1_000_001), toll.CodeChainBalance)
	w.signs(r, p)
	double.Clear()
	w.paid(w.running(), p)
	w.has(owner, usdc, 0, receiver(1), usdc, 1_000_000)

	other := w.account(usdc, 3)
	d := w.delegation(other, 100)
	double.Answer("eth_call", few)
	double.Answer("eth_estimateGas", few)
	p = by(d, purchase(other, usdc, receiver(2), 1, receiver(3), 1, receiver(4), 1))
	w.signs(r, p)
	double.Clear()
	w.paid(w.running(), p)
	w.has(other, usdc, 0, receiver(2), usdc, 1, receiver(3), usdc, 1, receiver(4), usdc, 1)
}

// A receiver that burns gas or reverts is not paid, and says nothing about who pays.
func TestPay_BadReceiver(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(wei, 1_000)
		code := func(runtime string) common.Address {
			body := common.FromHex(runtime)
			creation := append([]byte{0x61, byte(len(body) >> 8), byte(len(body)), 0x80, 0x60, 0x0a, 0x3d, 0x39, 0x3d, 0xf3}, body...)
			salt := [32]byte{1}
			w.send(contracts.Create2Deployer, append(salt[:], creation...))
			return crypto.CreateAddress2(contracts.Create2Deployer, salt, crypto.Keccak256(creation))
		}
		loop := code("5b600056")                     // jumps to its start for ever
		much := code("620493e05b600190038060045700") // counts down from 300,000: 7.8 M gas
		reverts := code("5f5ffd")                    // reverts without data
		paused := code("63d93c06655f526004601cfd")   // reverts with EnforcedPause()
		for what, to := range map[string]common.Address{"burns all gas": loop, "burns much gas": much, "reverts": reverts, "says that it is paused": paused} {
			t.Run(what, func(t *testing.T) {
				w.fails(r, purchase(owner, wei, to, 1), toll.CodeChainFailed)
				w.fails(r, purchase(owner, wei, receiver(1), 1, to, 1), toll.CodeChainFailed)
			})
		}
		w.paid(r, purchase(owner, wei, receiver(1), 1_000))
		w.has(owner, wei, 0, receiver(1), wei, 1_000)
	})
}
