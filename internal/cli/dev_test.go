package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
)

func TestMeasure(t *testing.T) {
	for text, want := range map[string]textStatistics{
		"":                  {},
		"One two. Two!":     {Characters: 13, Words: 3, Sentences: 2},
		"it's well-known":   {Characters: 15, Words: 2, Sentences: 1},
		"Größe… zählt 3 -":  {Characters: 16, Words: 3, Sentences: 2},
		"... !! 'quoted' ?": {Characters: 17, Words: 1, Sentences: 1},
	} {
		if diff := cmp.Diff(want, measure(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestStatisticsAgent(t *testing.T) {
	for _, tc := range []struct {
		kind, body string
		status     int
		price      toll.Credits
	}{
		{"text/plain", "hello", 200, 1},
		{"application/json", `{"text":"hello"}`, 200, 1},
		{"text/plain", strings.Repeat("a", 200), 200, 1},
		{"text/plain", strings.Repeat("a", 201), 200, 2},
		{"text/plain", strings.Repeat("a", 64<<10), 200, devMaxCredits},
		{"text/plain", strings.Repeat("a", 64<<10+1), 413, 0},
		{"text/plain", " \n", 400, 0},
		{"text/plain", "\xff", 400, 0},
		{"application/json", `{`, 400, 0},
	} {
		r := httptest.NewRequest(http.MethodPost, "/stats", strings.NewReader(tc.body))
		r.Header.Set("Content-Type", tc.kind)
		w := httptest.NewRecorder()
		statisticsAgent(w, r)
		if w.Code != tc.status {
			t.Errorf("%d bytes of %s: %d, want %d", len(tc.body), tc.kind, w.Code, tc.status)
			continue
		}
		if w.Code != http.StatusOK {
			continue
		}
		if got := statisticsPrice(r, paid.Response{Status: w.Code, Body: w.Body.Bytes()}); got != tc.price {
			t.Errorf("%d bytes cost %v, want %v", len(tc.body), got, tc.price)
		}
	}
}

func TestOfGoRun(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for path, want := range map[string]bool{
		"/tmp/go-build123/b001/exe/toll": true, "/home/a/.cache/go-build/0a/" + hash + "-d/toll": true,
		"/elsewhere/0a/" + hash + "-d/toll.exe": true, "/home/a/go/bin/toll": false, "/tmp/go-builder/toll": false,
	} {
		if got := ofGoRun.MatchString(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a/b.c": "a/b.c", "": "''", "it's $HOME": `'it'\''s $HOME'`, "a b": "'a b'"} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
