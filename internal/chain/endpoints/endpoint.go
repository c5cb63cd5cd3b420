package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

type endpoint struct {
	pool *Pool
	conn *Conn

	checking sync.Mutex // one check at a time

	mu        sync.Mutex
	chainID   uint64
	genesis   common.Hash
	head      uint64
	headTime  time.Time
	checkedAt time.Time     // of the last check that was answered
	row       int           // faults in a row
	counted   bool          // there was an attempt
	faults    int           // moving average, of 1000
	latency   time.Duration // moving average
	openUntil time.Time     // the endpoint rests until then
	recheck   bool          // it has rested: it has to pass a check first
	reason    string        // of the last fault
}

func newEndpoint(p *Pool, name string, c *rpc.Client) *endpoint {
	return &endpoint{pool: p, conn: &Conn{Client: ethclient.NewClient(c), RPC: c, Name: name}}
}

// unusable says why the endpoint is not used now, and "" when it is. It is called with the lock held.
func (e *endpoint) unusable(now time.Time) string {
	cfg := &e.pool.cfg
	switch {
	case now.Before(e.openUntil):
		return e.reason
	case e.checkedAt.IsZero():
		return cmp.Or(e.reason, "the endpoint has not been checked yet")
	case e.chainID != cfg.ChainID:
		return fmt.Sprintf("the endpoint serves chain %d, not %d", e.chainID, cfg.ChainID)
	case cfg.Genesis != (common.Hash{}) && e.genesis != cfg.Genesis:
		return "the endpoint has a different genesis block"
	case !cfg.Idle && now.Sub(e.headTime) > maxHeadAge:
		return "the latest block of the endpoint is too old"
	}
	return ""
}

// ready checks the endpoint if that is due and says why it cannot be used.
func (e *endpoint) ready(ctx context.Context) string {
	now := e.pool.cfg.Clock()
	e.mu.Lock()
	why := e.unusable(now)
	resting := now.Before(e.openUntil)
	// The background checks more often than this; without it, a look in time.
	due := e.recheck || e.checkedAt.IsZero() || now.Sub(e.checkedAt) > 3*e.pool.cfg.Every
	e.mu.Unlock()
	if resting || !due {
		return why
	}
	return e.check(ctx)
}

// check asks for chain id and head, once for those who ask at the same time, and says why the endpoint cannot be used.
func (e *endpoint) check(ctx context.Context) string {
	asked := e.pool.cfg.Clock()
	e.checking.Lock()
	defer e.checking.Unlock()
	e.mu.Lock()
	fresh := !e.recheck && e.checkedAt.After(asked)
	resting := asked.Before(e.openUntil)
	e.mu.Unlock()
	if !fresh && !resting {
		if why := e.ask(ctx); why != "" {
			return why
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unusable(e.pool.cfg.Clock())
}

// ask is a check that is made. It says what was wrong with the answer, "" when there was one.
func (e *endpoint) ask(ctx context.Context) string {
	type block struct {
		Number hexutil.Uint64 `json:"number"`
		Time   hexutil.Uint64 `json:"timestamp"`
		Hash   common.Hash    `json:"hash"`
	}
	var chainID hexutil.Uint64
	var head, first *block
	wantFirst := e.pool.cfg.Genesis != (common.Hash{})
	why, err := e.attempts(ctx, func(ctx context.Context, c *Conn) error {
		if err := c.RPC.CallContext(ctx, &chainID, "eth_chainId"); err != nil {
			return err
		}
		if wantFirst {
			if err := c.RPC.CallContext(ctx, &first, "eth_getBlockByNumber", "0x0", false); err != nil {
				return err
			}
		}
		return c.RPC.CallContext(ctx, &head, "eth_getBlockByNumber", "latest", false)
	})
	if why != "" {
		return why
	}
	if err != nil || head == nil || wantFirst && first == nil {
		const mute = "the endpoint does not return its chain id and latest block"
		e.suspend(mute)
		return mute
	}
	now := e.pool.cfg.Clock()
	e.mu.Lock()
	before, known := e.unusable(now), !e.checkedAt.IsZero()
	e.chainID, e.head, e.headTime = uint64(chainID), uint64(head.Number), time.Unix(int64(head.Time), 0)
	if first != nil {
		e.genesis = first.Hash
	}
	e.checkedAt, e.recheck = now, false
	after := e.unusable(now)
	e.mu.Unlock()
	if after != before && (known || after != "") {
		e.log(after)
	}
	return ""
}

func (e *endpoint) log(why string) {
	if why == "" {
		e.pool.cfg.Log.Info("a chain endpoint can be used", "endpoint", e.conn.Name)
		return
	}
	e.pool.cfg.Log.Warn("a chain endpoint cannot be used", "endpoint", e.conn.Name, "reason", why)
}

// suspend lets the endpoint rest at once.
func (e *endpoint) suspend(why string) {
	e.mu.Lock()
	e.reason = why
	e.openUntil, e.recheck = e.pool.cfg.Clock().Add(e.pool.cfg.Cooldown), true
	e.mu.Unlock()
	e.log(why)
}

// count notes how an attempt went; why is "" for one that was answered.
func (e *endpoint) count(why string, took time.Duration) {
	now := e.pool.cfg.Clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.counted {
		e.counted, e.latency = true, took
	}
	e.latency += (took - e.latency) / 8
	if why == "" {
		e.faults -= (e.faults + 7) / 8
		e.row = 0
		return
	}
	e.faults += (1000 - e.faults) / 8
	e.row++
	e.reason = why
	if e.row >= burst && !now.Before(e.openUntil) {
		e.openUntil, e.recheck = now.Add(e.pool.cfg.Cooldown), true
		e.pool.cfg.Log.Warn("a chain endpoint is suspended temporarily", "endpoint", e.conn.Name, "reason", why)
	}
}

// cost orders endpoints: the lower, the earlier. A fault weighs as much as an attempt that takes all its time, and one that
// was never asked as much as a slow one.
func (e *endpoint) cost() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.counted {
		return e.pool.cfg.Timeout / 2
	}
	return e.latency + e.pool.cfg.Timeout*time.Duration(e.faults)/1000
}

func (e *endpoint) resting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pool.cfg.Clock().Before(e.openUntil)
}

func (e *endpoint) health() Health {
	now := e.pool.cfg.Clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	why := e.unusable(now)
	h := Health{
		Name: e.conn.Name, Usable: why == "", Reason: why, ChainID: e.chainID, Head: e.head,
		Faults: e.faults, Latency: e.latency, CheckedAt: e.checkedAt,
	}
	if !e.headTime.IsZero() {
		h.HeadAge = now.Sub(e.headTime)
	}
	return h
}
