package seller_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seller"
)

// TestChallengeError: the table that the SDKs share.
func TestChallengeError(t *testing.T) {
	text := must.Get(os.ReadFile("../../testdata/conformance/tables/challenges.json"))(t)
	var table struct {
		Cases []struct{ Name, Begin, Sentence, Error string }
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.Cases) < 10 {
		t.Fatal(len(table.Cases), err)
	}
	for _, c := range table.Cases {
		if got := seller.ChallengeError(c.Begin, c.Sentence); got != c.Error || len(got) > 300 {
			t.Errorf("%s: %d bytes %q, want %q", c.Name, len(got), got, c.Error)
		}
	}
}
