package api_test

import (
	"encoding/json"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// Strict clients refuse to start when GET / lacks one of these names.
func TestInfo_ExpectedContracts(t *testing.T) {
	s := newStack(t)
	var info struct {
		Deployment struct{ Contracts map[string]toll.Address }
	}
	must.Do(t, json.Unmarshal(s.do(actor{}, "GET", "/", "").body, &info))
	for _, name := range []string{
		"AccessManager", "AgreementsStore", "AssetsRegistry", "DistributePaymentsCondition", "FiatPaymentTemplate", "FiatSettlementCondition",
		"FixedPaymentTemplate", "LinearPricing", "LockPaymentCondition", "NFT1155Credits", "NFT1155ExpirableCredits", "NFT1155ExpirableCreditsV2",
		"OneTimeCreatorHook", "PaymentsVault", "ProtocolStandardFees", "TokenUtils", "TransferCreditsCondition", "SVCConfig",
	} {
		if a, ok := info.Deployment.Contracts[name]; !ok || !a.IsZero() {
			t.Errorf("%s: %v, %v; want the zero address", name, a, ok)
		}
	}
	for name, want := range map[string]toll.Address{
		"PayAsYouGoTemplate": toll.PayAsYouGoTemplate, "USDC": toll.Sandbox.USDC(), "EURC": toll.Sandbox.EURC(),
	} {
		if a := info.Deployment.Contracts[name]; a != want {
			t.Errorf("%s: %v", name, a)
		}
	}
}
