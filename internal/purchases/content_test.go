package purchases_test

import (
	"crypto/sha256"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/purchases"
)

// What wallets pay is hashed with a version before it, so that a change of what belongs to it can be told from another payment.
func TestContentOfWallets(t *testing.T) {
	for want, got := range map[string]toll.Hash{
		`toll/exact/1 eip155:84532 0xA 0xB 1000 60 ["11" "2" "" "12" "POST" "" "https://agent.example.com/ask"]`:        purchases.ExactSum(""),
		`toll/exact/1 eip155:84532 0xA 0xB 1000 60 ["11" "2" "" "12" "POST" "upfront" "https://agent.example.com/ask"]`: purchases.ExactSum("upfront"),
		`toll/sale/1 11 eip155:84532 0xA 1000 0xB`: purchases.SaleSum(),
	} {
		if got != sha256.Sum256([]byte(want)) {
			t.Errorf("%s has the content %s", want, got)
		}
	}
}
