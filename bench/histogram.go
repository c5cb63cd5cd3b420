package main

import (
	"math/bits"
	"time"
)

const (
	fineBits = 6 // 64 buckets for each power of two: a value is known to 1.6 %
	buckets  = (33 - fineBits) << fineBits
)

// histogram counts durations in fixed buckets of microseconds, up to about 70 minutes. Each connection has its own.
type histogram struct {
	counts [buckets]uint32
	total  uint64
}

func bucketOf(micros uint64) int {
	micros = min(micros, 1<<32-1)
	shift := max(bits.Len64(micros)-fineBits-1, 0)
	return shift<<fineBits + int(micros>>shift)
}

// ceiling is the largest value of a bucket.
func ceiling(bucket int) uint64 {
	shift := max(bucket>>fineBits-1, 0)
	return uint64(bucket-shift<<fineBits+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(uint64(max(d, 0)/time.Microsecond))]++
	h.total++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
}

// quantile returns the duration that the share q of all does not exceed, 0 when there are none.
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := min(uint64(q*float64(h.total))+1, h.total)
	var seen uint64
	for i, n := range h.counts {
		if seen += uint64(n); seen >= rank {
			return time.Duration(ceiling(i)) * time.Microsecond
		}
	}
	return 0
}
