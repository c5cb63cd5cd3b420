// Package cache keeps values until they expire, in bounded memory. Public packages depend on it.
package cache

import (
	"sync"
	"time"
)

// Cache maps keys to expiring values. Above its bound a new value replaces an expired one, else an arbitrary one. It is safe
// for concurrent use.
type Cache[K comparable, V any] struct {
	shards []shard[K, V]
	shard  func(K) *shard[K, V]
	most   int // values per shard
}

type shard[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]entry[V]
}

type entry[V any] struct {
	value V
	ends  int64 // Unix microseconds at which the value expires
}

// New returns an empty cache of at most most values.
func New[K comparable, V any](most int) *Cache[K, V] {
	c := &Cache[K, V]{shards: make([]shard[K, V], 1), most: most}
	c.shards[0].m = map[K]entry[V]{}
	c.shard = func(K) *shard[K, V] { return &c.shards[0] }
	return c
}

// hashShards is the number of locks of a cache of hashes.
const hashShards = 64

// OfHashes returns an empty cache of at most most values by hash, with little lock contention.
func OfHashes[V any](most int) *Cache[[32]byte, V] {
	c := &Cache[[32]byte, V]{shards: make([]shard[[32]byte, V], hashShards), most: max(most/hashShards, 1)}
	for i := range c.shards {
		c.shards[i].m = map[[32]byte]entry[V]{}
	}
	c.shard = func(k [32]byte) *shard[[32]byte, V] { return &c.shards[k[0]%hashShards] }
	return c
}

// Get returns the value of a key. It removes an expired value, so that a clock that is set back does not revive it.
func (c *Cache[K, V]) Get(k K, now time.Time) (v V, ok bool) {
	s := c.shard(k)
	s.mu.RLock()
	e, known := s.m[k]
	s.mu.RUnlock()
	if known && now.UnixMicro() < e.ends {
		return e.value, true
	}
	if known {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.m[k].ends <= now.UnixMicro() {
			delete(s.m, k)
		}
	}
	return v, false
}

// Put stores a value until ends. It also looks at a few arbitrary values and removes the expired ones, so that the cache does
// not grow much beyond its live values.
func (c *Cache[K, V]) Put(k K, v V, ends, now time.Time) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.m[k]
	full, look := !known && len(s.m) >= c.most, 2
	if full {
		look = 8
	}
	var alive K
	for other, e := range s.m {
		if look--; look < 0 {
			break
		}
		if e.ends <= now.UnixMicro() {
			delete(s.m, other)
			full = false
			continue
		}
		alive = other
	}
	if full {
		delete(s.m, alive)
	}
	s.m[k] = entry[V]{v, ends.UnixMicro()}
}

// Drop removes the value of a key.
func (c *Cache[K, V]) Drop(k K) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, k)
}

// Clear removes every value.
func (c *Cache[K, V]) Clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.m)
		s.mu.Unlock()
	}
}

// Len returns the number of values, including expired values until they are removed.
func (c *Cache[K, V]) Len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.m)
		s.mu.RUnlock()
	}
	return n
}
