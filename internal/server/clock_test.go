package server_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// shifted is a clock that is off by d.
func shifted(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// codeOf returns the code of an error, "" for nil.
func codeOf(err error) toll.Code {
	e, ok := errors.AsType[*toll.Error](err)
	if !ok {
		return ""
	}
	return e.Code
}

func operator(t *testing.T, s *server.Server, url string) *client.Client {
	t.Helper()
	k := keyOf(t, s, server.KeyRequest{Account: "operator", Operator: true})
	return client.New(k.Key, client.WithURL(url), servertest.Patient)
}

// advance moves the clock of a sandbox that nobody else moves. A lost answer is no reason to move it twice.
func advance(t *testing.T, op *client.Client, d time.Duration) *client.Clock {
	t.Helper()
	before := must.Get(op.Clock(t.Context()))(t)
	after := must.Get(insist(func() (*client.Clock, error) {
		if now, err := op.Clock(t.Context()); err != nil || now.OffsetSecs > before.OffsetSecs {
			return now, err
		}
		return op.AdvanceClock(t.Context(), d)
	}))(t)
	if after.OffsetSecs != before.OffsetSecs+int64(d/time.Second) || after.Now.Sub(before.Now.Time) < d {
		t.Errorf("moved by %v from %v to %v", d, before, after)
	}
	return after
}

// Two instances whose machines are a minute apart share one sandbox. Its clock moves for both, and what ends by time ends:
// access tokens, API keys, credits, holds, periods. Nothing ends early, and nothing comes back.
// F21
func TestSandboxClockMoves(t *testing.T) {
	db, key := storetest.Config(t, storetest.Postgres), freshMasterKey(t)
	config := func(d time.Duration) server.Config {
		return server.Config{Database: db.Database, MasterKeyFile: key, PublicURL: "https://pay.example.com", Clock: shifted(d)}
	}
	one, urlOne := start(t, config(-30*time.Second))
	_, urlTwo := start(t, config(30*time.Second))
	builder, subscriber := keys(t, one)
	op := operator(t, one, urlOne)
	ctx := t.Context()
	a := newStand(t, urlOne, builder, subscriber, 0).patient
	b := a.on(urlTwo, builder, subscriber).patient
	short := keyOf(t, one, server.KeyRequest{Account: "subscriber", ExpiresIn: 10 * time.Minute})
	must.Get(a.builder.Mint(ctx, a.plan, a.buyer, 50, 30*time.Minute))(t)
	must.Get(a.builder.Mint(ctx, a.plan, a.buyer, 7, 0))(t)
	paid := func(c *stand, id string) toll.Code {
		t.Helper()
		r, err := c.settle(ctx, id)
		if err != nil {
			return codeOf(err)
		}
		if !r.Success {
			return r.Code
		}
		return ""
	}
	hold := func(c *stand, id string) *x402.VerifyResponse {
		t.Helper()
		return must.Get(c.builder.Verify(ctx, &x402.VerifyRequest{
			PaymentRequired: c.required(), AccessToken: c.token.AccessToken, AgentRequestID: id, MaxAmount: toll.Credits(1).Ptr(),
			Hold: true, HoldSecs: 300,
		}))(t)
	}

	// Before: a minute between the machines ends nothing, in either direction.
	for i, c := range []*stand{a, b, a, b} {
		if code := paid(c, "before-"+string(rune('a'+i))); code != "" {
			t.Errorf("settle on instance %d: %s", i%2, code)
		}
	}
	if v := hold(b, "held"); !v.IsValid {
		t.Fatalf("hold: %+v", v)
	}
	if c := a.balance(t); c.Balance != 53 {
		t.Errorf("before: %d credits", c.Balance)
	}

	move := func(d time.Duration) {
		t.Helper()
		after := advance(t, op, d)
		eventually(t, "the other instance follows", func() bool {
			c, err := b.builder.Clock(ctx)
			return err == nil && c.OffsetSecs == after.OffsetSecs
		})
	}

	move(15 * time.Minute) // the hold and the short key end
	if _, err := client.New(short.Key, client.WithURL(urlTwo)).Balance(ctx, a.plan); codeOf(err) != toll.CodeNotAuthenticated {
		t.Errorf("the API key that ended: %v", err)
	}
	eventually(t, "the hold lapses", func() bool { return b.balance(t).Held == 0 })
	if got := a.balance(t).Balance; got != 53 {
		t.Errorf("after 15 minutes: %d credits", got)
	}

	move(time.Hour) // the credits of half an hour end
	if got := b.balance(t).Balance; got != 7 {
		t.Errorf("after an hour: %d credits", got)
	}
	if code := paid(b, "after-an-hour"); code != "" {
		t.Errorf("credits without an end, and a token of a day: %s", code)
	}

	move(24 * time.Hour) // the access token ends
	if code := paid(b, "after-a-day"); code != toll.CodePermissionExpired {
		t.Errorf("the access token that ended: %q", code)
	}
	move(10 * 365 * 24 * time.Hour)
	if got := a.balance(t).Balance; got != 6 {
		t.Errorf("after ten years: %d credits", got)
	}
	fresh := must.Get(a.subscriber.AccessToken(ctx, a.plan))(t)
	a.token, b.token = fresh, fresh
	for i, c := range []*stand{a, b} {
		if code := paid(c, "late-"+string(rune('a'+i))); code != "" {
			t.Errorf("in ten years on instance %d: %s", i, code)
		}
	}
	if _, err := op.AdvanceClock(ctx, 95*365*24*time.Hour); codeOf(err) != toll.CodeBadNumber {
		t.Errorf("more than a century: %v", err)
	}
	// A time in the past would give back what ended.
	if _, err := op.AdvanceClock(ctx, -time.Hour); codeOf(err) != toll.CodeBadNumber {
		t.Errorf("an hour back: %v", err)
	}
	if _, err := a.subscriber.AdvanceClock(ctx, time.Hour); codeOf(err) != toll.CodeForbidden {
		t.Errorf("by somebody who is no operator: %v", err)
	}
}

// Several who move the clock at once move it by the sum, and a restart forgets nothing.
func TestClockMovedAtOnce(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			db := storetest.Config(t, v)
			cfg := server.Config{Data: db.Data, Database: db.Database}
			if cfg.Database != "" {
				cfg.MasterKeyFile = freshMasterKey(t)
			}
			s := open(t, cfg)
			k := keyOf(t, s, server.KeyRequest{Account: "operator", Operator: true})
			var wait sync.WaitGroup
			var lost atomic.Int64 // answers; whether the clock was moved is unknown then
			for range 20 {
				wait.Go(func() {
					for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
						r := httptest.NewRequest("POST", "/api/v1/sandbox/clock", strings.NewReader(`{"advanceSecs":60}`))
						r.Header.Set("Authorization", "Bearer "+k.Key)
						w := httptest.NewRecorder()
						s.Handler().ServeHTTP(w, r)
						if w.Code == http.StatusOK {
							return
						}
						if w.Code != http.StatusServiceUnavailable || time.Now().After(end) {
							t.Errorf("%d %s", w.Code, w.Body)
							return
						}
						lost.Add(1)
					}
				})
			}
			wait.Wait()
			must.Do(t, closeService(s))
			again, url := start(t, cfg)
			c, err := operator(t, again, url).Clock(t.Context())
			if err != nil || c.OffsetSecs < 20*60 || c.OffsetSecs > 60*(20+lost.Load()) || time.Until(c.Now.Time) < 19*time.Minute {
				t.Errorf("after a restart: %+v, %v; %d answers were lost", c, err, lost.Load())
			}
		})
	}
}

// The clock of a live service cannot be moved: it has no such route, and an offset in its database counts for nothing.
func TestClockOfLive(t *testing.T) {
	cfg := storetest.Config(t, storetest.SQLite)
	key := freshMasterKey(t)
	s, url := start(t, server.Config{Data: cfg.Data, Environment: toll.Live, MasterKeyFile: key, PublicURL: "https://pay.example.com"})
	op := operator(t, s, url)
	if _, err := op.Clock(t.Context()); codeOf(err) != toll.CodePathNotFound {
		t.Errorf("read: %v", err)
	}
	if _, err := op.AdvanceClock(t.Context(), time.Hour); codeOf(err) != toll.CodePathNotFound {
		t.Errorf("move: %v", err)
	}
	if got := status(t, url+"/api/v1/sandbox/clock"); got != 404 {
		t.Errorf("without a key: %d", got)
	}
}

// Only who can write to the database makes an operator.
func TestOperatorIsMadeLocally(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t) + "/data"}
	s, url := start(t, cfg)
	plain := keyOf(t, s, server.KeyRequest{Account: "alice"})
	c := client.New(plain.Key, client.WithURL(url))
	if _, err := c.AdvanceClock(t.Context(), time.Second); codeOf(err) != toll.CodeForbidden {
		t.Errorf("before: %v", err)
	}
	must.Get(c.CreateKey(t.Context(), client.KeyParams{Name: "operator"}))(t)
	if _, err := c.AdvanceClock(t.Context(), time.Second); codeOf(err) != toll.CodeForbidden {
		t.Errorf("with a key named so: %v", err)
	}
	must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "alice", Operator: true}))(t)
	if _, err := c.AdvanceClock(t.Context(), time.Second); err != nil {
		t.Errorf("as an operator: %v", err)
	}
}
