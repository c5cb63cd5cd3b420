// Package meter limits how often each of many callers does something. It counts in this process alone and keeps one number for a
// caller, in bounded memory.
package meter

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	shards = 64
	// Entries bounds how many callers one meter remembers.
	Entries = 1 << 16
)

// Meter limits the rate of each of many callers. Each has a bucket that fills at a steady rate (GCRA): the meter remembers when it
// would be full again. A caller that is not known has a full one, so an entry that is given up forgives, and never punishes.
type Meter[K comparable] struct {
	every  time.Duration // in which one comes into the bucket
	burst  int64         // what a full bucket holds
	seed   maphash.Seed
	shards [shards]shard[K]
}

type shard[K comparable] struct {
	mu   sync.Mutex
	full map[K]int64 // nanoseconds since start
}

// New returns a meter by which a caller may come burst times at once, and once more for each time that every passes.
func New[K comparable](every time.Duration, burst int64) *Meter[K] {
	return &Meter[K]{every: max(every, 1), burst: burst, seed: maphash.MakeSeed()}
}

// Burst returns how often a caller may come at once.
func (m *Meter[K]) Burst() int64 { return m.burst }

// Reading is what a meter says of a call.
type Reading struct {
	OK    bool
	Left  int64         // calls that may come at once
	Full  time.Duration // until as many as ever may
	Retry time.Duration // when not OK, until the call may come
}

// Take counts a call as n. What is more than a full bucket counts as that. now is since any fixed moment.
func (m *Meter[K]) Take(who K, n int64, now time.Duration) Reading {
	n = min(n, m.burst)
	s := m.shard(who)
	s.mu.Lock()
	defer s.mu.Unlock()
	full, known := s.full[who]
	full = max(full, int64(now))
	if empty := int64(now) + m.burst*int64(m.every); full > empty { // the clock was set back
		full = empty
		s.full[who] = full
	}
	room, need := time.Duration(m.burst)*m.every-time.Duration(full-int64(now)), time.Duration(n)*m.every
	if room < need {
		return Reading{Left: max(int64(room/m.every), 0), Full: time.Duration(full - int64(now)), Retry: need - room}
	}
	if !known && len(s.full) >= Entries/shards {
		s.forget(int64(now))
	}
	if s.full == nil {
		s.full = map[K]int64{}
	}
	full += int64(need)
	s.full[who] = full
	return Reading{OK: true, Left: int64((room - need) / m.every), Full: time.Duration(full - int64(now))}
}

// Give takes back what was counted as n.
func (m *Meter[K]) Give(who K, n int64, now time.Duration) {
	s := m.shard(who)
	s.mu.Lock()
	defer s.mu.Unlock()
	full, known := s.full[who]
	if full -= n * int64(m.every); known && full > int64(now) {
		s.full[who] = full
	} else {
		delete(s.full, who)
	}
}

func (m *Meter[K]) shard(who K) *shard[K] {
	return &m.shards[maphash.Comparable(m.seed, who)%shards]
}

// forget makes room for one: callers whose bucket is full go first.
func (s *shard[K]) forget(now int64) {
	looked := 0
	for who, full := range s.full {
		if full <= now || looked == 0 {
			delete(s.full, who)
		}
		if looked++; looked == 8 {
			return
		}
	}
}
