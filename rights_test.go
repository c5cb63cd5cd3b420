package toll_test

import (
	"slices"
	"testing"

	"github.com/tollhq/toll"
)

func TestRights(t *testing.T) {
	all := toll.AllRights()
	if len(all) != 8 {
		t.Errorf("%d rights", len(all))
	}
	// A program gets no right to money, keys, members or the private key of the wallet.
	if got := toll.ProgramRights().String(); got != "read sell spend manage" {
		t.Errorf("a program gets %s", got)
	}
	got, err := toll.ParseRights([]string{"spend", "read", "spend"})
	if err != nil || got.String() != "read spend" {
		t.Errorf("%s, %v", got, err)
	}
	for _, words := range [][]string{{"read", "everything"}, {""}, {"READ"}, {"read "}} {
		got, err := toll.ParseRights(words)
		wantCode(t, err, toll.CodeBadRequest)
		if got != nil {
			t.Errorf("%q gives %s", words, got)
		}
	}
	read := toll.Rights{toll.RightRead}
	for _, right := range all {
		if missing := all.Missing(slices.DeleteFunc(toll.AllRights(), func(r toll.Right) bool { return r == right })); missing != right {
			t.Errorf("without %s, %q is missing", right, missing)
		}
		if within := (toll.Rights{right}).Within(read); within.Has(right) != (right == toll.RightRead) || len(within) > 1 {
			t.Errorf("%s within read is %s", right, within)
		}
	}
	if missing := read.Missing(all); missing != "" {
		t.Errorf("%s is missing", missing)
	}
}
