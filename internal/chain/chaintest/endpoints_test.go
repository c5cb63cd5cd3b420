package chaintest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
)

// unhurried is a timeout that an endpoint that answers never exceeds.
const unhurried = patience

// stillClock is a clock that only Advance moves. With this clock all endpoints are equally fast, so that the pool prefers the first
// endpoint of its configuration.
type stillClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *stillClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stillClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// poolLog collects the log lines of a pool.
type poolLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *poolLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *poolLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

type twoEndpoints struct {
	chain *chaintest.Chain
	first *chaintest.Double
	next  *chaintest.Double
	pool  *endpoints.Pool
	clock *stillClock
	log   *poolLog
}

// newTwoEndpoints returns a pool with two endpoints of one chain.
func newTwoEndpoints(t *testing.T, change func(cfg *endpoints.Config)) *twoEndpoints {
	t.Helper()
	chain := chaintest.New(t)
	s := &twoEndpoints{chain: chain, first: chaintest.NewDouble(t, chain.Client()), next: chaintest.NewDouble(t, chain.Client()), clock: &stillClock{now: time.Now()}, log: &poolLog{}}
	cfg := endpoints.Config{
		URLs: []string{s.first.URL, s.next.URL}, ChainID: contracts.BaseSepolia, Genesis: chain.Genesis(), Clock: s.clock.Now,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Timeout: unhurried,
	}
	if change != nil {
		change(&cfg)
	}
	pool := must.Get(endpoints.New(cfg))(t)
	t.Cleanup(pool.Close)
	s.pool = pool
	return s
}

// number returns the number of the latest block and the name of the endpoint that returned it.
func (s *twoEndpoints) number(t *testing.T) (uint64, string) {
	t.Helper()
	number, from, err := s.ask(t)
	must.Do(t, err, "read")
	return number, from
}

func (s *twoEndpoints) ask(t *testing.T) (number uint64, from string, err error) {
	err = s.pool.Read(t.Context(), func(ctx context.Context, c *endpoints.Conn) error {
		n, err := c.BlockNumber(ctx)
		number, from = n, c.Name
		return err
	})
	return number, from, err
}

// host returns the name of the endpoint of a double.
func host(d *chaintest.Double) string { return strings.TrimPrefix(d.URL, "http://") }

func (s *twoEndpoints) health(t *testing.T, d *chaintest.Double) endpoints.Health {
	t.Helper()
	for _, h := range s.pool.Health() {
		if h.Name == host(d) {
			return h
		}
	}
	t.Fatalf("no health of %s", host(d))
	return endpoints.Health{}
}

// expectOnly checks that the pool reads only from good, and that it does not use out.
func (s *twoEndpoints) expectOnly(t *testing.T, good, out *chaintest.Double) {
	t.Helper()
	must.Do(t, s.only(t, good, out))
}

func (s *twoEndpoints) only(t *testing.T, good, out *chaintest.Double) error {
	t.Helper()
	for range 3 {
		if _, from, err := s.ask(t); err != nil || from != host(good) {
			return fmt.Errorf("the answer came from %q: %v", from, err)
		}
	}
	if h := s.health(t, out); h.Usable || h.Reason == "" {
		return fmt.Errorf("the bad endpoint: %+v", h)
	}
	if h := s.health(t, good); !h.Usable || h.Reason != "" {
		return fmt.Errorf("the good endpoint: %+v", h)
	}
	before := out.Calls("eth_blockNumber")
	_, _, err := s.ask(t)
	if after := out.Calls("eth_blockNumber"); after != before {
		return errors.New("the endpoint that is out was asked")
	}
	return err
}

func transfer(t *testing.T, s *twoEndpoints) *types.Transaction {
	t.Helper()
	key := must.Get(crypto.GenerateKey())(t)
	from := crypto.PubkeyToAddress(key.PublicKey)
	must.Get(s.chain.Fund(t.Context(), from, big.NewInt(1e18)))(t)
	to := common.Address{0xaa}
	return must.Get(types.SignNewTx(key, types.LatestSignerForChainID(big.NewInt(contracts.BaseSepolia)), &types.DynamicFeeTx{
		ChainID: big.NewInt(contracts.BaseSepolia), Gas: 50_000, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(1e9), To: &to, Value: big.NewInt(7),
	}))(t)
}

func bytesOf(t *testing.T, tx *types.Transaction) []byte {
	t.Helper()
	return must.Get(tx.MarshalBinary())(t)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("it never came true: %s", what)
}

// A chain in the same process can be an endpoint. Closing the pool does not close the chain.
func TestPool_InProcess(t *testing.T) {
	t.Parallel()
	chain := chaintest.New(t)
	for range 2 {
		pool := must.Get(endpoints.New(endpoints.Config{
			Clients: []*rpc.Client{chain.Client()}, ChainID: chain.ChainID(), Genesis: chain.Genesis(), Idle: true, Timeout: unhurried,
		}))(t)
		pool.Check(t.Context())
		if h := pool.Health(); len(h) != 1 || h[0].Name != "embedded" || !h[0].Usable {
			t.Errorf("health %+v", h)
		}
		for _, tag := range []string{"latest", "safe", "finalized"} {
			if h, err := pool.Head(t.Context(), tag); err != nil || h == nil {
				t.Errorf("%s: %v, %v", tag, h, err)
			}
		}
		if _, err := pool.Head(t.Context(), "newest"); err == nil {
			t.Error("an invalid tag was accepted")
		}
		pool.Close()
	}
}

func TestPool_ForeignGenesis(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Genesis = common.Hash{1} })
	err := s.pool.Read(t.Context(), func(context.Context, *endpoints.Conn) error { t.Error("asked"); return nil })
	if !errors.Is(err, endpoints.ErrNone) || !strings.Contains(err.Error(), "genesis block") {
		t.Errorf("error %v", err)
	}
}

// With Idle, an old head is not a fault, because the chain creates blocks only for transactions.
func TestPool_Idle(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Idle = true })
	s.clock.Advance(24 * time.Hour)
	s.number(t)
	s.clock.Advance(24 * time.Hour)
	s.number(t)
}

func TestRead_AnswersAreReturnedAtOnce(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	s.number(t)
	s.first.Refuse(-1, "eth_call", "execution reverted: no")
	s.next.Refuse(-1, "eth_call", "execution reverted: no")
	own := errors.New("of the caller")
	tests := []struct {
		name string
		f    func(ctx context.Context, c *endpoints.Conn) error
		want func(err error) bool
	}{
		{"a JSON-RPC error", func(ctx context.Context, c *endpoints.Conn) error {
			_, err := c.CallContract(ctx, ethereum.CallMsg{To: &common.Address{}}, nil)
			return err
		}, func(err error) bool {
			var coded rpc.Error
			return errors.As(err, &coded) && coded.ErrorCode() == -32000 && strings.Contains(err.Error(), "execution reverted: no")
		}},
		{"nothing there", func(ctx context.Context, c *endpoints.Conn) error {
			_, err := c.TransactionReceipt(ctx, common.Hash{1})
			return err
		}, func(err error) bool { return errors.Is(err, ethereum.NotFound) }},
		{"an error of the caller", func(context.Context, *endpoints.Conn) error { return own }, func(err error) bool { return err == own }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runs := 0
			err := s.pool.Read(t.Context(), func(ctx context.Context, c *endpoints.Conn) error { runs++; return tt.f(ctx, c) })
			if runs != 1 || !tt.want(err) {
				t.Errorf("%d runs, error %v", runs, err)
			}
		})
	}
	if h := s.health(t, s.first); h.Faults != 0 {
		t.Errorf("answers count as faults: %+v", h)
	}
}

func TestRead_TriesAgain(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(d *chaintest.Double){
		"lost requests": func(d *chaintest.Double) { d.Drop(2) },
		"lost answers":  func(d *chaintest.Double) { d.LoseAnswers(2) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTwoEndpoints(t, nil)
			s.pool.Check(t.Context())
			fault(s.first)
			if _, from := s.number(t); from != host(s.first) {
				t.Errorf("the answer came from %s", from)
			}
			if h := s.health(t, s.first); !h.Usable || h.Faults == 0 {
				t.Errorf("health %+v", h)
			}
			// The pool now prefers the second endpoint, which had no fault.
			if _, from := s.number(t); from != host(s.next) {
				t.Errorf("the answer came from %s", from)
			}
		})
	}
}

func TestRead_ContextEnds(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Timeout = time.Minute })
	s.number(t)
	s.first.Hang()
	s.next.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := s.pool.Read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		_, err := c.BlockNumber(ctx)
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, endpoints.ErrNone) {
		t.Errorf("error %v", err)
	}
}

// The pool suspends an endpoint that only fails, and uses it again after a pause.
func TestBreaker(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	s.number(t)
	s.first.Drop(-1)
	s.number(t)
	s.expectOnly(t, s.next, s.first)
	asked := s.first.Calls("")
	s.first.Clear()
	s.clock.Advance(9 * time.Second)
	s.expectOnly(t, s.next, s.first)
	if now := s.first.Calls(""); now != asked {
		t.Errorf("asked %d times while it rests", now-asked)
	}
	s.clock.Advance(2 * time.Second)
	s.next.Drop(-1)
	if _, from := s.number(t); from != host(s.first) {
		t.Errorf("after its rest the answer came from %s", from)
	}
	s.expectOnly(t, s.first, s.next)
	if text := s.log.String(); !strings.Contains(text, "suspended temporarily") {
		t.Errorf("log:\n%s", text)
	}
}

// If all endpoints are suspended, a read returns ErrNone at once. The pool recovers without a restart.
func TestBreaker_All(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	s.first.Drop(-1)
	s.next.Page(502)
	read := func(ctx context.Context, c *endpoints.Conn) error { _, err := c.BlockNumber(ctx); return err }
	if err := s.pool.Read(t.Context(), read); !errors.Is(err, endpoints.ErrNone) {
		t.Fatalf("error %v", err)
	}
	asked := s.first.Calls("") + s.next.Calls("")
	err := s.pool.Read(t.Context(), read)
	if !errors.Is(err, endpoints.ErrNone) || !strings.Contains(err.Error(), "HTTP status 502") || !strings.Contains(err.Error(), "the connection to the endpoint broke") {
		t.Errorf("error %v", err)
	}
	if n := s.first.Calls("") + s.next.Calls("") - asked; n != 0 {
		t.Errorf("endpoints that rest were asked %d times", n)
	}
	if err := s.pool.Send(t.Context(), bytesOf(t, transfer(t, s))); !errors.Is(err, endpoints.ErrNone) {
		t.Errorf("send: %v", err)
	}
	if _, err := s.pool.Head(t.Context(), "safe"); !errors.Is(err, endpoints.ErrNone) {
		t.Errorf("safe: %v", err)
	}
	s.first.Clear()
	s.next.Clear()
	s.clock.Advance(11 * time.Second)
	s.number(t)
}

// The loop detects without a read that an endpoint fails or works again.
func TestLoop(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) {
		cfg.Every = 20 * time.Millisecond
		cfg.Cooldown = 100 * time.Millisecond
		cfg.Clock, cfg.Idle = time.Now, true // the chain never creates a block
	})
	g := jobs.NewGroup(nil)
	g.Start(s.pool.Loop())
	usable := func(d *chaintest.Double) func() bool { return func() bool { return s.health(t, d).Usable } }
	eventually(t, "the first is used", usable(s.first))
	s.first.ChainID(1)
	eventually(t, "the first has gone", func() bool { return !usable(s.first)() })
	s.next.Drop(-1)
	eventually(t, "the next has gone", func() bool { return !usable(s.next)() })
	s.first.Clear()
	s.next.Clear()
	eventually(t, "both are back", func() bool { return usable(s.first)() && usable(s.next)() })
	must.Check(t, g.Stop(t.Context()))
}
