package contracts

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// named are the addresses of the published contracts, in the order of [Deployments].
var named = []struct {
	name    string
	address common.Address
}{
	{"EntryPoint", EntryPoint},
	{"DelegationManager", DelegationManager},
	{"EIP7702StatelessDeleGator", AccountCode},
	{"ERC20TransferAmountEnforcer", ERC20TransferAmountEnforcer},
	{"NativeTokenTransferAmountEnforcer", NativeTokenTransferAmountEnforcer},
	{"TimestampEnforcer", TimestampEnforcer},
	{"LimitedCallsEnforcer", LimitedCallsEnforcer},
	{"AllowedCalldataEnforcer", AllowedCalldataEnforcer},
}

func TestAddressesFollowFromTheCode(t *testing.T) {
	for _, chain := range []uint64{Base, BaseSepolia} {
		all := Deployments(chain)
		if len(all) != len(named) {
			t.Fatalf("%d contracts on %d, want %d", len(all), chain, len(named))
		}
		for i, c := range all {
			if c.Name != named[i].name || c.Address != named[i].address {
				t.Errorf("contract %d is %s at %s, want %s at %s", i, c.Name, c.Address, named[i].name, named[i].address)
			}
			if got := c.create2Address(); got != c.Address {
				t.Errorf("the code of the %s belongs at %s, want %s", c.Name, got, c.Address)
			}
			if c.CodeHash == (common.Hash{}) {
				t.Errorf("%s on %d has no hash", c.Name, chain)
			}
		}
	}
}

func TestChangedMetadataMovesTheAddress(t *testing.T) {
	exchanged := 0
	for i, c := range Deployments(BaseSepolia) {
		metadata := load().Contracts[i].Metadata
		if len(metadata) == 0 {
			continue
		}
		exchanged++
		at := bytes.LastIndex(c.InitCode, metadata)
		if at < 0 {
			t.Fatalf("%s: the metadata is not in the code", c.Name)
		}
		for _, offset := range []int{0, 31} {
			changed := c
			changed.InitCode = bytes.Clone(c.InitCode)
			changed.InitCode[at+offset] ^= 1
			if changed.create2Address() == c.Address {
				t.Errorf("%s: another metadata byte %d, the same address", c.Name, offset)
			}
		}
	}
	if exchanged != 7 {
		t.Errorf("%d contracts with exchanged metadata, want 7", exchanged)
	}
}

func TestDeploymentsAreTheCallers(t *testing.T) {
	for i := range Deployments(Base) {
		clear(Deployments(Base)[i].InitCode)
	}
	TestAddressesFollowFromTheCode(t)
}

// The address changes with every change of the code that the compiler makes: then the salt has to say 2.
func TestCreditMirrorStays(t *testing.T) {
	operator := common.HexToAddress("0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1")
	if got, want := CreditMirror(operator), common.HexToAddress("0xA40b4dC5602154d25DD0348eDA5c5Ba8498D90FF"); got != want {
		t.Errorf("CreditMirror(%s) = %s, want %s", operator, got, want)
	}
	if CreditMirror(common.Address{1}) == CreditMirror(common.Address{2}) {
		t.Error("two operators have one mirror")
	}
}

func TestUnknownChain(t *testing.T) {
	const other = 1
	if got := Deployments(other); got != nil {
		t.Errorf("Deployments = %d contracts", len(got))
	}
	if _, err := DevTokens(other); !errors.Is(err, ErrUnknownChain) {
		t.Errorf("DevTokens: %v", err)
	}
	if USDC(other) != (common.Address{}) || EURC(other) != (common.Address{}) {
		t.Error("tokens on an unknown chain")
	}
	for name, got := range map[string][]Mismatch{
		"Check": Check(context.Background(), nil, other), "CheckTokens": CheckTokens(context.Background(), nil, other),
	} {
		if len(got) != 1 || !errors.Is(got[0], ErrUnknownChain) {
			t.Errorf("%s = %v", name, got)
		}
	}
}

// Holders of a token sign for a name that is not the same on both networks.
func TestTokenDomain(t *testing.T) {
	for token, want := range map[common.Address]string{
		USDC(Base): "USD Coin 2", EURC(Base): "EURC 2", USDC(BaseSepolia): "", {}: "", EntryPoint: "",
	} {
		name, version, ok := TokenDomain(Base, token)
		if ok != (want != "") || ok && name+" "+version != want {
			t.Errorf("%s on Base: %q %q %t, want %q", token, name, version, ok, want)
		}
	}
	for token, want := range map[common.Address]string{
		USDC(BaseSepolia): "USDC 2", EURC(BaseSepolia): "EURC 2", USDC(Base): "", {}: "",
	} {
		name, version, ok := TokenDomain(BaseSepolia, token)
		if ok != (want != "") || ok && name+" "+version != want {
			t.Errorf("%s on Base Sepolia: %q %q %t, want %q", token, name, version, ok, want)
		}
	}
	if _, _, ok := TokenDomain(1, USDC(1)); ok {
		t.Error("a token of an unknown chain")
	}
}
