//go:build !nodevchain

package chaintest_test

import (
	"context"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/tollhq/toll/internal/chain/contracts"
)

func TestCodeOfBothChains(t *testing.T) {
	for _, id := range []uint64{contracts.BaseSepolia, contracts.Base} {
		c := startContractChain(t, id)
		if got := contracts.Check(t.Context(), c.eth, id); len(got) > 0 {
			t.Errorf("chain %d: %v", id, got)
		}
		if got := contracts.CheckTokens(t.Context(), c.eth, id); len(got) > 0 {
			t.Errorf("chain %d: %v", id, got)
		}
		if id != contracts.BaseSepolia {
			continue
		}
		// The manager and the account code contain the chain id, so that they differ between chains.
		var names []string
		for _, m := range contracts.Check(t.Context(), c.eth, contracts.Base) {
			names = append(names, m.Name)
		}
		if len(names) != 2 || names[0] != "DelegationManager" || names[1] != "EIP7702StatelessDeleGator" {
			t.Errorf("checked as Base, %v differ, want manager and account code", names)
		}
		if got := contracts.CheckTokens(t.Context(), c.eth, contracts.Base); len(got) != 4 || got[0].Found != "no uint8" || got[0].Err != nil {
			t.Errorf("tokens of Base on the other chain: %v", got)
		}
	}
}

func TestUnreadableIsNoMismatch(t *testing.T) {
	c := startContractChain(t, contracts.BaseSepolia)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, got := range map[string][]contracts.Mismatch{
		"Check": contracts.Check(ctx, c.eth, contracts.BaseSepolia), "CheckTokens": contracts.CheckTokens(ctx, c.eth, contracts.BaseSepolia),
	} {
		if len(got) == 0 {
			t.Errorf("%s of a chain that does not answer passes", name)
		}
		for _, m := range got {
			if !errors.Is(m, context.Canceled) || m.Found != "" {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// If the contract at the address of a token reverts, CheckTokens reports a mismatch, not an error.
func TestTokenThatReverts(t *testing.T) {
	c := startContractChain(t, contracts.BaseSepolia)
	got := contracts.CheckTokens(t.Context(), redirected{c.eth, contracts.CreditMirror(common.Address{})}, contracts.BaseSepolia)
	if len(got) != 4 || got[0].Found != "no uint8" {
		t.Errorf("no code: %v", got)
	}
	got = contracts.CheckTokens(t.Context(), redirected{c.eth, contracts.DelegationManager}, contracts.BaseSepolia)
	if len(got) != 4 || got[0].Found != "a revert" || got[0].Err != nil {
		t.Errorf("another contract: %v", got)
	}
}

// redirected sends every call to the address in to.
type redirected struct {
	*ethclient.Client
	to common.Address
}

func (r redirected) CallContract(ctx context.Context, call ethereum.CallMsg, block *big.Int) ([]byte, error) {
	call.To = &r.to
	return r.Client.CallContract(ctx, call, block)
}
