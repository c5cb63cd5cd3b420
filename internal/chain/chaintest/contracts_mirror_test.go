//go:build !nodevchain

package chaintest_test

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
)

func TestCreditMirror(t *testing.T) {
	c := startContractChain(t, contracts.BaseSepolia)
	operator, stranger := c.account(), c.account()
	m := contracts.Mirror(operator.Address)
	c.does(stranger, contracts.Create2Deployer, append(m.Salt.Bytes(), m.InitCode...))
	code, err := c.eth.CodeAt(t.Context(), m.Address, nil)
	if err != nil || crypto.Keccak256Hash(code) != m.CodeHash {
		t.Fatalf("the code at %s is %d bytes with the hash %s, want %s (%v)", m.Address, len(code), crypto.Keccak256Hash(code), m.CodeHash, err)
	}

	anchoring := func(period uint64, root [32]byte, leaves uint64, credits int64) []byte {
		return chaintest.Call("anchor(uint64,bytes32,uint64,uint128)", period, root, leaves, big.NewInt(credits))
	}
	if got := c.reverts("", stranger, m.Address, chaintest.Call("operator()")); common.BytesToAddress(got) != operator.Address {
		t.Errorf("operator() = %x, want %s", got, operator)
	}
	root := [32]byte{1, 2, 3}
	anchor := anchoring(7, root, 3, 250)
	c.reverts(hexutil.Encode(selector("NotOperator()")), stranger, m.Address, anchor)
	receipt := c.does(operator, m.Address, anchor)
	if len(receipt.Logs) != 1 {
		t.Fatalf("%d logs", len(receipt.Logs))
	}
	logged(t, receipt, "Anchored(uint64,bytes32,uint64,uint128)", [][]byte{{7}}, root[:], []byte{3}, []byte{250})
	last := append(selector("PeriodNotAfter(uint64)"), common.LeftPadBytes([]byte{7}, 32)...)
	for _, period := range []uint64{0, 6, 7} {
		c.reverts(hexutil.Encode(last), operator, m.Address, anchoring(period, root, 3, 250))
	}
	c.does(operator, m.Address, anchoring(9, root, 1, 1))
	if got := c.reverts("", stranger, m.Address, chaintest.Call("lastPeriod()")); new(big.Int).SetBytes(got).Int64() != 9 {
		t.Errorf("lastPeriod() = %x", got)
	}

	// The third leaf moves up: its sibling is the parent of the first two leaves.
	pair := func(a, b [32]byte) [32]byte {
		if new(big.Int).SetBytes(a[:]).Cmp(new(big.Int).SetBytes(b[:])) > 0 {
			a, b = b, a
		}
		return crypto.Keccak256Hash(a[:], b[:])
	}
	leaves := [][32]byte{crypto.Keccak256Hash([]byte("a")), crypto.Keccak256Hash([]byte("b")), crypto.Keccak256Hash([]byte("c"))}
	top := pair(pair(leaves[0], leaves[1]), leaves[2])
	for _, one := range []struct {
		root, leaf [32]byte
		proof      [][32]byte
		want       bool
	}{
		{top, leaves[0], [][32]byte{leaves[1], leaves[2]}, true},
		{top, leaves[1], [][32]byte{leaves[0], leaves[2]}, true},
		{top, leaves[2], [][32]byte{pair(leaves[0], leaves[1])}, true},
		{leaves[0], leaves[0], nil, true},
		{top, leaves[0], [][32]byte{leaves[2], leaves[1]}, false},
		{top, leaves[0], [][32]byte{leaves[1]}, false},
		{top, crypto.Keccak256Hash([]byte("d")), [][32]byte{leaves[1], leaves[2]}, false},
	} {
		got := c.reverts("", stranger, m.Address, chaintest.Call("check(bytes32,bytes32,bytes32[])", one.root, one.leaf, one.proof))
		if new(big.Int).SetBytes(got).Int64() == 1 != one.want {
			t.Errorf("check(%x, %x, %x) = %x, want %v", one.root, one.leaf, one.proof, got, one.want)
		}
	}
}
