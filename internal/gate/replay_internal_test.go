package gate

import (
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ended returns a call that has ended with a response of size bytes.
func ended(n uint64, token byte, size int) *flight {
	f := &flight{token: tokenKey{token}, over: true, header: http.Header{}, whole: true, body: make([]byte, size)}
	binary.BigEndian.PutUint64(f.id[:], n)
	return f
}

// check compares the counts of a responses with the calls that it holds.
func check(t *testing.T, s *responses) {
	t.Helper()
	ids, entries, bytes := 0, 0, 0
	for _, many := range s.byID {
		ids += len(many)
	}
	for _, own := range s.tokens {
		entries, bytes = entries+own.Len(), bytes+own.bytes
		if own.Len() == 0 || own.Len() > s.entriesOfToken || own.bytes > s.bytesOfToken {
			t.Errorf("%d calls and %d bytes of a token", own.Len(), own.bytes)
		}
	}
	if ids != s.all.Len() || entries != s.all.Len() || bytes != s.all.bytes || s.all.Len() > s.entries || s.all.bytes > s.bytes {
		t.Errorf("%d calls, %d by id, %d by token; %d bytes, %d by token", s.all.Len(), ids, entries, s.all.bytes, bytes)
	}
}

// TestReplays_Bounds pushes a responses to each of its bounds. It forgets the oldest calls first.
func TestReplays_Bounds(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := bounds{life: time.Minute, entries: 30, entriesOfToken: 10, bytes: 40 * keptOverhead, bytesOfToken: 20 * keptOverhead}
	s := newResponses(b)
	for n := range uint64(100) {
		s.add(ended(n, 1, 0), now)
		check(t, s)
	}
	if s.all.Len() != 10 || s.newest(ended(89, 1, 0).id, now) != nil || s.newest(ended(90, 1, 0).id, now) == nil {
		t.Errorf("%d calls of one token", s.all.Len())
	}
	for n := range uint64(100) {
		s.add(ended(n, byte(n), 0), now)
		check(t, s)
	}
	if s.all.Len() != 30 || len(s.tokens) != 30 {
		t.Errorf("%d calls of %d tokens", s.all.Len(), len(s.tokens))
	}
	s.add(ended(200, 7, 19*keptOverhead), now) // with its overhead, all that a token may have
	check(t, s)
	if s.newest(ended(200, 7, 0).id, now) == nil || s.all.Len() != 21 {
		t.Errorf("%d calls", s.all.Len())
	}
	s.add(ended(201, 8, 19*keptOverhead+1), now)
	check(t, s)
	if s.newest(ended(201, 8, 0).id, now) != nil {
		t.Error("a response above the bound of a token is kept")
	}
	large := ended(202, 9, 0)
	large.header.Set("X-Large", strings.Repeat("x", 20*keptOverhead))
	s.add(large, now)
	check(t, s)
	if large.in != nil {
		t.Error("large headers do not count")
	}
	s.add(ended(300, 1, 0), now.Add(59*time.Second))
	if s.newest(ended(300, 1, 0).id, now.Add(time.Minute)) == nil || s.all.Len() != 1 {
		t.Errorf("after a minute, %d calls remain", s.all.Len())
	}
	check(t, s)
}

// TestReplayBounds: the memory of both shelves is bounded, a response of the largest size fits, and a call that runs has one entry.
func TestReplayBounds(t *testing.T) {
	if n := (keyedBounds.bytes + leftBounds.bytes + maxRecorded) >> 20; n > 128 {
		t.Errorf("responses take up to %d MiB", n)
	}
	for _, b := range []bounds{keyedBounds, leftBounds} {
		if b.bytesOfToken < maxKept+64<<10 || b.bytes < b.bytesOfToken || b.entries*keptOverhead > b.bytes {
			t.Errorf("%+v", b)
		}
	}
	r := NewReplays(nil)
	streams := make([]*call, 0, 10)
	for range 10 {
		c := &call{caller: t.Context(), flight: &flight{keyed: true, source: true, whole: true, header: http.Header{}, done: make(chan struct{})}}
		c.unsettled.Store(true)
		streams = append(streams, c)
		for range 7 {
			r.record(c, make([]byte, 1<<20))
		}
	}
	if n := r.recorded.Load(); n > maxRecorded+(1<<20) {
		t.Errorf("running streams take %d MiB", n>>20)
	}
	kept := 0
	for i, c := range streams {
		c.flight.token = tokenKey{byte(i)}
		r.end(c)
		if c.flight.isWhole() {
			kept++
		}
	}
	if kept != 4 || r.recorded.Load() != 0 {
		t.Errorf("%d streams of 7 MiB are kept, %d bytes remain counted", kept, r.recorded.Load())
	}
}
