package auth

import (
	"sync"
	"time"
)

const cacheShards = 64

// cache maps 32-byte keys to values that end. It holds a bounded number of them in all; a full shard gives up an entry
// of Go's random map order, an ended one when a glance finds it.
type cache[V any] struct {
	perShard int
	shards   [cacheShards]cacheShard[V]
}

type cacheShard[V any] struct {
	mu sync.RWMutex
	m  map[[32]byte]cacheEntry[V]
}

type cacheEntry[V any] struct {
	value V
	ends  int64 // microseconds of the epoch; from then on the entry is gone
}

func newCache[V any](entries int) *cache[V] {
	return &cache[V]{perShard: max(entries/cacheShards, 1)}
}

func (c *cache[V]) shard(key *[32]byte) *cacheShard[V] { return &c.shards[key[0]%cacheShards] }

func (c *cache[V]) get(key [32]byte, now time.Time) (V, bool) {
	s := c.shard(&key)
	s.mu.RLock()
	e, ok := s.m[key]
	s.mu.RUnlock()
	if ok && e.ends > now.UnixMicro() {
		return e.value, true
	}
	if ok {
		s.mu.Lock()
		if e, still := s.m[key]; still && e.ends <= now.UnixMicro() {
			delete(s.m, key)
		}
		s.mu.Unlock()
	}
	var zero V
	return zero, false
}

func (c *cache[V]) put(key [32]byte, v V, ends, now time.Time) {
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[[32]byte]cacheEntry[V])
	}
	if _, known := s.m[key]; !known && len(s.m) >= c.perShard {
		looked := 0
		for k, e := range s.m {
			if e.ends <= now.UnixMicro() || looked == 0 && len(s.m) >= c.perShard {
				delete(s.m, k)
			}
			if looked++; looked == 4 {
				break
			}
		}
	}
	s.m[key] = cacheEntry[V]{v, ends.UnixMicro()}
}

func (c *cache[V]) drop(key [32]byte) {
	s := c.shard(&key)
	s.mu.Lock()
	delete(s.m, key)
	s.mu.Unlock()
}

func (c *cache[V]) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.m = nil
		s.mu.Unlock()
	}
}

func (c *cache[V]) len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.m)
		s.mu.RUnlock()
	}
	return n
}
