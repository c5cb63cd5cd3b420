package crypto

import (
	"testing"

	"github.com/tollhq/toll/internal/chain"
)

// A failure is the word of the chain where a block is its evidence: that of the event, or the one whose time ended all. What failed
// before anything was sent has none.
func TestPaymentEnded(t *testing.T) {
	for name, c := range map[string]struct {
		outcome chain.Outcome
		ended   bool
	}{
		"sent":                {chain.Outcome{State: chain.Sent}, false},
		"an event, not deep":  {chain.Outcome{State: chain.Sent, Failure: &chain.Failure{Place: chain.Place{Block: 1}}}, false},
		"before it was sent":  {chain.Outcome{State: chain.Failed, Failure: &chain.Failure{}}, false},
		"an event":            {chain.Outcome{State: chain.Failed, Failure: &chain.Failure{Place: chain.Place{Block: 1, Tx: [32]byte{1}}}}, true},
		"the time of a block": {chain.Outcome{State: chain.Failed, Failure: &chain.Failure{Place: chain.Place{Block: 1}}}, true},
		"paid":                {chain.Outcome{State: chain.Final}, false},
	} {
		if p := paymentOf(c.outcome); p.Ended != c.ended {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
