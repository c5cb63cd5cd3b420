package chaintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/must"
)

// The pool suspends an endpoint that lies or does not respond, and reads from the second endpoint.
// T68
func TestLyingEndpointLeaves(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		lie    func(s *twoEndpoints)
		reason string
	}{
		{"wrong chain id", func(s *twoEndpoints) { s.first.ChainID(1) }, "the endpoint serves chain 1, not 84532"},
		{"no chain id", func(s *twoEndpoints) { s.first.Refuse(-1, "eth_chainId", "no") }, "does not return its chain id"},
		{"another first block", func(s *twoEndpoints) { s.first.ForgeBlocks(0) }, "a different genesis block"},
		{"HTML with status 200", func(s *twoEndpoints) { s.first.Page(http.StatusOK) }, "not JSON"},
		{"HTML with status 502", func(s *twoEndpoints) { s.first.Page(http.StatusBadGateway) }, "HTTP status 502"},
		{"HTML with status 429", func(s *twoEndpoints) { s.first.Page(http.StatusTooManyRequests) }, "HTTP status 429"},
		{"redirect", func(s *twoEndpoints) { s.first.Redirect(s.next.URL) }, "HTTP status 307"},
		{"answer without end", func(s *twoEndpoints) { s.first.Flood(1 << 40) }, "too large"},
		{"cut connections", func(s *twoEndpoints) { s.first.Drop(-1) }, "the connection to the endpoint broke"},
		{"lost answers", func(s *twoEndpoints) { s.first.LoseAnswers(-1) }, "the connection to the endpoint broke"},
		{"a number that is none", func(s *twoEndpoints) {
			s.first.Answer("eth_chainId", func([]json.RawMessage) (any, error) { return "eighty", nil })
		}, "an invalid JSON-RPC response"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Once with an endpoint that lies from the start, and once with an endpoint that lies after a correct response.
			for _, trusted := range []bool{false, true} {
				s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Most = 1 << 20 })
				if trusted {
					s.number(t)
				}
				tt.lie(s)
				s.pool.Check(t.Context())
				s.expectOnly(t, s.next, s.first)
				if h := s.health(t, s.first); !strings.Contains(h.Reason, tt.reason) {
					t.Errorf("reason %q, want %q", h.Reason, tt.reason)
				}
				if tt.name == "redirect" && s.next.Calls("eth_chainId") > 1 {
					t.Error("the redirect was followed")
				}
			}
		})
	}
}

// T68
func TestEndpoints_Hang(t *testing.T) {
	t.Parallel()
	// If the machine pauses for longer than the timeout, all endpoints seem to hang. Try again with a longer timeout.
	var wrong error
	for _, attempt := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, 40 * time.Second} {
		if wrong = hangs(t, attempt); wrong == nil {
			return
		}
		t.Logf("with attempts of %v: %v", attempt, wrong)
	}
	t.Error(wrong)
}

// hangs makes the first endpoint hang, and returns an error if the pool does not use the second endpoint.
func hangs(t *testing.T, attempt time.Duration) error {
	t.Helper()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Timeout = attempt })
	if _, _, err := s.ask(t); err != nil {
		return err
	}
	s.first.Hang()
	asked := s.first.Calls("")
	wrong := make([]error, 2)
	var all sync.WaitGroup
	for i := range wrong {
		all.Go(func() {
			if _, from, err := s.ask(t); err != nil || from != host(s.next) {
				wrong[i] = fmt.Errorf("the answer came from %q: %v", from, err)
			}
		})
	}
	all.Go(func() { s.pool.Check(t.Context()) })
	all.Wait()
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if n := s.first.Calls("") - asked; n != 3 {
		return fmt.Errorf("two reads and a check have asked the one that hangs %d times: an attempt that took all its time is not repeated", n)
	}
	return s.only(t, s.next, s.first)
}

// T68
func TestStaleHead(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	s.number(t)
	head := must.Get(s.chain.Eth().BlockNumber(t.Context()))(t)
	s.first.Freeze(head)
	s.clock.Advance(61 * time.Second)
	must.Do(t, s.chain.Advance(61*time.Second))
	s.pool.Check(t.Context())
	s.expectOnly(t, s.next, s.first)
	h := s.health(t, s.first)
	if !strings.Contains(h.Reason, "old") || h.HeadAge <= time.Minute || h.Head != head {
		t.Errorf("health %+v", h)
	}
	s.first.Clear()
	s.pool.Check(t.Context())
	if h := s.health(t, s.first); !h.Usable {
		t.Errorf("the endpoint has caught up: %+v", h)
	}
}

// If one endpoint rejects a new transaction because its nonce is used, the transaction still reaches the second endpoint and the chain.
// T68
func TestNonceTooLowToAFirstSend(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	tx := transfer(t, s)
	s.first.NonceTooLow(1)
	must.Check(t, s.pool.Send(t.Context(), bytesOf(t, tx)), "send")
	eventually(t, "the transaction is in a block", func() bool {
		receipt, err := s.chain.Eth().TransactionReceipt(t.Context(), tx.Hash())
		return err == nil && receipt.Status == types.ReceiptStatusSuccessful
	})
}

// proof returns a function that reads the logs of a block from an endpoint and returns their hash.
func proof(block common.Hash) func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
	return func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &block})
		if err != nil {
			return common.Hash{}, err
		}
		text, err := json.Marshal(logs)
		return crypto.Keccak256Hash(text), err
	}
}

// T68
func TestInventedLogOrReceipt(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Agree = true })
	hash := must.Get(s.chain.Fund(t.Context(), common.Address{1}, big.NewInt(1)))(t)
	receipt := must.Get(s.chain.Eth().TransactionReceipt(t.Context(), hash))(t)
	truth, err := endpoints.Agree(t.Context(), s.pool, proof(receipt.BlockHash))
	must.Do(t, err, "two that say the same")
	s.first.InventLogs(types.Log{Address: common.Address{2}, BlockHash: receipt.BlockHash, BlockNumber: receipt.BlockNumber.Uint64(), TxHash: hash})
	if h, err := endpoints.Agree(t.Context(), s.pool, proof(receipt.BlockHash)); !errors.Is(err, endpoints.ErrDisagree) {
		t.Errorf("an invented log was believed: %v, %v", h, err)
	}
	if h := s.health(t, s.first); !h.Usable {
		t.Errorf("with two nobody knows who lies: %+v", h)
	}
	s.first.Clear()

	invented := *receipt
	invented.TxHash = common.Hash{3}
	s.first.InventReceipt(&invented)
	_, err = endpoints.Agree(t.Context(), s.pool, func(ctx context.Context, c *endpoints.Conn) (common.Hash, error) {
		r, err := c.TransactionReceipt(ctx, common.Hash{3})
		if errors.Is(err, ethereum.NotFound) {
			return common.Hash{}, nil
		}
		if err != nil {
			return common.Hash{}, err
		}
		return r.BlockHash, nil
	})
	if !errors.Is(err, endpoints.ErrDisagree) {
		t.Errorf("an invented receipt was believed: %v", err)
	}
	if h, err := endpoints.Agree(t.Context(), s.pool, proof(receipt.BlockHash)); err != nil || h != truth {
		t.Errorf("the truth is not found again: %v, %v; %+v", h, err, s.pool.Health())
	}
}

// If two of three endpoints agree, the pool suspends the third endpoint.
// T68
func TestOneOfThree(t *testing.T) {
	t.Parallel()
	var third *chaintest.Double
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Agree = true })
	third = chaintest.NewDouble(t, s.chain.Client())
	pool := must.Get(endpoints.New(endpoints.Config{
		URLs: []string{s.first.URL, s.next.URL, third.URL}, ChainID: s.chain.ChainID(), Clock: s.clock.Now, Agree: true, Timeout: unhurried,
	}))(t)
	t.Cleanup(pool.Close)
	s.pool = pool
	head := must.Get(s.chain.Eth().HeaderByNumber(t.Context(), nil))(t)
	s.first.InventLogs(types.Log{Address: common.Address{2}, BlockHash: head.Hash(), TxHash: common.Hash{4}})
	if _, err := endpoints.Agree(t.Context(), pool, proof(head.Hash())); err != nil {
		t.Fatalf("two of three say the same: %v", err)
	}
	s.expectOnly(t, s.next, s.first)
	if h := s.health(t, third); !h.Usable {
		t.Errorf("an honest endpoint left: %+v", h)
	}
}

func TestHead_Agreement(t *testing.T) {
	t.Parallel()
	heads := func(t *testing.T, s *twoEndpoints) (safe *types.Header, err error) {
		t.Helper()
		latest, err := s.pool.Head(t.Context(), "latest")
		if err != nil || latest == nil {
			t.Fatalf("latest: %v", err)
		}
		return s.pool.Head(t.Context(), "safe")
	}
	grow := func(t *testing.T, s *twoEndpoints, n int) {
		t.Helper()
		for range n {
			must.Do(t, s.chain.Advance(0))
		}
	}
	safeOf := func(t *testing.T, c *ethclient.Client) *types.Header {
		t.Helper()
		return must.Get(c.HeaderByNumber(t.Context(), big.NewInt(-4)))(t)
	}
	agree := func(cfg *endpoints.Config) { cfg.Agree = true }

	t.Run("same block", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		want := safeOf(t, s.chain.Eth())
		if got, err := heads(t, s); err != nil || got.Hash() != want.Hash() {
			t.Errorf("safe %v, %v, want %v", got, err, want)
		}
		if got, err := s.pool.Head(t.Context(), "finalized"); err != nil || got == nil {
			t.Errorf("finalized %v, %v", got, err)
		}
	})
	t.Run("one is behind", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		old := safeOf(t, s.chain.Eth())
		s.first.Freeze(old.Number.Uint64())
		grow(t, s, 3)
		if got, err := s.pool.Head(t.Context(), "safe"); err != nil || got.Number.Cmp(old.Number) != 0 {
			t.Errorf("safe %v, %v, want that of the one that is behind, %v", got, err, old.Number)
		}
	})
	// An endpoint confirms no block after its own safe block, because such a block can still change.
	t.Run("one has not got so far", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		grow(t, s, 3)
		old := blockOf(t, s, "0x1")
		s.first.Answer("eth_getBlockByNumber", func(params []json.RawMessage) (any, error) {
			if string(params[0]) == `"safe"` {
				return old, nil
			}
			return nil, chaintest.ErrPass
		})
		if got, err := s.pool.Head(t.Context(), "safe"); err != nil || got.Number.Int64() != 1 {
			t.Errorf("safe %v, %v, want block 1", got, err)
		}
	})
	t.Run("another hash", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		grow(t, s, 3)
		s.next.ForgeBlocks(1)
		if got, err := s.pool.Head(t.Context(), "safe"); !errors.Is(err, endpoints.ErrDisagree) {
			t.Errorf("safe %v, %v", got, err)
		}
		if text := s.log.String(); strings.Count(text, "do not agree") != 1 {
			t.Errorf("log:\n%s", text)
		}
		if _, err := s.pool.Head(t.Context(), "latest"); err != nil {
			t.Errorf("latest needs no agreement: %v", err)
		}
	})
	t.Run("one does not answer", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		s.next.Drop(-1)
		if got, err := s.pool.Head(t.Context(), "safe"); !errors.Is(err, endpoints.ErrDisagree) {
			t.Errorf("safe %v, %v", got, err)
		}
	})
	t.Run("no such block yet", func(t *testing.T) {
		s := newTwoEndpoints(t, agree)
		for _, d := range []*chaintest.Double{s.first, s.next} {
			d.Answer("eth_getBlockByNumber", func(params []json.RawMessage) (any, error) {
				if string(params[0]) == `"finalized"` {
					return nil, &chaintest.Refusal{Code: -39001, Message: "finalized block not found"}
				}
				return nil, chaintest.ErrPass
			})
		}
		if _, err := s.pool.Head(t.Context(), "finalized"); err == nil || !strings.Contains(err.Error(), "finalized block not found") {
			t.Errorf("finalized: %v", err)
		}
	})
	t.Run("one is enough where nobody has to agree", func(t *testing.T) {
		s := newTwoEndpoints(t, nil)
		s.next.ForgeBlocks(1)
		s.first.Drop(-1)
		if got, err := s.pool.Head(t.Context(), "safe"); err != nil || got == nil {
			t.Errorf("safe %v, %v", got, err)
		}
	})
}

// blockOf returns the JSON of a block of the chain.
func blockOf(t *testing.T, s *twoEndpoints, tag string) json.RawMessage {
	var block json.RawMessage
	must.Check(t, s.chain.Client().CallContext(t.Context(), &block, "eth_getBlockByNumber", tag, false))
	return block
}
