//go:build !nodevchain

package devchain

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// published are the hashes of the code on the public networks, by chain id where they depend on it: manager and account code
// keep the domain of their signatures in the code.
var published = map[common.Address]map[uint64]string{
	contracts.EntryPoint: {0: "8db5ff695839d655407cc8490bb7a5d82337a86a6b39c3f0258aa6c3b582fc58"},
	contracts.DelegationManager: {
		contracts.BaseSepolia: "a6f025f7bb23ddc0e2546eec56400672c3dfac88c12963bfeb2b5e1121aeee4a",
		contracts.Base:        "7c4661fe830df0bb9354f85a6a478882e436b7a234a0cf1f8206ce6753925670",
	},
	contracts.AccountCode: {
		contracts.BaseSepolia: "83805f9ac7395294043b10c3b7c1839b7e4582a3e693028c36df84978b09d4e2",
		contracts.Base:        "6af675ac126c441bec5d5013da3331a52e7465fc0d5a662a8708a9f33ce497ba",
	},
	contracts.ERC20TransferAmountEnforcer:       {0: "a9104d82ccfcdb251f90da0f1b49f36432d574925f72ed4cb97bec5b3a94cd54"},
	contracts.NativeTokenTransferAmountEnforcer: {0: "85eecf45ca587f7c630d2a4b037bfd89790ca1c80787264f27cf20f506f7ee47"},
	contracts.TimestampEnforcer:                 {0: "1da353833766081398664c131a50988f6f7190d6a1a974f497607b974705900c"},
	contracts.LimitedCallsEnforcer:              {0: "3a07a1b31d8f8f29cde4260f88fc5011e003e4bdbd519c8274fc7092d2356468"},
	contracts.AllowedCalldataEnforcer:           {0: "26a87ea53c698e47fbea2566d50d18964062d0c74bd0baebc60316393461bf84"},
}

func TestCodeIsThatOfThePublicNetworks(t *testing.T) {
	for _, id := range []uint64{contracts.BaseSepolia, contracts.Base} {
		c := start(t, Config{ChainID: id})
		for address, hashes := range published {
			want := hashes[0]
			if of, depends := hashes[id]; depends {
				want = of
			}
			code := must.Get(client(c).CodeAt(t.Context(), address, nil))(t)
			if got := hex.EncodeToString(crypto.Keccak256(code)); got != want {
				t.Errorf("chain %d, %v: hash of the code %s, want %s", id, address, got, want)
			}
		}
		if mismatches := contracts.Check(t.Context(), client(c), id); len(mismatches) > 0 {
			t.Errorf("chain %d: %v", id, mismatches)
		}
		other := uint64(contracts.Base + contracts.BaseSepolia - id)
		if mismatches := contracts.Check(t.Context(), client(c), other); len(mismatches) != 2 {
			t.Errorf("chain %d taken for %d: %v, want manager and account code", id, other, mismatches)
		}
	}
}

// altered is a chain on which one contract has other code.
type altered struct {
	contracts.Caller
	at   common.Address
	code func([]byte) []byte
}

func (a altered) CodeAt(ctx context.Context, account common.Address, block *big.Int) ([]byte, error) {
	code, err := a.Caller.CodeAt(ctx, account, block)
	if account == a.at {
		code = a.code(bytes.Clone(code))
	}
	return code, err
}

// T71
func TestChangedCode(t *testing.T) {
	c := start(t, Config{})
	changes := map[string]func([]byte) []byte{
		"none":       func([]byte) []byte { return nil },
		"first byte": func(code []byte) []byte { code[0] ^= 1; return code },
		"last byte":  func(code []byte) []byte { code[len(code)-1] ^= 1; return code },
		"longer":     func(code []byte) []byte { return append(code, 0) },
	}
	for address := range published {
		for name, change := range changes {
			mismatches := contracts.Check(t.Context(), altered{client(c), address, change}, c.ChainID())
			if len(mismatches) != 1 || mismatches[0].Address != address {
				t.Errorf("%v, %s: %v", address, name, mismatches)
			}
		}
	}
}

// A directory whose genesis has other code at the address of a contract.
// T71
func TestStartOnChangedCode(t *testing.T) {
	dir := t.TempDir()
	key := must.Get(crypto.GenerateKey())(t)
	genesis := must.Get((&Chain{cfg: Config{Now: newClock(testStart).Now, random: rand.Reader}, id: contracts.BaseSepolia}).newGenesis(key))(t)
	genesis.Alloc[contracts.TimestampEnforcer] = types.Account{Balance: new(big.Int), Code: []byte{0x60, 0x00, 0x60, 0x00, 0xf3}}
	document := must.Get(json.Marshal(genesis))(t)
	writeIdentity(t, dir, key, document)
	if _, err := Start(t.Context(), Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "TimestampEnforcer") {
		t.Errorf("start on foreign code: %v", err)
	}
}

func writeIdentity(t *testing.T, dir string, key *ecdsa.PrivateKey, genesis []byte) {
	t.Helper()
	for file, content := range map[string][]byte{faucetFile: []byte(hex.EncodeToString(crypto.FromECDSA(key))), genesisFile: genesis} {
		must.Do(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
}

func TestTokens(t *testing.T) {
	for _, id := range []uint64{contracts.BaseSepolia, contracts.Base} {
		c := start(t, Config{ChainID: id})
		for symbol, token := range map[string]common.Address{"USDC": contracts.USDC(id), "EURC": contracts.EURC(id)} {
			for method, want := range map[string]string{"name()": symbol, "symbol()": symbol, "version()": "2"} {
				answer := view(t, c, token, method)
				if len(answer) != 96 || string(answer[64:64+len(want)]) != want || new(big.Int).SetBytes(answer[32:64]).Int64() != int64(len(want)) {
					t.Errorf("chain %d, %s, %s: %x", id, symbol, method, answer)
				}
			}
			if answer := view(t, c, token, "decimals()"); new(big.Int).SetBytes(answer).Int64() != 6 {
				t.Errorf("chain %d, %s: decimals %x", id, symbol, answer)
			}
			must.Get(c.Mint(t.Context(), token, payee, big.NewInt(2_500_000)))(t)
			if answer := view(t, c, token, "balanceOf(address)", payee); new(big.Int).SetBytes(answer).Int64() != 2_500_000 {
				t.Errorf("chain %d, %s: balance %x", id, symbol, answer)
			}
		}
		for name, fails := range map[string]func() error{
			"negative": func() error { _, err := c.Mint(t.Context(), contracts.USDC(id), payee, big.NewInt(-1)); return err },
			"too much": func() error {
				_, err := c.Mint(t.Context(), contracts.USDC(id), payee, new(big.Int).Lsh(big.NewInt(1), 256))
				return err
			},
			"overflow": func() error {
				_, err := c.Mint(t.Context(), contracts.USDC(id), payee, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)))
				return err
			},
			"no token":     func() error { _, err := c.Mint(t.Context(), contracts.EntryPoint, payee, big.NewInt(1)); return err },
			"negative wei": func() error { _, err := c.Fund(t.Context(), payee, big.NewInt(-1)); return err },
		} {
			if err := fails(); err == nil {
				t.Errorf("chain %d: %s is taken", id, name)
			}
		}
	}
}

// view calls a method without changing anything.
func view(t *testing.T, c *Chain, to common.Address, method string, arguments ...common.Address) []byte {
	t.Helper()
	data := crypto.Keccak256([]byte(method))[:4]
	for _, argument := range arguments {
		data = append(data, common.LeftPadBytes(argument.Bytes(), 32)...)
	}
	answer, err := client(c).CallContract(t.Context(), ethereum.CallMsg{To: &to, Data: data}, nil)
	must.Do(t, err, method)
	return answer
}
