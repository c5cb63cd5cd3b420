//go:build !nodevchain

package devchain

import (
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/tempfile"
)

const (
	genesisFile = "genesis.json"
	faucetFile  = "faucet.key"
	gasLimit    = 60_000_000
	baseFee     = 5_000_000 // wei, as on Base with little traffic
)

// identity returns the genesis and the faucet of the directory, and makes them for a new directory. The caller has locked the directory.
// The genesis is written last, so a directory with a genesis also has a key.
func (c *Chain) identity() (*core.Genesis, *faucet, error) {
	if c.cfg.Dir == "" {
		key, err := newKey(c.cfg.random)
		if err != nil {
			return nil, nil, err
		}
		genesis, err := c.newGenesis(key)
		return genesis, newFaucet(key, c.id), err
	}
	genesisPath, keyPath := filepath.Join(c.cfg.Dir, genesisFile), filepath.Join(c.cfg.Dir, faucetFile)
	for _, path := range []string{genesisPath, keyPath} {
		_, _ = newFile(path).Clean(c.cfg.Dir) // remove the temporary files of a killed process
	}
	document, err := os.ReadFile(genesisPath)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := newKey(c.cfg.random)
		if err != nil {
			return nil, nil, err
		}
		genesis, err := c.newGenesis(key)
		if err != nil {
			return nil, nil, err
		}
		if document, err = json.Marshal(genesis); err != nil {
			return nil, nil, err
		}
		if err := writeFile(keyPath, []byte(hex.EncodeToString(crypto.FromECDSA(key))+"\n")); err != nil {
			return nil, nil, err
		}
		return genesis, newFaucet(key, c.id), writeFile(genesisPath, document)
	}
	if err != nil {
		return nil, nil, err
	}
	genesis := new(core.Genesis)
	if err := json.Unmarshal(document, genesis); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", genesisFile, err)
	}
	if genesis.Config == nil || genesis.Config.ChainID == nil || genesis.Config.ChainID.Cmp(new(big.Int).SetUint64(c.id)) != 0 {
		return nil, nil, fmt.Errorf("%w: the chain id is not %d", ErrForeign, c.id)
	}
	text, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, nil, err
	}
	// The error of the parser would quote the key.
	key, err := crypto.HexToECDSA(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, nil, fmt.Errorf("%s does not contain a valid key", faucetFile)
	}
	return genesis, newFaucet(key, c.id), nil
}

func (c *Chain) newGenesis(faucet *ecdsa.PrivateKey) (*core.Genesis, error) {
	config := *params.AllDevChainProtocolChanges
	config.ChainID = new(big.Int).SetUint64(c.id)
	// A fork that no network has. Osaka stays: its cap on the gas of a transaction is Base's, too.
	config.BogotaTime = nil

	tokens, err := contracts.DevTokens(c.id)
	if err != nil {
		return nil, err
	}
	alloc := core.SystemContractAllocs()
	for address, code := range tokens {
		alloc[address] = types.Account{Nonce: 1, Code: code, Balance: new(big.Int)}
	}
	alloc[contracts.Create2Deployer] = types.Account{Nonce: 1, Code: params.DeterministicFactoryCode, Balance: new(big.Int)}
	alloc[crypto.PubkeyToAddress(faucet.PublicKey)] = types.Account{Balance: ether(1_000_000_000)}

	// Two embedded chains share an id; their genesis hashes must not.
	extra := make([]byte, 32)
	if _, err := io.ReadFull(c.cfg.random, extra); err != nil {
		return nil, err
	}
	return &core.Genesis{
		Config:     &config,
		Timestamp:  uint64(max(0, c.cfg.Now().Unix()-1)),
		ExtraData:  extra,
		GasLimit:   gasLimit,
		BaseFee:    big.NewInt(baseFee),
		Difficulty: new(big.Int),
		Alloc:      alloc,
	}, nil
}

func newKey(random io.Reader) (*ecdsa.PrivateKey, error) {
	secret := make([]byte, 32)
	if _, err := io.ReadFull(random, secret); err != nil {
		return nil, err
	}
	return crypto.ToECDSA(secret)
}

// newFile are the files in which a file is written before it gets its name.
func newFile(path string) tempfile.Kind { return tempfile.Kind{Prefix: filepath.Base(path) + "."} }

// writeFile makes a file that is whole or not there, readable by its owner.
func writeFile(path string, content []byte) error {
	return newFile(path).Write(path, content, true)
}

func ether(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(params.Ether)) }
