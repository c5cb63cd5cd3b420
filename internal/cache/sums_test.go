package cache

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestSums(t *testing.T) {
	s := NewSums(64)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2000 {
				text := fmt.Sprint("text ", i%200)
				if sum, ok := s.Get(text); ok && sum != sha256.Sum256([]byte(text)) {
					t.Errorf("%s has the hash of another text", text)
				}
				s.Put(text, sha256.Sum256([]byte(text)))
			}
		})
	}
	wg.Wait()
	s.Put("good", [32]byte{1})
	if sum, ok := s.Get("good"); !ok || sum != [32]byte{1} {
		t.Error("what was put is not there")
	}
	found := 0
	for i := range 200 {
		if _, ok := s.Get(fmt.Sprint("text ", i)); ok {
			found++
		}
	}
	if found == 0 || found > 64 {
		t.Errorf("%d texts in 64 slots", found)
	}
	long := strings.Repeat("x", maxSumText+1)
	s.Put(long, [32]byte{2})
	if _, ok := s.Get(long); ok {
		t.Error("a text beyond the bound was kept")
	}
}

func BenchmarkSums(b *testing.B) {
	s, text := NewSums(64), strings.Repeat("x", 700)
	s.Put(text, sha256.Sum256([]byte(text)))
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			s.Get(text)
		}
	})
	b.Run("hash", func(b *testing.B) {
		for b.Loop() {
			sha256.Sum256([]byte(text))
		}
	})
}
