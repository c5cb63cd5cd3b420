package workspace

import (
	"testing"

	"github.com/tollhq/toll"
)

// TestTries_Share: calls of one workspace leave places for others.
func TestTries_Share(t *testing.T) {
	s := tries{of: map[toll.Address]int{}}
	workspace := func(n int) toll.Address { return toll.Address{byte(n), 1} }
	for n := range mostTriesOf {
		if !s.take(workspace(0)) {
			t.Fatalf("call %d is refused", n)
		}
	}
	if s.take(workspace(0)) {
		t.Error("one workspace has more than its share")
	}
	if !s.take(workspace(1)) {
		t.Error("the share of one workspace refuses another one")
	}
	s.give(workspace(0))
	if !s.take(workspace(0)) {
		t.Error("a place that was given back is not free")
	}
	n := mostTriesOf + 1
	for w := 2; s.take(workspace(w)); w++ {
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
