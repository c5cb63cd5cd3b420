//go:build !nodevchain

package devchain

import (
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// poll returns what a filter says is new.
func poll[T any](t *testing.T, c *Chain, id string) (news []T) {
	t.Helper()
	must.Do(t, c.Client().CallContext(t.Context(), &news, "eth_getFilterChanges", id))
	return news
}

func TestFilters(t *testing.T) {
	c := start(t, Config{})
	usdc := contracts.USDC(c.id)
	install := func(method string, parameters ...any) (id string) {
		t.Helper()
		must.Do(t, c.Client().CallContext(t.Context(), &id, method, parameters...))
		return id
	}
	logs := install("eth_newFilter", map[string]any{"address": usdc})
	late := install("eth_newFilter", map[string]any{"address": usdc, "fromBlock": "0xffff"})
	blocks := install("eth_newBlockFilter")
	if news := poll[types.Log](t, c, logs); len(news) != 0 {
		t.Fatalf("logs before anything happened: %v", news)
	}
	must.Get(c.Fund(t.Context(), payee, big.NewInt(1)))(t)
	minted := must.Get(c.Mint(t.Context(), usdc, payee, big.NewInt(7)))(t)
	news := poll[types.Log](t, c, logs)
	if len(news) != 1 || news[0].TxHash != minted || news[0].Removed {
		t.Fatalf("logs of a transfer: %v", news)
	}
	if news := poll[types.Log](t, c, late); len(news) != 0 {
		t.Errorf("logs of blocks that the filter does not want: %v", news)
	}
	if hashes := poll[common.Hash](t, c, blocks); len(hashes) != 2 || hashes[1] != head(t, c).Hash() {
		t.Errorf("blocks %v, the head is %v", hashes, head(t, c).Hash())
	}
	if news, hashes := poll[types.Log](t, c, logs), poll[common.Hash](t, c, blocks); len(news)+len(hashes) != 0 {
		t.Errorf("told twice: %v, %v", news, hashes)
	}

	old := news[0]
	must.Do(t, c.Reorg(1, false))
	news = poll[types.Log](t, c, logs)
	if len(news) != 2 || !news[0].Removed || news[0].BlockHash != old.BlockHash || news[1].Removed || news[1].TxHash != minted {
		t.Errorf("logs after a reorganization: %v", news)
	}
	var whole []types.Log
	must.Do(t, c.Client().CallContext(t.Context(), &whole, "eth_getFilterLogs", logs))
	if hashes := poll[common.Hash](t, c, blocks); len(hashes) != 2 {
		t.Errorf("blocks after a reorganization: %v", hashes)
	}

	var removed bool
	must.Do(t, c.Client().CallContext(t.Context(), &removed, "eth_uninstallFilter", logs))
	if err := c.Client().CallContext(t.Context(), nil, "eth_getFilterChanges", logs); !removed || err == nil {
		t.Errorf("a filter that was uninstalled (%v): %v", removed, err)
	}
	for _, refused := range []map[string]any{{"fromBlock": "pending"}, {"fromBlock": "0x5", "toBlock": "0x1"}, {"blockHash": common.Hash{1}}} {
		if err := c.Client().CallContext(t.Context(), nil, "eth_newFilter", refused); err == nil {
			t.Errorf("a filter of %v", refused)
		}
	}
}

// T73
func TestFilters_Bounded(t *testing.T) {
	c := start(t, Config{})
	a := &logAPI{blocks: &blockAPI{c}, filters: map[rpc.ID]*filter{}}
	first := must.Get(a.NewBlockFilter())(t)
	for range maxFilters - 1 {
		must.Get(a.NewBlockFilter())(t)
	}
	if _, err := a.NewBlockFilter(); err == nil {
		t.Errorf("more than %d filters", maxFilters)
	}
	a.filters[first].until = time.Now().Add(-time.Second)
	if _, err := a.GetFilterChanges(first); err == nil {
		t.Error("a filter lives without polls")
	}
	must.Get(a.NewBlockFilter())(t)
}

func TestSubscription(t *testing.T) {
	c := start(t, Config{})
	heads := make(chan *types.Header, 16)
	subscription := must.Get(client(c).SubscribeNewHead(t.Context(), heads))(t)
	defer subscription.Unsubscribe()
	must.Do(t, c.Advance(0))
	if got := <-heads; got.Hash() != head(t, c).Hash() {
		t.Errorf("told block %v, the head is %v", got.Number, head(t, c).Number)
	}
	must.Do(t, c.Close()) // with the subscriber
	<-subscription.Err()
}
