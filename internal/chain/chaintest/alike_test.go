package chaintest_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// Tests that run on all kinds of chains rely on these being alike.
func TestEach_Alike(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		ctx, eth := t.Context(), c.Eth()
		if id, err := eth.ChainID(ctx); err != nil || id.Uint64() != c.ChainID() || c.ChainID() != 84532 {
			t.Fatalf("chain id %v, %v", id, err)
		}
		if first, err := eth.HeaderByNumber(ctx, new(big.Int)); err != nil || first.Hash() != c.Genesis() {
			t.Errorf("genesis %v, %v, want %v", first.Hash(), err, c.Genesis())
		}
		for _, m := range contracts.Check(ctx, eth, c.ChainID()) {
			t.Errorf("contract: %+v", m)
		}
		head := must.Get(eth.HeaderByNumber(ctx, nil))(t)
		if head.GasLimit != 60_000_000 || head.BaseFee.Int64() > 100_000_000 {
			t.Errorf("gas limit %d, base fee %v", head.GasLimit, head.BaseFee)
		}

		who := common.Address{0xbe, 0xef}
		must.Get(c.Fund(ctx, who, big.NewInt(5)))(t)
		minted := must.Get(c.Mint(ctx, contracts.USDC(c.ChainID()), who, big.NewInt(1_000_000)))(t)
		place := func() (common.Hash, bool) {
			t.Helper()
			r, err := eth.TransactionReceipt(ctx, minted)
			if errors.Is(err, ethereum.NotFound) {
				return common.Hash{}, false
			}
			if err != nil || len(r.Logs) != 1 {
				t.Fatalf("receipt %+v, %v", r, err)
			}
			return r.BlockHash, true
		}
		units := func() int64 {
			t.Helper()
			data := append(common.Hex2Bytes("70a08231"), common.LeftPadBytes(who[:], 32)...) // balanceOf(address)
			token := contracts.USDC(c.ChainID())
			out := must.Get(eth.CallContract(ctx, ethereum.CallMsg{To: &token, Data: data}, nil))(t)
			return new(big.Int).SetBytes(out).Int64()
		}
		before, ok := place()
		if !ok || units() != 1_000_000 {
			t.Fatalf("minted: %v, %d units", ok, units())
		}

		number := func() uint64 {
			t.Helper()
			return must.Get(eth.BlockNumber(ctx))(t)
		}
		was := number()
		must.Do(t, c.Reorg(1, false))
		after, ok := place()
		if !ok || after == before || units() != 1_000_000 || number() <= was {
			t.Errorf("a reorganisation that keeps transactions: in a block %v, the same one %v, %d units, head %d after %d", ok, after == before, units(), number(), was)
		}
		was = number()
		must.Do(t, c.Reorg(2, true))
		if _, ok := place(); ok || units() != 0 || number() <= was {
			t.Errorf("a reorganisation that drops transactions: in a block %v, %d units, head %d after %d", ok, units(), number(), was)
		}
		if err := c.Reorg(1000, false); err == nil {
			t.Error("the contracts were reorganised away")
		}

		must.Do(t, c.Advance(48*time.Hour))
		head = must.Get(eth.HeaderByNumber(ctx, nil))(t)
		if ahead := time.Unix(int64(head.Time), 0).Sub(c.Now()).Abs(); ahead > time.Minute {
			t.Errorf("the chain and its clock are %v apart", ahead)
		}
	})
}
