//go:build !nodevchain

package devchain

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ethereum/go-ethereum/beacon/engine"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/miner"
)

const (
	// The number of the finalized block is a multiple of epoch.
	epoch = 32
	// maxAhead is how far bursts of blocks, which are a second apart at least, may bring the chain ahead of its clock. From
	// there on a block is made every second only, with all that came in between.
	maxAhead = 10 * 60 // seconds
)

// content selects the transactions of a block.
type content int

const (
	pooled   content = iota // transactions of the pool, or no block
	anything                // the same, or an empty block
	empty                   // no transaction
)

// run starts mining: what the pool takes is in a block as soon as it can be.
func (c *Chain) run() {
	// Events of the pool are taken at once, whatever the miner does: the pool waits for its listeners, and the miner for the pool.
	wake := make(chan struct{}, 1)
	events := make(chan core.NewTxsEvent, 16)
	subscription := c.pool.SubscribeTransactions(events, true)
	c.done.Go(func() {
		defer subscription.Unsubscribe()
		for {
			select {
			case <-events:
				select {
				case wake <- struct{}{}:
				default:
				}
			case <-subscription.Err():
				return
			case <-c.stopped:
				return
			}
		}
	})
	c.done.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-wake:
				if c.ahead() {
					continue
				}
			case <-ticker.C:
			case <-c.stopped:
				return
			}
			if err := c.mineDue(); err != nil {
				c.log.Error("the embedded chain cannot create a block", "error", err)
			}
		}
	})
}

// mineDue mines pending transactions, or an empty block when the head is old.
func (c *Chain) mineDue() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if err := c.mine(); err != nil {
		return err
	}
	if head := c.chain.CurrentBlock(); c.cfg.Idle < 0 || c.now() < head.Time+uint64(c.cfg.Idle/time.Second) {
		return nil
	}
	_, err := c.seal(anything)
	return err
}

func (c *Chain) ahead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tooFar()
}

// tooFar needs c.mu.
func (c *Chain) tooFar() bool { return c.chain.CurrentBlock().Time >= c.now()+maxAhead }

// now is the time of the chain's clock in Unix seconds.
func (c *Chain) now() uint64 { return uint64(max(0, c.cfg.Now().Add(c.offset).Unix())) }

// mine makes blocks until the pool has nothing that fits into one, or until the chain is so far ahead of its clock that the rest
// has to wait for the next second. Needs c.mu.
func (c *Chain) mine() error {
	for {
		if err := c.pool.Sync(); err != nil {
			return err
		}
		if runnable, _ := c.pool.Stats(); runnable == 0 {
			return nil
		}
		// A transaction that pays less than the base fee is runnable and never mined.
		if made, err := c.seal(pooled); err != nil || !made || c.tooFar() {
			return err
		}
	}
}

// seal puts one block on the head, and says whether it did. Needs c.mu, and a pool that knows the head.
func (c *Chain) seal(what content) (bool, error) {
	block, err := c.build(c.chain.CurrentBlock(), nil, what == empty)
	if err != nil {
		return false, err
	}
	if what == pooled && len(block.Transactions()) == 0 {
		return false, nil
	}
	if err := c.store(block); err != nil {
		return false, err
	}
	return true, c.lead(block)
}

// build makes a block on a parent. It contains the given transactions or, if the list is nil, transactions of the pool, unless none is set.
func (c *Chain) build(parent *types.Header, transactions []*types.Transaction, none bool) (*types.Block, error) {
	// A block of a reorganization must differ from the block that it replaces, even with the same content and parent.
	var random common.Hash
	if _, err := io.ReadFull(c.cfg.random, random[:]); err != nil {
		return nil, err
	}
	block, _, err := c.miner.BuildTestingPayload(&miner.BuildPayloadArgs{
		Parent:      parent.Hash(),
		Timestamp:   max(c.now(), parent.Time+1),
		Random:      random,
		Withdrawals: types.Withdrawals{},
		BeaconRoot:  new(common.Hash),
		Version:     engine.PayloadV3,
	}, transactions, none, nil)
	if err != nil {
		return nil, fmt.Errorf("building a block: %w", err)
	}
	return block, nil
}

// store writes a block without making it the head.
func (c *Chain) store(block *types.Block) error {
	if _, err := c.chain.InsertBlockWithoutSetHead(context.Background(), block, false); err != nil {
		return fmt.Errorf("inserting block %d: %w", block.NumberU64(), err)
	}
	return nil
}

// lead moves the head to a block that is stored.
func (c *Chain) lead(block *types.Block) error {
	if _, err := c.chain.SetCanonical(block); err != nil {
		return fmt.Errorf("moving the head to block %d: %w", block.NumberU64(), err)
	}
	c.mark(block.Header())
	if err := syncLogs(c.cfg.Dir); err != nil {
		return fmt.Errorf("writing block %d: %w", block.NumberU64(), err)
	}
	return nil
}

// mark sets the safe and the finalized block for a head.
func (c *Chain) mark(head *types.Header) {
	chain := c.chain
	chain.SetSafe(head)
	chain.SetFinalized(chain.GetHeaderByNumber(head.Number.Uint64() / epoch * epoch))
}

// Advance moves the clock of the chain forward by d, which is not negative, and makes a block at the new time. Advance(0) makes a
// block at the time of Config.Now. A restart resets the clock, but not the blocks: later blocks still have later times.
func (c *Chain) Advance(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("devchain: the time of the chain cannot go back by %v", -d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if err := c.mine(); err != nil {
		return err
	}
	// Seconds that blocks had to be ahead of the clock count as gone.
	if head := c.chain.CurrentBlock(); d > 0 && head.Time > c.now() {
		c.offset += time.Duration(head.Time-c.now()) * time.Second
	}
	c.offset += d
	_, err := c.seal(anything)
	return err
}

// Reorg replaces the last n blocks with n+1 new blocks in one step. The new blocks contain the same transactions in the same order. With
// drop, these transactions and the pool are lost instead. The blocks with the contracts cannot be replaced.
func (c *Chain) Reorg(n int, drop bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	chain := c.chain
	head := chain.CurrentBlock().Number.Uint64()
	if n < 1 || uint64(n) > head-min(head, max(c.placed, 1)) {
		return fmt.Errorf("devchain: %d of %d blocks cannot be replaced; the first %d hold the contracts", n, head, max(c.placed, 1))
	}
	// The head changes once, at the end. With a shorter chain in between, clients would send these transactions again.
	block := chain.GetBlockByNumber(head - uint64(n))
	for number := block.NumberU64() + 1; number <= head+1; number++ {
		var kept []*types.Transaction
		if !drop && number <= head {
			kept = chain.GetBlockByNumber(number).Transactions()
		}
		var err error
		if block, err = c.build(block.Header(), kept, len(kept) == 0); err != nil {
			return err
		}
		if err := c.store(block); err != nil {
			return err
		}
	}
	if err := c.lead(block); err != nil {
		return err
	}
	if drop {
		if err := c.pool.Sync(); err != nil {
			return err
		}
		c.pool.Clear()
	}
	return c.mine()
}
