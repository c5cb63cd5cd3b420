package pay_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/x402"
)

// The content of a settle is hashed as the record of what is permanent says: stored hashes decide what is a repeat.
func TestContentIsPermanent(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "testdata", "permanent.md")))(t)
	hash := must.Get(toll.ParseHash("0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634"))(t)
	m := must.Get(x402.ParseMargin("2.50"))(t)
	for name, c := range map[string]pay.Content{
		"five credits":               {Max: toll.Credits(5).Ptr()},
		"no amount":                  {},
		"no amount, a batch":         {Batch: true},
		"a margin of 2.5 percent":    {Margin: &m},
		"a margin of 2.5, a batch":   {Margin: &m, Batch: true},
		"a card, no agent, no url":   {Max: toll.Credits(0).Ptr(), Card: true},
		"the most credits there are": {Max: toll.MaxCredits.Ptr()},
	} {
		c.Hash = hash
		if line := "| " + name + " | `" + hex.EncodeToString(c.Sum()) + "` |"; !strings.Contains(string(page), line+"\n") {
			t.Errorf("the page lacks\n%s", line)
		}
	}
}
