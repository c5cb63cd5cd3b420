package cli

import (
	"strings"
	"testing"
)

// TestCSV_Inert: no cell can be a formula of a spreadsheet, and numbers stay numbers.
func TestCSV_Inert(t *testing.T) {
	for cell, want := range map[string]string{
		"=1+1": "'=1+1", `=HYPERLINK("http://evil.example.com","x")`: `'=HYPERLINK("http://evil.example.com","x")`,
		"+1+1": "'+1+1", "-1+1": "'-1+1", "-cmd|' /C calc'!A0": "'-cmd|' /C calc'!A0", "@SUM(1)": "'@SUM(1)", "\t=1": "'\t=1", "\r=1": "'\r=1", "-": "'-",
		"-1e3": "'-1e3", "+": "'+", "-1.": "'-1.", "-1\n=2": "'-1\n=2", "--1": "'--1",
		"\uff1d1+1": "'\uff1d1+1", "\ufe66x": "'\ufe66x", "\ufeff=1": "'\ufeff=1", " =1": "' =1", "\u00a0 @x": "'\u00a0 @x", "\n=1": "'\n=1", "\u200b\u3164+x": "'\u200b\u3164+x",
		" a=b": " a=b", "\ufeffname": "\ufeffname", " ": " ",
		"-5": "-5", "+5": "+5", "-12.50": "-12.50", "115792089237316195423570985008687907853269984665640564039457584007913129639935": "115792089237316195423570985008687907853269984665640564039457584007913129639935",
		"1=1": "1=1", "": "", "plain": "plain", "a=b": "a=b", "0x1": "0x1", "2026-11-21T00:00:00Z": "2026-11-21T00:00:00Z",
	} {
		if got := inert(cell); got != want {
			t.Errorf("%q: %q, want %q", cell, got, want)
		}
	}
	var b strings.Builder
	if err := writeCSV(
		&b,
		[][]string{{"=NAME", "n"}, {"@x", "-1"}},
	); err != nil ||
		b.String() != "'=NAME,n\n'@x,-1\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
