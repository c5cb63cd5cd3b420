package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// scene is one or more service processes on one database, a plan of the builder and its agents.
type scene struct {
	*testing.T
	services []*servertest.Process
	builder  toll.APIKey
	sub      toll.APIKey
	plan     toll.PlanID
}

// eachScene runs on one process over SQLite, and on two processes over one PostgreSQL with one master key.
func eachScene(t *testing.T, price toll.Credits, f func(s *scene)) {
	t.Run("sqlite", func(t *testing.T) {
		f(newScene(t, servertest.Options{Data: storetest.Dir(t)}, 1, price))
	})
	t.Run("postgres, 2 processes", func(t *testing.T) {
		cfg := storetest.Config(t, storetest.Postgres)
		f(newScene(t, servertest.Options{Database: cfg.Database, MasterKeyFile: masterKey(t)}, 2, price))
	})
}

func newScene(t *testing.T, opts servertest.Options, processes int, price toll.Credits) *scene {
	t.Cleanup(func() { auditAfter(t, opts) }) // after the services have ended, as cleanups run backwards
	s := &scene{T: t, builder: servertest.Key(t, opts, "builder"), sub: servertest.Key(t, opts, "subscriber")}
	for range processes {
		s.services = append(s.services, servertest.Start(t, opts))
	}
	reg := must.Get(s.asBuilder(0).RegisterPlan(context.Background(), client.PlanParams{
		Metadata: toll.Metadata{Name: "races"},
		Price:    toll.Price{IsCrypto: true, Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, TokenAddress: toll.Sandbox.USDC()},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: price, MaxAmount: price},
	}))(t)
	s.plan = reg.PlanID
	return s
}

// auditAfter proves the invariants of the books that a test left.
func auditAfter(t *testing.T, opts servertest.Options) {
	st, err := insist(func() (*store.Store, error) {
		return store.Open(context.Background(), store.Config{Data: opts.Data, Database: opts.Database})
	})
	if err != nil {
		t.Error(err)
		return
	}
	defer st.Close()
	l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
	defer l.Close(context.Background())
	found, err := l.Audit(context.Background())
	must.Check(t, err)
	for _, f := range found {
		t.Error(f)
	}
	orders, err := auditRecords(context.Background(), st, time.Now())
	must.Check(t, err)
	for _, f := range orders {
		t.Error(f)
	}
}

func (s *scene) asBuilder(i int) *client.Client {
	return s.services[i%len(s.services)].Client(s.builder.Key, servertest.Patient)
}

func (s *scene) mint(n toll.Credits) {
	s.Helper()
	must.Get(s.asBuilder(0).Mint(context.Background(), s.plan, s.sub.Address, n, 0))(s)
}

func (s *scene) token(opts ...client.TokenOption) string {
	s.Helper()
	tok := must.Get(s.services[0].Client(s.sub.Key, servertest.Patient).AccessToken(context.Background(), s.plan, opts...))(s)
	return tok.AccessToken
}

func (s *scene) balance() *toll.Balance {
	s.Helper()
	return must.Get(s.services[0].Client(s.sub.Key, servertest.Patient).Balance(context.Background(), s.plan))(s)
}

// agents returns one agent per process, all counting their runs in one counter.
func (s *scene) agents(runs *atomic.Int64) []string {
	var urls []string
	for i := range s.services {
		h := paid.Handler(s.asBuilder(i), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			_, _ = io.WriteString(w, "paid content")
		}), paid.Plan(s.plan))
		a := httptest.NewServer(h)
		s.Cleanup(a.Close)
		urls = append(urls, a.URL)
	}
	return urls
}

// barrage sends n requests at once and counts the statuses.
func (s *scene) barrage(urls []string, n int, token func(i int) string) map[int]int {
	s.Helper()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: patience}
	defer hc.CloseIdleConnections()
	var mu sync.Mutex
	statuses := map[int]int{}
	barrier := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		req := must.Get(http.NewRequest(http.MethodPost, urls[i%len(urls)]+"/ask", nil))(s)
		req.Header.Set(x402.HeaderSignature, token(i))
		wg.Go(func() {
			<-barrier
			resp, err := hc.Do(req)
			if err != nil {
				s.Error(err)
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if got := string(body) == "paid content"; got != (resp.StatusCode == http.StatusOK) {
				s.Errorf("status %d with body %q", resp.StatusCode, body)
			}
			if (resp.Header.Get(x402.HeaderResponse) != "") != (resp.StatusCode == http.StatusOK) {
				s.Errorf("status %d with receipt %q", resp.StatusCode, resp.Header.Get(x402.HeaderResponse))
			}
			mu.Lock()
			statuses[resp.StatusCode]++
			mu.Unlock()
		})
	}
	close(barrier)
	wg.Wait()
	return statuses
}

func TestConcurrentCallsRunExactlyWhatIsPaid(t *testing.T) {
	eachScene(t, 1, func(s *scene) {
		s.mint(20)
		var runs atomic.Int64
		token := s.token()
		got := s.barrage(s.agents(&runs), 64, func(int) string { return token })
		b := s.balance()
		if runs.Load() != 20 || got[200] != 20 || got[402] != 44 || b.Balance != 0 || b.Used != 20 {
			s.Fatalf("%d handlers ran, statuses %v, balance %d, used %d", runs.Load(), got, b.Balance, b.Used)
		}
	})
}

// T23
func TestMoreRequestsThanCredits(t *testing.T) {
	eachScene(t, 5, func(s *scene) {
		s.mint(100)
		var runs atomic.Int64
		token := s.token(client.WithTokenFormat("x402"))
		got := s.barrage(s.agents(&runs), 200, func(i int) string {
			return must.Get(x402.WithNonce(token, fmt.Sprint("nonce-", i)))(s)
		})
		if b := s.balance(); runs.Load() != 20 || got[200] != 20 || got[402] != 180 || b.Balance != 0 || b.Used != 100 {
			s.Fatalf("%d handlers ran, statuses %v, balance %d, used %d", runs.Load(), got, b.Balance, b.Used)
		}
	})
}

// T20
func TestSequentialReplay(t *testing.T) {
	eachScene(t, 5, func(s *scene) {
		s.mint(100)
		var runs atomic.Int64
		urls := s.agents(&runs)
		token := must.Get(x402.WithNonce(s.token(), "once"))(s)
		for i := range 5 {
			got := s.barrage(urls[i%len(urls):], 1, func(int) string { return token })
			if want := map[bool]int{true: 200, false: 402}[i == 0]; got[want] != 1 {
				s.Fatalf("use %d of one payload: %v, want %d", i, got, want)
			}
		}
		// The stock dialect, in which nothing but the nonce links verify and settle.
		payload := must.Get(x402.WithNonce(token, "stock"))(s)
		stock := &x402.StockPayment{Payload: payload, Requirements: s.settleRequest(token, "", 5).PaymentRequired.Accepts[0]}
		served := 0
		for i := range 5 {
			c := s.asBuilder(i)
			v := must.Get(c.Verify(context.Background(), &x402.VerifyRequest{Stock: stock}))(s)
			if !v.IsValid {
				if v.InvalidReason != x402.ReasonDuplicate {
					s.Fatalf("use %d: %+v", i, v)
				}
				continue
			}
			served++
			if r, err := c.Settle(context.Background(), &x402.SettleRequest{Stock: stock}); err != nil || !r.Success {
				s.Fatalf("use %d: %+v %v", i, r, err)
			}
		}
		if b := s.balance(); runs.Load() != 1 || served != 1 || b.Used != 10 {
			s.Fatalf("%d handlers ran, %d stock requests served, %d credits used; want 1, 1, 10", runs.Load(), served, b.Used)
		}
	})
}

// One payload many times at once, on agents of two processes: by its nonce, and, whatever the nonce, by its payment identifier.
// T21
func TestConcurrentReplay(t *testing.T) {
	eachScene(t, 5, func(s *scene) {
		s.mint(100)
		var runs atomic.Int64
		urls := s.agents(&runs)
		token := must.Get(x402.WithNonce(s.token(), "once"))(s)
		if got := s.barrage(urls, 100, func(int) string { return token }); got[200] != 1 || got[402] != 99 || runs.Load() != 1 {
			s.Fatalf("one nonce: %v, %d handlers ran", got, runs.Load())
		}
		identified := func(i int) string {
			d := must.Get(x402.DecodeToken(token))(s)
			return fmt.Sprintf(`{"x402Version":2,"payload":{"signature":%q,"nonce":"n-%d"},"extensions":{"payment-identifier":{"info":{"required":false,"id":"pay_0123456789abcdef"}}}}`, d.JWS, i)
		}
		if got := s.barrage(urls, 100, identified); got[200] != 1 || got[402] != 99 || runs.Load() != 2 {
			s.Fatalf("one payment identifier: %v, %d handlers ran", got, runs.Load())
		}
		if b := s.balance(); b.Used != 10 || b.Balance != 90 {
			s.Fatalf("balance %d, used %d", b.Balance, b.Used)
		}
	})
}

func (s *scene) settleRequest(token, id string, amount toll.Credits) *x402.SettleRequest {
	return &x402.SettleRequest{
		PaymentRequired: x402.PaymentRequired{X402Version: 2, Resource: x402.Resource{URL: "/ask"}, Accepts: []x402.Requirements{{
			Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PlanID: string(s.plan),
		}}},
		AccessToken: token, AgentRequestID: id, MaxAmount: amount.Ptr(),
	}
}

// T26
func TestIdempotencyRaced(t *testing.T) {
	eachScene(t, 5, func(s *scene) {
		s.mint(1000)
		token := s.token()
		v, err := s.asBuilder(0).Verify(context.Background(), &x402.VerifyRequest{
			PaymentRequired: s.settleRequest(token, "", 5).PaymentRequired, AccessToken: token,
		})
		if err != nil || !v.IsValid {
			s.Fatal(err, v)
		}
		answers := make([]string, 200)
		var wg sync.WaitGroup
		barrier := make(chan struct{})
		for i := range answers {
			wg.Go(func() {
				<-barrier
				r, err := s.asBuilder(i).Settle(context.Background(), s.settleRequest(token, v.AgentRequestID, 5))
				if err != nil || !r.Success {
					s.Error(err, r)
					return
				}
				answers[i] = string(r.Raw)
			})
		}
		close(barrier)
		wg.Wait()
		for _, a := range answers {
			if a == "" || a != answers[0] {
				s.Fatalf("%q and %q", a, answers[0])
			}
		}
		if b := s.balance(); b.Used != 5 {
			s.Fatalf("used %d", b.Used)
		}
	})
}

// T13
func TestRevocationReachesAllProcesses(t *testing.T) {
	for _, what := range []string{"permission", "key"} {
		t.Run(what, func(t *testing.T) {
			eachScene(t, 1, func(s *scene) {
				s.mint(1_000_000)
				ctx := context.Background()
				sub := s.services[0].Client(s.sub.Key, servertest.Patient)
				tok := must.Get(sub.AccessToken(ctx, s.plan))(s)
				key := must.Get(s.asBuilder(0).CreateKey(ctx, client.KeyParams{Name: "agent"}))(s)
				other := s.services[len(s.services)-1].Client(key.Key, client.WithRetries(0))
				verify := func(hold bool) (*x402.VerifyResponse, error) {
					return other.Verify(ctx, &x402.VerifyRequest{
						PaymentRequired: s.settleRequest("", "", 1).PaymentRequired, AccessToken: tok.AccessToken, Hold: hold,
					})
				}
				held, err := insist(func() (*x402.VerifyResponse, error) { return verify(true) })
				if err != nil || !held.IsValid {
					s.Fatal(err, held)
				}
				if what == "permission" {
					err = sub.RevokePermission(ctx, tok.PermissionHash)
				} else {
					_, err = s.asBuilder(0).RevokeKey(ctx, key.ID)
				}
				must.Do(s, err)
				deadline := time.Now().Add(patience)
				for {
					v, err := verify(false)
					if err != nil && toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable && time.Now().Before(deadline) {
						continue
					}
					if err != nil || !v.IsValid {
						if what == "permission" && (err != nil || v.Code != toll.CodePermissionRevoked) {
							s.Fatal(err, v)
						}
						if e := toll.AsError(err); what == "key" && (e == nil || e.Code != toll.CodeNotAuthenticated) {
							s.Fatal(err, v)
						}
						break
					}
					if time.Now().After(deadline) {
						s.Fatal("the revocation does not arrive")
					}
					time.Sleep(10 * time.Millisecond)
				}
				r, err := s.asBuilder(1).Settle(ctx, s.settleRequest(tok.AccessToken, held.AgentRequestID, 1))
				if err != nil || !r.Success {
					s.Fatalf("the hold taken before: %v, %+v", err, r)
				}
			})
		})
	}
}
