package cache

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	c := New[string, int](10)
	c.Put("a", 1, start.Add(time.Second), start)
	c.Put("b", 2, start.Add(time.Hour), start)
	for _, w := range []struct {
		key string
		at  time.Duration
		v   int
		ok  bool
	}{{"a", 0, 1, true}, {"a", time.Second, 0, false}, {"a", 0, 0, false}, {"b", time.Second, 2, true}, {"c", 0, 0, false}} {
		if v, ok := c.Get(w.key, start.Add(w.at)); v != w.v || ok != w.ok {
			t.Errorf("%s after %s: %d, %t", w.key, w.at, v, ok)
		}
	}
	c.Drop("b")
	if _, ok := c.Get("b", start); ok {
		t.Error("a dropped value is there")
	}
	c.Put("b", 3, start.Add(time.Hour), start)
	c.Clear()
	if n := c.Len(); n != 0 {
		t.Errorf("%d values in an empty cache", n)
	}
}

// However many keys come, the memory is bounded, and what has ended goes before what has not.
func TestCache_Bounded(t *testing.T) {
	for _, most := range []int{1, 100, 100_000} {
		c := New[int, int](most)
		now := time.Unix(1_000_000, 0)
		for i := range 3 * most {
			c.Put(i, i, now.Add(time.Hour), now)
			if v, ok := c.Get(i, now); v != i || !ok {
				t.Fatalf("%d of %d: %d, %t", i, most, v, ok)
			}
		}
		if n := c.Len(); n > most || n < most*9/10 {
			t.Errorf("%d values in a cache of %d", n, most)
		}
	}
	hashes := OfHashes[int](640)
	for i := range 10_000 {
		now := time.Unix(1_000_000, 0)
		hashes.Put([32]byte{byte(i), byte(i >> 8)}, i, now.Add(time.Hour), now)
	}
	if n := hashes.Len(); n != 640 {
		t.Errorf("%d values in a cache of 640", n)
	}
	c := New[int, int](1000)
	now := time.Unix(1_000_000, 0)
	for i := range 10_000 {
		now = now.Add(time.Second)
		c.Put(i, i, now.Add(10*time.Second), now)
	}
	if n := c.Len(); n > 100 {
		t.Errorf("%d values, of which 10 have not ended", n)
	}
}

func BenchmarkGet(b *testing.B) {
	c := OfHashes[*int](1 << 16)
	now := time.Now()
	var keys [1024][32]byte
	for i := range keys {
		keys[i] = [32]byte{byte(i), byte(i >> 8)}
		c.Put(keys[i], new(int), now.Add(time.Hour), now)
	}
	b.RunParallel(func(p *testing.PB) {
		for i := 0; p.Next(); i++ {
			c.Get(keys[i%len(keys)], now)
		}
	})
}
