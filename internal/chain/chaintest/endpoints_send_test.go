package chaintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/must"
)

const sending = "eth_sendRawTransaction"

func TestSend_All(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	tx := transfer(t, s)
	s.first.Swallow()
	must.Do(t, s.pool.Send(t.Context(), bytesOf(t, tx)))
	eventually(t, "both got the transaction", func() bool { return s.first.Calls(sending) == 1 && s.next.Calls(sending) == 1 })
	eventually(t, "the transaction is in a block", func() bool {
		_, err := s.chain.Eth().TransactionReceipt(t.Context(), tx.Hash())
		return err == nil
	})
}

// Send returns the first response although one endpoint hangs. That endpoint still receives the transaction.
func TestSend_OneIsEnough(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Timeout = time.Hour })
	s.number(t)
	tx := transfer(t, s)
	goOn := make(chan struct{})
	s.first.Watch(func(r *http.Request) {
		select {
		case <-goOn:
		case <-t.Context().Done():
		}
	})
	sent := make(chan error, 1)
	go func() { sent <- s.pool.Send(t.Context(), bytesOf(t, tx)) }()
	select {
	case err := <-sent:
		must.Do(t, err)
	case <-time.After(patience):
		t.Fatal("it waits for the one that hangs")
	}
	close(goOn)
	eventually(t, "the late one got the transaction", func() bool { return s.first.Calls(sending) == 1 })
}

func TestSend_TellsMost(t *testing.T) {
	t.Parallel()
	const (
		known = "already known"
		low   = "nonce too low: next nonce 5, tx nonce 4"
		under = "replacement transaction underpriced"
		poor  = "insufficient funds for gas * price + value: balance 0, tx cost 21000, overshot 21000"
		large = "oversized data: transaction size 131100, limit 131072"
		gas   = "transaction gas limit too high (cap: 16777216, tx: 17000000)"
		other = "the moon is full"
	)
	order := []string{known, low, under, poor, large, gas, other}
	s := newTwoEndpoints(t, nil)
	raw := bytesOf(t, transfer(t, s))
	for i, most := range order {
		for _, less := range order[i:] {
			for range 2 {
				s.first.Refuse(1, sending, most)
				s.next.Refuse(1, sending, less)
				if err := s.pool.Send(t.Context(), raw); err == nil || err.Error() != most {
					t.Errorf("%q and %q: %v", most, less, err)
				}
				s.first, s.next = s.next, s.first
			}
		}
	}
}

func TestSend_Faults(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, nil)
	tx := transfer(t, s)
	s.first.Refuse(-1, sending, "already known")
	s.next.Drop(-1)
	if err := s.pool.Send(t.Context(), bytesOf(t, tx)); err == nil || err.Error() != "already known" {
		t.Errorf("an answer and a fault: %v", err)
	}

	// A response without the hash of the transaction is invalid.
	s = newTwoEndpoints(t, nil)
	s.first.Answer(sending, func([]json.RawMessage) (any, error) { return common.Hash{1}, nil })
	s.next.Answer(sending, func([]json.RawMessage) (any, error) { return nil, nil })
	if err := s.pool.Send(t.Context(), bytesOf(t, transfer(t, s))); !errors.Is(err, endpoints.ErrNone) {
		t.Errorf("two answers that are none: %v", err)
	}

	// If the response is lost, Send sends the transaction again.
	s = newTwoEndpoints(t, nil)
	s.number(t)
	s.next.Drop(-1)
	tx = transfer(t, s)
	s.first.LoseAnswers(1)
	if err := s.pool.Send(t.Context(), bytesOf(t, tx)); err != nil && !strings.Contains(err.Error(), "already known") && !strings.Contains(err.Error(), "nonce too low") {
		t.Errorf("a lost answer: %v", err)
	}
	eventually(t, "the transaction is in a block", func() bool {
		_, err := s.chain.Eth().TransactionReceipt(t.Context(), tx.Hash())
		return err == nil
	})
}

func TestSend_ContextEnds(t *testing.T) {
	t.Parallel()
	s := newTwoEndpoints(t, func(cfg *endpoints.Config) { cfg.Timeout = time.Hour })
	s.number(t)
	raw := bytesOf(t, transfer(t, s))
	s.first.Hang()
	s.next.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.pool.Send(ctx, raw); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	began := time.Now()
	s.pool.Close()
	if took := time.Since(began); took > patience {
		t.Errorf("closing took %v", took)
	}
}
