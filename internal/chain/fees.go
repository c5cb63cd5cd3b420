package chain

import (
	"math/big"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/chain/signer"
)

// maxRaise bounds what a transaction that does not land may come to cost: this many times the highest price of a new one.
const maxRaise = 10

// fees are what a new transaction pays for a unit of gas, in wei: twice the base fee and the tip at most.
func (c *Config) fees(base *big.Int) (tip, feeCap *big.Int) {
	tip = new(big.Int).Set(c.Tip)
	return tip, new(big.Int).Add(new(big.Int).Lsh(base, 1), tip)
}

// raised are the fees of a transaction that takes the place of another one. ok is false when they would be beyond all bounds.
func (c *Config) raised(old *types.Transaction, base *big.Int) (tip, feeCap *big.Int, ok bool) {
	tip, feeCap = c.fees(base)
	tip, feeCap = signer.Raised(old, tip, feeCap)
	_, most := c.fees(c.MaxBaseFee)
	return tip, feeCap, feeCap.Cmp(most.Mul(most, big.NewInt(maxRaise))) <= 0
}
