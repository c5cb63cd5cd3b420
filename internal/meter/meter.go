// Package meter limits the rate of each of many callers, in this process, with one number per caller and bounded memory.
package meter

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	shards = 64
	// Entries is the maximum number of callers that a meter tracks.
	Entries = 1 << 16
)

// Meter limits the rate of each of many callers with a bucket that fills at a steady rate (GCRA). It stores only the time at
// which a bucket will be full. An unknown caller has a full bucket, so an eviction never delays a caller.
type Meter[K comparable] struct {
	every  time.Duration // time in which the bucket gains one call
	burst  int64         // size of the bucket, in calls
	seed   maphash.Seed
	shards [shards]shard[K]
}

type shard[K comparable] struct {
	mu   sync.Mutex
	full map[K]int64 // time at which the bucket is full, in nanoseconds on the clock of Take
}

// New returns a meter that allows burst calls at once, and then one call per interval every.
func New[K comparable](every time.Duration, burst int64) *Meter[K] {
	return &Meter[K]{every: max(every, 1), burst: burst, seed: maphash.MakeSeed()}
}

// Burst returns the number of calls that a caller may make at once.
func (m *Meter[K]) Burst() int64 { return m.burst }

// Reading is the result of [Meter.Take].
type Reading struct {
	OK    bool
	Left  int64         // calls allowed at once, now
	Full  time.Duration // time until the bucket is full
	Retry time.Duration // if not OK, time until the call is allowed
}

// Take takes n, at most a full bucket, from the bucket of a caller if it holds that many. now is the time since a fixed moment.
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

// Give puts n back into the bucket of a caller.
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

// forget evicts one entry, preferably one with a full bucket.
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
