package meter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
)

func TestMeter(t *testing.T) {
	m := New[string](100*time.Millisecond, 4)
	const who = "who"
	for i := range int64(4) {
		if r := m.Take(who, 1, time.Second); !r.OK || r.Left != 3-i || r.Full != time.Duration(i+1)*100*time.Millisecond {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if r := m.Take(who, 1, time.Second); r.OK || r.Retry != 100*time.Millisecond || r.Left != 0 {
		t.Errorf("one too many: %+v", r)
	}
	if r := m.Take(who, 1, time.Second+99*time.Millisecond); r.OK {
		t.Error("a moment too early")
	}
	if r := m.Take(who, 1, time.Second+100*time.Millisecond); !r.OK {
		t.Errorf("in time: %+v", r)
	}
	if r := m.Take("other", 1, time.Second); !r.OK || r.Left != 3 {
		t.Errorf("somebody else: %+v", r)
	}
	if r := m.Take(who, 1, time.Hour); !r.OK || r.Left != 3 {
		t.Errorf("an hour later: %+v", r)
	}
	// A clock that is set back locks out for no longer than the bucket takes.
	m.Take("late", 4, time.Hour)
	if r := m.Take("late", 1, 0); r.OK {
		t.Errorf("an empty bucket: %+v", r)
	}
	if r := m.Take("late", 1, 100*time.Millisecond); !r.OK {
		t.Errorf("after the clock was set back: %+v", r)
	}
	// What counts for several, and what is given back.
	if r := m.Take(who, 4, time.Hour); r.OK || r.Retry != 100*time.Millisecond || r.Left != 3 {
		t.Errorf("four of three: %+v", r)
	}
	m.Give(who, 1, time.Hour)
	if r := m.Take(who, 1000, time.Hour); !r.OK || r.Left != 0 {
		t.Errorf("more than a bucket holds: %+v", r)
	}
	m.Give(who, 1, time.Hour)
	if r := m.Take(who, 2, time.Hour); r.OK || r.Left != 1 {
		t.Errorf("one of four was given back: %+v", r)
	}
	for range 10 {
		m.Give(who, 1, time.Hour)
	}
	if r := m.Take(who, 1, time.Hour); !r.OK || r.Left != 3 {
		t.Errorf("more given back than taken: %+v", r)
	}
}

// However many callers come, the memory for them is bounded, and those who are over their limit are the last to be forgotten.
// T183
func TestMemoryOfManySources(t *testing.T) {
	m := New[int](time.Second, 1)
	for i := range 4 * Entries {
		m.Take(i, 1, time.Duration(i)*time.Millisecond)
	}
	n := 0
	for i := range m.shards {
		n += len(m.shards[i].full)
	}
	if n > Entries {
		t.Errorf("%d entries", n)
	}
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := toll.Address{1}, toll.Address{2}
		q := NewQuota("boxes", 0, 60)
		if e := q.Take(a, 60); e != nil {
			t.Error(e)
		}
		e := q.Take(a, 1)
		if e == nil || e.Code != toll.CodeRateLimited || e.Params["quota"] != "boxes" || e.Params["limit"] != int64(60) || e.RetryAfterSecs != 60 ||
			e.Text() != "The limit of 60 boxes per hour is reached." {
			t.Errorf("%+v", e)
		}
		if e := q.Take(b, 1); e != nil {
			t.Error(e)
		}
		q.Give(a)
		if e := q.Take(a, 1); e != nil {
			t.Error(e)
		}
		time.Sleep(500 * time.Millisecond)
		if e := q.Take(a, 1); e == nil || e.RetryAfterSecs != 60 {
			t.Errorf("59.5 seconds before: %+v", e)
		}
		time.Sleep(time.Minute)
		if e := q.Take(a, 1); e != nil {
			t.Error(e)
		}
		for range 100 {
			if e := NewQuota("boxes", -1, 1).Take(a, 1); e != nil {
				t.Error(e)
			}
		}
	})
}
