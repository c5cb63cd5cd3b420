package rails

import (
	"math/big"
	"time"

	"github.com/tollhq/toll"
)

// Seen is what the last looks have read of the chain.
type Seen struct {
	Head        time.Time // of the newest block; zero: none
	Relayers    map[toll.Address]*big.Int
	Cap, Signed int64 // of the signer, cents in an hour; a cap of 0 is none
}

// Seen returns what the last looks have read. It asks nobody.
func (n *Chain) Seen() Seen {
	if n.rail == nil {
		return Seen{}
	}
	s := n.rail.Seen()
	out := Seen{Head: s.Head, Cap: s.Cap, Signed: s.Signed, Relayers: map[toll.Address]*big.Int{}}
	for a, wei := range s.Relayers {
		out.Relayers[toll.Address(a)] = wei
	}
	return out
}
