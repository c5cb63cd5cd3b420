package workspace

import (
	"testing"

	"github.com/tollhq/toll"
)

// TestTries_Share: calls of one workspace leave places for others.
func TestTries_Share(t *testing.T) {
	s := newTries()
	workspace := func(n int) toll.Address { return toll.Address{byte(n), 1} }
	for n := range mostTriesOf {
		if err := s.take(workspace(0)); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	if s.take(workspace(0)) == nil {
		t.Error("one workspace has more than its share")
	}
	if s.take(workspace(1)) != nil {
		t.Error("the share of one workspace refuses another one")
	}
	s.give(workspace(0))
	if s.take(workspace(0)) != nil {
		t.Error("a place that was given back is not free")
	}
	n := mostTriesOf + 1
	for w := 2; s.take(workspace(w)) == nil; w++ {
		n++
	}
	if n != mostTries {
		t.Errorf("%d calls run", n)
	}
	for w := range mostTries {
		for s.of[workspace(w)] > 0 {
			s.give(workspace(w))
		}
	}
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("%d calls and %d workspaces are left", s.all, len(s.of))
	}
}

// TestTries_Hour: calls that ended count for an hour, and leave calls for other workspaces.
func TestTries_Hour(t *testing.T) {
	s := newTries()
	one, other := toll.Address{1}, toll.Address{2}
	for n := range mostTriesHour {
		if err := s.take(one); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		s.give(one)
	}
	err := toll.AsError(s.take(one))
	if err == nil || err.Code != toll.CodeRateLimited || err.RetryAfterSecs < 1 || s.all != 0 {
		t.Errorf("%v, %d calls run", err, s.all)
	}
	if err := s.take(other); err != nil {
		t.Error(err)
	}
}
