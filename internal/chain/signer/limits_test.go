package signer_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
)

// priced is a request for an order of so many base units of USDC.
func (b *bench) priced(id string, units, cents int64) signer.Order {
	o := b.direct(id)
	o.Transfers[0].Amount, o.Total, o.Cents = big.NewInt(units), big.NewInt(units), cents
	return o
}

// T66
func TestHourlyCap(t *testing.T) {
	b := newBench(t, func(c *signer.Config) { c.HourlyCents = 1000 })
	start := b.now
	ask := func(id string, units, cents int64) error {
		t.Helper()
		_, err := b.Order(t.Context(), b.priced(id, units, cents))
		return err
	}
	over := func(err error, wait time.Duration) {
		t.Helper()
		var r *signer.Refusal
		if !errors.As(err, &r) || r.Reason != signer.OverCap || r.RetryAfter != wait {
			t.Fatalf("%+v, want a refusal for %s", err, wait)
		}
	}
	fine := func(err error) {
		t.Helper()
		must.Do(t, err)
	}
	over(ask("alone too much", 10_000_001, 1000), 0)
	fine(ask("a", 6_000_000, 600))
	b.now = start.Add(10 * time.Minute)
	fine(ask("b", 4_000_000, 400))
	over(ask("c", 1, 1), 50*time.Minute+time.Second)
	over(ask("d", 6_000_001, 601), time.Hour+time.Second)
	fine(ask("a", 6_000_000, 600)) // again, and counted once
	b.now = start.Add(time.Hour)
	over(ask("c", 1, 1), time.Second)
	b.now = start.Add(time.Hour + time.Second)
	fine(ask("c", 6_000_000, 600))
	over(ask("d", 1, 1), 10*time.Minute)
	b.now = start // a clock that goes back forgets nothing
	over(ask("d", 1, 1), 70*time.Minute+time.Second)
}

// The units of a stablecoin count, whatever the request says of cents: a part of a cent is one.
// T66
func TestCapCountsUnits(t *testing.T) {
	for _, test := range []struct {
		name         string
		token        common.Address
		units, cents int64
		fits         bool
	}{
		{"usdc at the cap", contracts.USDC(contracts.BaseSepolia), 1_000_000, 100, true},
		{"usdc, a unit more", contracts.USDC(contracts.BaseSepolia), 1_000_001, 100, false},
		{"usdc, no cents", contracts.USDC(contracts.BaseSepolia), 1_010_000, 0, false},
		{"usdc, more cents", contracts.USDC(contracts.BaseSepolia), 1, 101, false},
		{"eurc, no cents", contracts.EURC(contracts.BaseSepolia), 1_010_000, 0, false},
		{"another token", common.Address{5}, math.MaxInt64, 100, true},
		{"another token, above", common.Address{5}, 1, 101, false},
		{"native", common.Address{}, math.MaxInt64, 0, true},
	} {
		b := newBench(t, func(c *signer.Config) { c.HourlyCents = 100 })
		o := b.priced("order-1", test.units, test.cents)
		o.Token = test.token
		op, err := b.Order(t.Context(), o)
		if test.fits {
			must.Check(t, err, test.name)
			continue
		}
		refused(t, b, op, err, signer.OverCap)
		clean(t, b, nil)
	}
	for name, hourly := range map[string]int64{"capped": math.MaxInt64 - 1, "no cap": 0} {
		b := newBench(t, func(c *signer.Config) { c.HourlyCents = hourly })
		o := b.direct("order-1")
		o.Total = new(big.Int).Lsh(big.NewInt(1), 255)
		o.Transfers[0].Amount = o.Total
		if _, err := b.Order(t.Context(), o); (err != nil) != (hourly > 0) {
			t.Errorf("2^255 units, %s: %v", name, err)
		}
	}
}

// Against a model: no 3600 seconds ever have more than the cap, and what fits is signed.
// T66
func TestCapOfAnyHour(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, func(c *signer.Config) { c.HourlyCents = 100 })
		type spending struct{ at, cents int64 }
		var all []spending
		for i := range rapid.IntRange(1, 30).Draw(rt, "orders") {
			b.now = b.now.Add(time.Duration(rapid.SampledFrom([]int64{0, 1, 600, 1800, 3599, 3600, 3601}).Draw(rt, "wait")) * time.Second)
			cents := rapid.Int64Range(1, 110).Draw(rt, "cents")
			now, total := b.now.Unix(), int64(0)
			for _, s := range all {
				if s.at >= now-3600 {
					total += s.cents
				}
			}
			_, err := b.Order(t.Context(), b.priced(fmt.Sprint(i), cents*10_000, cents))
			if fits := total+cents <= 100; (err == nil) != fits {
				rt.Fatalf("%d cents after %d: %v", cents, total, err)
			}
			if err == nil {
				all = append(all, spending{now, cents})
				continue
			}
			var r *signer.Refusal
			if errors.As(err, &r); r.RetryAfter == 0 != (cents > 100) {
				rt.Fatalf("%d cents: try again after %s", cents, r.RetryAfter)
			}
			if wait := int64(r.RetryAfter / time.Second); wait > 0 {
				then := int64(0)
				for _, s := range all {
					if s.at >= now+wait-3600 {
						then += s.cents
					}
				}
				if then+cents > 100 {
					rt.Fatalf("after %d seconds there is no room", wait)
				}
			}
		}
	})
}

// Many at once get no cent more than the cap, and one order id one content.
// T66
func TestAtOnce(t *testing.T) {
	b := newBench(t, func(c *signer.Config) { c.HourlyCents = 500 })
	var signed, contents atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := b.Order(t.Context(), b.priced(fmt.Sprint("order-", i), 1_000_000, 100)); err == nil {
				signed.Add(1)
			}
		})
		all.Go(func() {
			o := b.priced("one", 1, 0)
			o.Token, o.Transfers[0].To = common.Address{5}, common.Address{byte(i)}
			if _, err := b.Order(t.Context(), o); err == nil {
				contents.Add(1)
			}
		})
	}
	all.Wait()
	if signed.Load() != 5 || contents.Load() != 1 {
		t.Errorf("%d orders and %d contents were signed, want 5 and 1", signed.Load(), contents.Load())
	}
	clean(t, b, nil)
}
