package chain_test

import (
	"testing"

	"github.com/tollhq/toll/internal/chain"
)

// A failure is the word of the chain where a block is its evidence: that of the event, or the one whose time ended all. What failed
// before anything was sent has none.
func TestPaymentEnded(t *testing.T) {
	for name, c := range map[string]struct {
		op    chain.Op
		ended bool
	}{
		"sent":                {chain.Op{State: chain.Sent}, false},
		"an event, not deep":  {chain.Op{State: chain.Sent, Failure: &chain.Failure{Position: chain.Position{Block: 1}}}, false},
		"before it was sent":  {chain.Op{State: chain.Failed, Failure: &chain.Failure{}}, false},
		"an event":            {chain.Op{State: chain.Failed, Failure: &chain.Failure{Position: chain.Position{Block: 1, Tx: [32]byte{1}}}}, true},
		"the time of a block": {chain.Op{State: chain.Failed, Failure: &chain.Failure{Position: chain.Position{Block: 1}}}, true},
		"paid":                {chain.Op{State: chain.Final}, false},
	} {
		if o := c.op.Outcome(); o.Ended != c.ended {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
