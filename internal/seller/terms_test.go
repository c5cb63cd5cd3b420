package seller_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// teller tells terms, one call after another as it is let.
type teller struct {
	x402.Facilitator
	mu    sync.Mutex
	calls map[toll.PlanID]int
	ask   func(context.Context, toll.PlanID) (*x402.Terms, error)
}

func (f *teller) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[toll.PlanID]int{}
	}
	f.calls[id]++
	f.mu.Unlock()
	return f.ask(ctx, id)
}

func tells(_ context.Context, id toll.PlanID) (*x402.Terms, error) {
	return &x402.Terms{PlanID: id}, nil
}

func fails(code toll.Code) func(context.Context, toll.PlanID) (*x402.Terms, error) {
	return func(context.Context, toll.PlanID) (*x402.Terms, error) { return nil, toll.NewError(code) }
}

func TestTermsCache_Life(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &teller{ask: tells}
		c := seller.NewTermsCache(f, time.Second, time.Now)
		want := func(what string, calls int, err error) {
			t.Helper()
			v, got := c.Of(t.Context(), plan)
			if !errors.Is(got, err) || err == nil && (v == nil || v.PlanID != plan) || f.calls[plan] != calls {
				t.Errorf("%s: %+v, %v after %d calls, want %v after %d", what, v, got, f.calls[plan], err, calls)
			}
		}
		f.ask = fails(toll.CodeUnavailable)
		want("nothing is known", 1, toll.NewError(toll.CodeUnavailable))
		f.ask = tells
		want("asked", 2, nil)
		time.Sleep(5*time.Minute - 1)
		want("fresh", 2, nil)
		time.Sleep(time.Nanosecond)
		f.ask = fails(toll.CodeUnavailable)
		want("older terms serve", 3, nil)
		want("and are asked for again", 4, nil)
		f.ask = fails(toll.CodePlanNotFound)
		want("the plan is gone", 5, toll.ErrPlanNotFound)
		f.ask = fails(toll.CodeUnavailable)
		want("older terms of a plan that is gone", 6, toll.NewError(toll.CodeUnavailable))
		f.ask = tells
		want("it is back", 7, nil)
		want("fresh again", 7, nil)
	})
}

// TestTermsCache_OneAsks: whoever needs the terms of a plan while somebody asks for them waits for that answer, as long as they
// want to, and other plans do not wait.
func TestTermsCache_OneAsks(t *testing.T) {
	for name, answer := range map[string]func(context.Context, toll.PlanID) (*x402.Terms, error){"told": tells, "failed": fails(toll.CodeUnavailable)} {
		synctest.Test(t, func(t *testing.T) {
			const other toll.PlanID = "2"
			let := make(chan struct{})
			f := &teller{ask: func(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
				if id == other {
					return tells(ctx, id)
				}
				<-let
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return answer(ctx, id)
			}}
			c := seller.NewTermsCache(f, time.Minute, time.Now)
			told, want := answer(t.Context(), plan)
			var wg sync.WaitGroup
			asker, leave := context.WithCancel(t.Context())
			ask := func(ctx context.Context) {
				wg.Go(func() {
					if v, err := c.Of(ctx, plan); !errors.Is(err, want) || (v == nil) != (told == nil) {
						t.Errorf("%s: %+v, %v", name, v, err)
					}
				})
				synctest.Wait()
			}
			ask(asker)
			for range 10 {
				ask(t.Context())
			}
			leave() // whoever asks does it for all
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.Of(impatient, plan); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if v, err := c.Of(t.Context(), other); err != nil || v.PlanID != other {
				t.Errorf("%s: another plan: %+v, %v", name, v, err)
			}
			close(let)
			wg.Wait()
			if f.calls[plan] != 1 || f.calls[other] != 1 {
				t.Errorf("%s: %v calls", name, f.calls)
			}
		})
	}
}

func TestTermsCache_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		f := &teller{ask: func(context.Context, toll.PlanID) (*x402.Terms, error) { <-let; panic("the service") }}
		c := seller.NewTermsCache(f, time.Minute, time.Now)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = c.Of(t.Context(), plan)
		})
		synctest.Wait()
		wg.Go(func() {
			if v, err := c.Of(t.Context(), plan); err == nil {
				t.Errorf("%+v", v)
			}
		})
		synctest.Wait()
		close(let)
		wg.Wait()
		f.ask = tells
		if _, err := c.Of(t.Context(), plan); err != nil {
			t.Error(err)
		}
	})
}

func TestTermsCache_Bounded(t *testing.T) {
	f := &teller{ask: tells}
	c := seller.NewTermsCache(f, time.Minute, time.Now)
	for n := range 1001 {
		must.Get(c.Of(t.Context(), toll.PlanID(toll.Credits(n).String())))(t)
	}
	if _, err := c.Of(t.Context(), "0"); err != nil || f.calls["0"] != 2 {
		t.Errorf("%v after %d calls: want the cache emptied", err, f.calls["0"])
	}
}
