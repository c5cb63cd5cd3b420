package interop

import (
	"testing"

	"github.com/tollhq/toll/internal/server/servertest"
)

// scenes run one after the other on one service, each with a plan and an access token of its own.
var scenes = []struct {
	id, what string
	play     func(t *testing.T, s *service, a *actors)
}{
	{"S01", "every client at every server", everyPair},
	{"S03", "a plug-in without a default asset", withoutDefaultAsset},
	{"S04", "the spend cap of a client", spendCap},
	{"S05", "a plan beside extra", topLevelPlan},
	{"S06", "our entry has all members", superset},
	{"S07", "the smallest entry", smallestEntry},
	{"S08", "a bare JWS", bareJWS},
	{"S09", "other encodings", otherEncodings},
	{"S10", "short of credits", shortOfCredits},
	{"S11", "an API key that was revoked", revokedKey},
	{"S13", "a settlement that is refused", refusedSettlement},
	{"S15", "less than the price", func(t *testing.T, s *service, a *actors) { override(t, s, a, "3", "3") }},
	{"S16", "a part of the price", func(t *testing.T, s *service, a *actors) { override(t, s, a, "50%", "2") }},
	{"S17", "more than the price", overrideAbove},
	{"S18", "a handler that fails", failingHandler},
	{"S19", "twenty at once with one nonce", twentyAtOnce},
	{"S20", "one nonce again, and after a restart", oneNonceAgain},
	{"S22", "more requests than credits", moreThanCredits},
	{"S23", "no nonce", noNonce},
	{"S24", "a payment identifier", paymentIdentifier},
	{"S25", "a server that settles first", settlesFirst},
	{"S26", "the plan is swapped in the payment", swappedPlan},
	{"S27", "the server asks for another plan", otherPlan},
	{"S28", "another resource", otherResource},
	{"S29", "numbers for texts", numbersForTexts},
	{"S30", "two payments in one request", twoPayments},
	{"S31", "large payments", largePayments},
	{"S32", "paths with too many slashes", slashes},
	{"S33", "an answer that gets lost", lostAnswer},
	{"S34", "the service dies after its commit", diesAfterCommit},
	{"S35", "a top-up on the way", topUp},
	{"S36", "a free plan that nobody ordered", freePlan},
	{"S60", "offers and receipts", statements},
	{"S61", "an echo that was changed", changedEcho},
	{"S62", "the catalogue", catalogue},
	{"S70", "a tool that is paid", paidTool},
	{"S71", "one payment for two calls", toolTwice},
	{"S72", "an access token as it was issued", toolReused},
	{"S73", "a tool whose settlement fails", toolUnsettled},
	{"S80", "a task of an agent", paidErrand},
}

// sales are the scenes of wallets, on a service whose clock nobody moves: wallets sign by their own.
var sales = []struct {
	id, what string
	play     func(t *testing.T, m *market)
}{
	{"S40", "a wallet buys a plan", walletBuys},
	{"S41", "a plan above the cap of a wallet", aboveTheCap},
	{"S42", "the payment of a sale again", saleAgain},
	{"S43", "one authorization for two plans", twoPlans},
	{"S44", "authorizations that pay nothing", badAuthorizations},
	{"S45", "somebody else submits the authorization", submittedElsewhere},
	{"S46", "wallets pay another server", exactForOthers},
	{"S47", "a wallet pays per call", paysPerCall},
	{"S50", "a wallet signs in", signsIn},
	{"S51", "a wallet signs in or pays", signsInOrPays},
	{"S52", "proofs that prove nothing", badProofs},
}

func TestScenes(t *testing.T) {
	a := cast(t)
	t.Run("program", func(t *testing.T) {
		t.Parallel()
		s := run(t, servertest.Options{Args: []string{"--x402-receipts"}})
		for _, scene := range scenes {
			t.Run(scene.id, func(t *testing.T) { scene.play(t, s, a) })
		}
		s.process.Kill()
		audit(t, s)
	})
	t.Run("sales", func(t *testing.T) {
		t.Parallel()
		m := openMarket(t, a)
		for _, scene := range sales {
			t.Run(scene.id, func(t *testing.T) { scene.play(t, m) })
		}
		m.process.Kill()
		audit(t, m.service)
	})
	// These ask for a service of their own.
	t.Run("S02", func(t *testing.T) { t.Parallel(); cards(t, a) })
	t.Run("S12", func(t *testing.T) { t.Parallel(); limitedCaller(t, a) })
	t.Run("S14", func(t *testing.T) { t.Parallel(); pendingSettlement(t, a) })
	t.Run("S21", func(t *testing.T) { t.Parallel(); otherInstance(t, a) })
}
