package interop

import (
	"encoding/hex"
	"math/big"
	"reflect"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// viem and ethers, which builders use, work with the embedded chain and see the same on each kind of chain.
func TestChainClients(t *testing.T) {
	n := findNode(t)
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		libraries := n.start(t, n.workDir(t), "chain")
		key := must.Get(crypto.GenerateKey())(t)
		from, usdc := crypto.PubkeyToAddress(key.PublicKey), contracts.USDC(contracts.BaseSepolia)
		must.Get(c.Fund(t.Context(), from, big.NewInt(1e18)))(t)
		must.Get(c.Mint(t.Context(), usdc, from, big.NewInt(1000)))(t)
		const refusal = "ERC20: transfer amount exceeds balance"
		for i, library := range []struct {
			name string
			want map[string]any
		}{
			{"viem", map[string]any{
				"simulated": true, "status": "success", "balance": "5", "wei": "8", "logs": 1.0, "watched": 1.0, "blocks": true, "call": "success",
				"sender": true, "fees": 5.0, "code": true, "nonce": 3.0, "confirmations": "3",
				"refusal": "The contract function \"transfer\" reverted with the following reason:\n" + refusal,
			}},
			{"ethers", map[string]any{
				"status": 1.0, "balance": "5", "wei": "7", "logs": 1.0, "watched": true, "transactions": 1.0, "fees": true, "network": "84532", "nonce": 5.0,
				"refusal": refusal,
			}},
		} {
			var got map[string]any
			must.Do(t, libraries.do(library.name, map[string]any{
				"url": c.URL(), "key": "0x" + hex.EncodeToString(crypto.FromECDSA(key)), "token": usdc, "to": common.Address{0: 0xaa, 19: byte(i + 1)},
			}, &got))
			if !reflect.DeepEqual(got, library.want) {
				t.Errorf("%s: got %v, want %v", library.name, got, library.want)
			}
		}
	})
}
