//go:build !nodevchain

package devchain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

const (
	maxTopics    = 4
	maxLogValues = 1000 // addresses, or values of one topic, in one query
	maxLogs      = 100_000

	maxFilters     = 1000
	filterLifetime = 5 * time.Minute // without a poll
)

// logAPI are the methods of eth about logs and filters. A filter remembers a block; a poll compares it with the present chain.
type logAPI struct {
	blocks *blockAPI

	mu      sync.Mutex
	filters map[rpc.ID]*filter
}

// filter contains the state of one filter. With a nil query, polls return hashes of blocks.
type filter struct {
	query *logQuery
	seen  *types.Header // the head at the last poll
	until time.Time
}

// logQuery selects logs of one block or of a range of blocks. By default it selects the latest block.
type logQuery struct {
	hash      *common.Hash
	from, to  rpc.BlockNumber
	addresses []common.Address // allowed addresses; empty: any
	topics    [][]common.Hash  // allowed values for each topic; empty: any
}

// UnmarshalJSON reads one address or several, and for each topic null, a value, or several values.
func (q *logQuery) UnmarshalJSON(text []byte) error {
	var raw struct {
		BlockHash          *common.Hash
		FromBlock, ToBlock *rpc.BlockNumber
		Address            any
		Topics             []any
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	q.hash, q.from, q.to = raw.BlockHash, rpc.LatestBlockNumber, rpc.LatestBlockNumber
	if q.hash != nil && (raw.FromBlock != nil || raw.ToBlock != nil) {
		return errors.New("cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other")
	}
	if raw.FromBlock != nil {
		q.from = *raw.FromBlock
	}
	if raw.ToBlock != nil {
		q.to = *raw.ToBlock
	}
	switch raw := raw.Address.(type) {
	case nil:
	case string:
		address, err := decode(raw, common.AddressLength, "address")
		if err != nil {
			return fmt.Errorf("invalid address: %w", err)
		}
		q.addresses = []common.Address{common.BytesToAddress(address)}
	case []any:
		for i, one := range raw {
			text, ok := one.(string)
			if !ok {
				return fmt.Errorf("non-string address at index %d", i)
			}
			address, err := decode(text, common.AddressLength, "address")
			if err != nil {
				return fmt.Errorf("invalid address at index %d: %w", i, err)
			}
			q.addresses = append(q.addresses, common.BytesToAddress(address))
		}
	default:
		return errors.New("invalid addresses in query")
	}
	if len(raw.Topics) > maxTopics {
		return errMaxTopics
	}
	for _, raw := range raw.Topics {
		values, err := topicValues(raw)
		if err != nil {
			return err
		}
		q.topics = append(q.topics, values)
	}
	return nil
}

// check refuses queries that take too long, and logs of pending blocks.
func (q *logQuery) check() error {
	switch {
	case len(q.addresses) > maxLogValues:
		return errors.New("exceed max addresses or topics per search position")
	case q.from == rpc.PendingBlockNumber || q.to == rpc.PendingBlockNumber:
		return invalidParams("pending logs are not supported")
	}
	return nil
}

var errMaxTopics = errors.New("exceed max topics")

// topicValues reads the values of one topic; none: any.
func topicValues(raw any) ([]common.Hash, error) {
	if raw == nil {
		return nil, nil
	}
	list, ok := raw.([]any)
	if !ok {
		list = []any{raw}
	}
	if len(list) > maxLogValues {
		return nil, errMaxTopics
	}
	var values []common.Hash
	for _, one := range list {
		switch text := one.(type) {
		case nil:
			return nil, nil
		case string:
			value, err := decode(text, common.HashLength, "topic")
			if err != nil {
				return nil, err
			}
			values = append(values, common.BytesToHash(value))
		default:
			return nil, errors.New("invalid topic(s)")
		}
	}
	return values, nil
}

func decode(text string, length int, what string) ([]byte, error) {
	value, err := hexutil.Decode(text)
	if err == nil && len(value) != length {
		err = fmt.Errorf("hex has invalid length %d after decoding; expected %d for %s", len(value), length, what)
	}
	return value, err
}

// GetLogs returns the logs of blocks of the chain, at most 100,000.
func (a *logAPI) GetLogs(ctx context.Context, query logQuery) ([]*types.Log, error) {
	if err := query.check(); err != nil {
		return nil, err
	}
	chain := a.blocks.c.chain
	if query.hash != nil {
		header := chain.GetHeaderByHash(*query.hash)
		if header == nil {
			return nil, errors.New("unknown block")
		}
		return a.logs([]*types.Log{}, header, &query, false)
	}
	head := chain.CurrentBlock()
	from, err := a.number(query.from, head)
	if err != nil {
		return nil, err
	}
	to, err := a.number(query.to, head)
	switch {
	case err != nil:
		return nil, err
	case from > to:
		return nil, invalidParams("invalid block range params")
	case query.to >= 0 && to > head.Number.Uint64():
		return nil, invalidParams("block range extends beyond current head block")
	}
	// The blocks of one branch: a reorganization during the search must not mix two.
	var headers []*types.Header
	for header := chain.GetHeaderByNumber(to); header != nil && header.Number.Uint64() >= from; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if query.mayMatch(header.Bloom) {
			headers = append(headers, header)
		}
		if header.Number.Sign() == 0 {
			break
		}
		header = chain.GetHeader(header.ParentHash, header.Number.Uint64()-1)
	}
	logs := []*types.Log{}
	for _, header := range slices.Backward(headers) {
		if logs, err = a.logs(logs, header, &query, false); err != nil {
			return nil, err
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case len(logs) > maxLogs:
			return nil, invalidParams("more than %d logs match: use a smaller range of blocks", maxLogs)
		}
	}
	return logs, nil
}

func (a *logAPI) number(number rpc.BlockNumber, head *types.Header) (uint64, error) {
	if number == rpc.LatestBlockNumber {
		return head.Number.Uint64(), nil
	}
	if number >= 0 {
		return uint64(number), nil
	}
	header, err := a.blocks.header(number)
	if err != nil {
		return 0, err
	}
	return header.Number.Uint64(), nil
}

// logs appends the logs of one block that match the query.
func (a *logAPI) logs(found []*types.Log, header *types.Header, query *logQuery, removed bool) ([]*types.Log, error) {
	if !query.mayMatch(header.Bloom) {
		return found, nil
	}
	receipts := a.blocks.c.chain.GetReceiptsByHash(header.Hash()) // of a cache: they must not change
	if receipts == nil && header.TxHash != types.EmptyTxsHash {
		return nil, fmt.Errorf("block %v has no receipts", header.Number)
	}
	for _, receipt := range receipts {
		for _, log := range receipt.Logs {
			if query.matches(log) {
				one := *log
				one.Removed = removed
				found = append(found, &one)
			}
		}
	}
	return found, nil
}

// mayMatch reports whether a block with this filter of its addresses and topics can have a wanted log.
func (q *logQuery) mayMatch(bloom types.Bloom) bool {
	if bloom == (types.Bloom{}) {
		return false // the block has no logs
	}
	if len(q.addresses) > 0 && !slices.ContainsFunc(q.addresses, func(a common.Address) bool { return types.BloomLookup(bloom, a) }) {
		return false
	}
	return !slices.ContainsFunc(q.topics, func(values []common.Hash) bool {
		return len(values) > 0 && !slices.ContainsFunc(values, func(v common.Hash) bool { return types.BloomLookup(bloom, v) })
	})
}

func (q *logQuery) matches(log *types.Log) bool {
	if len(q.addresses) > 0 && !slices.Contains(q.addresses, log.Address) || len(q.topics) > len(log.Topics) {
		return false
	}
	for i, values := range q.topics {
		if len(values) > 0 && !slices.Contains(values, log.Topics[i]) {
			return false
		}
	}
	return true
}

var errNoFilter = errors.New("filter not found")

// NewFilter makes a filter of the logs of new blocks.
func (a *logAPI) NewFilter(query logQuery) (rpc.ID, error) {
	if err := query.check(); err != nil {
		return "", err
	}
	if query.hash != nil || query.from >= 0 && query.to >= 0 && query.from > query.to {
		return "", invalidParams("invalid block range params")
	}
	return a.add(&query)
}

// NewBlockFilter makes a filter of the hashes of new blocks.
func (a *logAPI) NewBlockFilter() (rpc.ID, error) { return a.add(nil) }

func (a *logAPI) add(query *logQuery) (rpc.ID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for id, f := range a.filters {
		if now.After(f.until) {
			delete(a.filters, id)
		}
	}
	if len(a.filters) >= maxFilters {
		return "", fmt.Errorf("there are %d filters: uninstall one, or wait until one is not polled for %v", maxFilters, filterLifetime)
	}
	id := rpc.NewID()
	a.filters[id] = &filter{query: query, seen: a.blocks.c.chain.CurrentBlock(), until: now.Add(filterLifetime)}
	return id, nil
}

// UninstallFilter removes a filter, and reports whether it existed.
func (a *logAPI) UninstallFilter(id rpc.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.filters[id]
	delete(a.filters, id)
	return known
}

// GetFilterLogs returns all logs that match the query of a filter.
func (a *logAPI) GetFilterLogs(ctx context.Context, id rpc.ID) ([]*types.Log, error) {
	a.mu.Lock()
	f := a.filters[id]
	known := f != nil && f.query != nil && time.Now().Before(f.until)
	a.mu.Unlock()
	if !known {
		return nil, errNoFilter
	}
	return a.GetLogs(ctx, *f.query)
}

// GetFilterChanges returns the hashes or logs of new blocks since the last poll. Logs of replaced blocks come first, with the member
// removed.
func (a *logAPI) GetFilterChanges(id rpc.ID) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.filters[id]
	now := time.Now()
	if f == nil || now.After(f.until) {
		delete(a.filters, id)
		return nil, errNoFilter
	}
	head := a.blocks.c.chain.CurrentBlock()
	gone, added := a.difference(f.seen, head)
	if f.query == nil {
		hashes := make([]common.Hash, 0, len(added))
		for _, header := range slices.Backward(added) {
			hashes = append(hashes, header.Hash())
		}
		f.seen, f.until = head, now.Add(filterLifetime)
		return hashes, nil
	}
	logs := []*types.Log{}
	var err error
	one := func(header *types.Header, removed bool) {
		number := rpc.BlockNumber(header.Number.Int64())
		if err == nil && (f.query.from < 0 || f.query.from <= number) && (f.query.to < 0 || number <= f.query.to) {
			logs, err = a.logs(logs, header, f.query, removed)
		}
	}
	for _, header := range gone {
		one(header, true)
	}
	for _, header := range slices.Backward(added) {
		one(header, false)
	}
	if err == nil {
		f.seen, f.until = head, now.Add(filterLifetime)
	}
	return logs, err
}

// difference returns the blocks of each branch down to the common one, the newest first.
func (a *logAPI) difference(old, head *types.Header) (gone, added []*types.Header) {
	parent := func(h *types.Header) *types.Header {
		return a.blocks.c.chain.GetHeader(h.ParentHash, h.Number.Uint64()-1)
	}
	for old.Hash() != head.Hash() {
		if old.Number.Cmp(head.Number) >= 0 {
			gone, old = append(gone, old), parent(old)
		} else {
			added, head = append(added, head), parent(head)
		}
	}
	return gone, added
}

// NewHeads sends each new head to a subscriber in this process.
func (a *logAPI) NewHeads(ctx context.Context) (*rpc.Subscription, error) {
	notifier, ok := rpc.NotifierFromContext(ctx)
	if !ok {
		return nil, rpc.ErrNotificationsUnsupported
	}
	c := a.blocks.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	subscriber := notifier.CreateSubscription()
	heads := make(chan core.ChainHeadEvent, 16)
	subscription := c.chain.SubscribeChainHeadEvent(heads)
	c.done.Go(func() {
		defer subscription.Unsubscribe()
		for {
			select {
			case head := <-heads:
				if err := notifier.Notify(subscriber.ID, head.Header); err != nil {
					return
				}
			case <-subscriber.Err():
				return
			case <-subscription.Err():
				return
			case <-c.stopped:
				return
			}
		}
	})
	return subscriber, nil
}
