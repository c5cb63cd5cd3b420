package main

import (
	"slices"
	"testing"
)

// What must fail a run, and what only a strict one.
func TestSummary(t *testing.T) {
	pass := []event{
		{Action: "pass", Test: "TestA/sqlite"}, {Action: "pass", Test: "TestA/postgres"}, {Action: "pass", Test: "TestA/partitioned/deep"},
		{Action: "pass", Test: "TestC/embedded"}, {Action: "pass", Test: "TestC/anvil"},
	}
	for name, c := range map[string]struct {
		events       []event
		fine, strict bool
	}{
		"all pass":             {pass, true, true},
		"nothing ran":          {nil, false, false},
		"one fails":            {append(slices.Clip(pass), event{Action: "fail", Test: "TestB"}), false, false},
		"one is skipped":       {append(slices.Clip(pass), event{Action: "skip", Test: "TestB"}), true, false},
		"one never ends":       {append(slices.Clip(pass), event{Action: "output", Test: "TestB", Output: "=== RUN TestB\n"}), false, false},
		"a package is broken":  {append(slices.Clip(pass), event{Action: "fail", Package: "p"}), false, false},
		"a package has none":   {append(slices.Clip(pass), event{Action: "skip", Package: "p"}), true, true},
		"a suite did not run":  {pass[:4], true, false},
		"a suite only skipped": {append(pass[:4:4], event{Action: "skip", Test: "TestC/anvil"}), true, false},
	} {
		for _, strict := range []bool{false, true} {
			s := newSummary()
			for _, e := range c.events {
				s.event(e)
			}
			want := c.fine
			if strict {
				want = c.strict
			}
			if got := s.print(0, strict); got != want {
				t.Errorf("%s, strict %v: %v, want %v", name, strict, got, want)
			}
		}
	}
}
