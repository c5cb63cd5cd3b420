//go:build !nodevchain

package devchain

import (
	"context"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/must"
)

func TestReorgKeepsTransactions(t *testing.T) {
	c := start(t, Config{})
	s := newSender(t, c)
	to := common.Address{0: 0xaa, 19: 9}
	first, second := s.pay(t, to, 5, 1e9), s.pay(t, to, 6, 1e9)
	send(t, c, first)
	before := mined(t, c, first.Hash())
	send(t, c, second)
	mined(t, c, second.Hash())
	old := head(t, c)
	must.Do(t, c.Reorg(2, false))
	after := must.Get(client(c).TransactionReceipt(t.Context(), first.Hash()))(t)
	if after.BlockHash == before.BlockHash {
		t.Error("the transaction is in the same block")
	}
	if now := head(t, c); now.Number.Uint64() != old.Number.Uint64()+1 || balance(t, c, to).Int64() != 11 {
		t.Errorf("head %v, was %v; balance %v", now.Number, old.Number, balance(t, c, to))
	}
}

func TestReorgDropsTransactions(t *testing.T) {
	c := start(t, Config{})
	s := newSender(t, c)
	to := common.Address{0: 0xaa, 19: 10}
	tx := s.pay(t, to, 5, 1e9)
	send(t, c, tx)
	mined(t, c, tx.Hash())
	must.Do(t, c.Reorg(1, true))
	must.Do(t, c.Advance(0))
	if _, err := client(c).TransactionReceipt(t.Context(), tx.Hash()); err == nil || balance(t, c, to).Sign() != 0 {
		t.Fatalf("the transaction stayed: %v", err)
	}
	send(t, c, tx)
	mined(t, c, tx.Hash())
	if got := balance(t, c, to).Int64(); got != 5 {
		t.Errorf("sent again: balance %d", got)
	}
}

// With a clock that stands still the new block has the parent, the time and the content of the old one.
func TestReorgMakesOtherBlocks(t *testing.T) {
	c := start(t, Config{Now: newClock(testStart).Now})
	s := newSender(t, c)
	tx := s.pay(t, payee, 5, 1e9)
	send(t, c, tx)
	before := mined(t, c, tx.Hash())
	must.Do(t, c.Reorg(1, false))
	if after := mined(t, c, tx.Hash()); after.BlockHash == before.BlockHash {
		t.Error("the transaction is in the same block")
	}
}

func TestReorgLeavesTheContracts(t *testing.T) {
	c := start(t, Config{})
	for range 3 {
		must.Do(t, c.Advance(0))
	}
	placed := int(c.placed)
	for _, n := range []int{-1, 0, 4, 3 + placed, 1000} {
		if err := c.Reorg(n, true); err == nil {
			t.Errorf("Reorg(%d) with %d blocks of contracts and 3 others", n, placed)
		}
	}
	must.Check(t, c.Reorg(3, true))
}

func TestManySendersTimeTravelAndReorgs(t *testing.T) {
	c := start(t, Config{})
	to := common.Address{0: 0xaa, 19: 11}
	const senders, each = 20, 10
	done := make(chan error, senders)
	for range senders {
		s := newSender(t, c)
		go func() {
			for range each {
				tx, err := types.SignNewTx(s.key, types.LatestSignerForChainID(s.chain), &types.DynamicFeeTx{
					ChainID: s.chain, Nonce: s.nonce, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(1e9), Gas: 21_000, To: &to, Value: big.NewInt(1),
				})
				if err == nil {
					err = client(c).SendTransaction(context.WithoutCancel(t.Context()), tx)
				}
				if err != nil {
					done <- err
					return
				}
				s.nonce++
			}
			done <- nil
		}()
	}
	for left := senders; left > 0; {
		select {
		case err := <-done:
			must.Check(t, err)
			left--
		default:
			must.Do(t, errors.Join(c.Advance(time.Second), c.Advance(time.Second), c.Reorg(2, false)))
		}
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if balance(t, c, to).Int64() == senders*each {
			return
		}
	}
	t.Errorf("%v of %d transfers arrived", balance(t, c, to), senders*each)
}
