package contracts

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// ErrUnknownChain says that a chain is neither [Base] nor has the id of [BaseSepolia].
var ErrUnknownChain = errors.New("contracts: unknown chain")

// Contract is a contract that [Create2Deployer] places with the salt and the init code.
type Contract struct {
	Name     string
	Address  common.Address
	Salt     common.Hash
	InitCode []byte      // creation code and the arguments of the constructor
	CodeHash common.Hash // Keccak-256 of the code that it then has
}

// create2Address is the address that CREATE2 binds to salt and init code (EIP-1014).
func (c *Contract) create2Address() common.Address {
	return crypto.CreateAddress2(Create2Deployer, c.Salt, crypto.Keccak256(c.InitCode))
}

// codeHashes by name. The manager and the account code keep the hash of their EIP-712 domain in their code, and so have
// another one on each chain.
var codeHashes = map[string]map[uint64]string{
	"EntryPoint": everywhere("0x8db5ff695839d655407cc8490bb7a5d82337a86a6b39c3f0258aa6c3b582fc58"),
	"DelegationManager": {
		BaseSepolia: "0xa6f025f7bb23ddc0e2546eec56400672c3dfac88c12963bfeb2b5e1121aeee4a",
		Base:        "0x7c4661fe830df0bb9354f85a6a478882e436b7a234a0cf1f8206ce6753925670",
	},
	"EIP7702StatelessDeleGator": {
		BaseSepolia: "0x83805f9ac7395294043b10c3b7c1839b7e4582a3e693028c36df84978b09d4e2",
		Base:        "0x6af675ac126c441bec5d5013da3331a52e7465fc0d5a662a8708a9f33ce497ba",
	},
	"ERC20TransferAmountEnforcer":       everywhere("0xa9104d82ccfcdb251f90da0f1b49f36432d574925f72ed4cb97bec5b3a94cd54"),
	"NativeTokenTransferAmountEnforcer": everywhere("0x85eecf45ca587f7c630d2a4b037bfd89790ca1c80787264f27cf20f506f7ee47"),
	"TimestampEnforcer":                 everywhere("0x1da353833766081398664c131a50988f6f7190d6a1a974f497607b974705900c"),
	"LimitedCallsEnforcer":              everywhere("0x3a07a1b31d8f8f29cde4260f88fc5011e003e4bdbd519c8274fc7092d2356468"),
	"AllowedCalldataEnforcer":           everywhere("0x26a87ea53c698e47fbea2566d50d18964062d0c74bd0baebc60316393461bf84"),
}

func everywhere(hash string) map[uint64]string {
	return map[uint64]string{Base: hash, BaseSepolia: hash}
}

//go:embed contracts.gen.json
var generated []byte

// Artifacts is contracts.gen.json, which the program in the folder generate makes.
type Artifacts struct {
	Contracts    []Artifact               `json:"contracts"`
	Tokens       map[string]hexutil.Bytes `json:"tokens"` // runtime code
	CreditMirror struct {
		CreationCode hexutil.Bytes `json:"creationCode"`
		RuntimeCode  hexutil.Bytes `json:"runtimeCode"`
		Operator     []int         `json:"operator"` // offsets of the immutable in RuntimeCode
	} `json:"creditMirror"`
}

// Artifact is a contract of others.
type Artifact struct {
	Name         string         `json:"name"`
	Package      string         `json:"package"`
	Address      common.Address `json:"address"`
	Salt         common.Hash    `json:"salt"`
	Metadata     hexutil.Bytes  `json:"metadata,omitempty"` // the hash that was put in; none when the package has the deployed code
	Arguments    hexutil.Bytes  `json:"arguments"`          // of the constructor, ABI encoded
	CreationCode hexutil.Bytes  `json:"creationCode"`
}

// load panics when the file that is built into the program is broken.
var load = sync.OnceValue(func() *Artifacts {
	a := new(Artifacts)
	if err := json.Unmarshal(generated, a); err != nil {
		panic(fmt.Sprintf("contracts: contracts.gen.json: %v", err))
	}
	return a
})

// Deployments are the contracts that the crypto rail needs, in an order in which they can be placed; none for an unknown chain.
// The result is the caller's.
func Deployments(chainID uint64) []Contract {
	if chainID != Base && chainID != BaseSepolia {
		return nil
	}
	var all []Contract
	for _, c := range load().Contracts {
		all = append(all, Contract{
			Name: c.Name, Address: c.Address, Salt: c.Salt,
			InitCode: append(append([]byte(nil), c.CreationCode...), c.Arguments...),
			CodeHash: common.HexToHash(codeHashes[c.Name][chainID]),
		})
	}
	return all
}

// DevTokens is the code of the tokens of an embedded chain, by the address at which the genesis has to hold it: [USDC] and
// [EURC] of the chain, with an open mint(address,uint256). Fails with [ErrUnknownChain].
func DevTokens(chainID uint64) (map[common.Address][]byte, error) {
	if chainID != Base && chainID != BaseSepolia {
		return nil, fmt.Errorf("%w %d", ErrUnknownChain, chainID)
	}
	tokens := load().Tokens
	return map[common.Address][]byte{
		USDC(chainID): append([]byte(nil), tokens["USDC"]...),
		EURC(chainID): append([]byte(nil), tokens["EURC"]...),
	}, nil
}

// Mirror is the CreditMirror to which only the operator can write. It is the same on every chain.
func Mirror(operator common.Address) Contract {
	m := load().CreditMirror
	word := common.LeftPadBytes(operator[:], 32)
	code := append([]byte(nil), m.RuntimeCode...)
	for _, at := range m.Operator {
		copy(code[at:], word)
	}
	c := Contract{
		Name: "CreditMirror", Salt: crypto.Keccak256Hash([]byte("toll/credit-mirror/1")),
		InitCode: append(append([]byte(nil), m.CreationCode...), word...), CodeHash: crypto.Keccak256Hash(code),
	}
	c.Address = c.create2Address()
	return c
}

func CreditMirror(operator common.Address) common.Address { return Mirror(operator).Address }
