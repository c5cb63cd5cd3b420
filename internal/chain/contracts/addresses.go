package contracts

import (
	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
)

// Chains that the contracts are known for.
const (
	Base        = 8453
	BaseSepolia = 84532 // also the id of the embedded chain
)

// Addresses, the same on both chains.
var (
	EntryPoint        = common.HexToAddress("0x0000000071727De22E5E9d8BAf0edAc6f37da032") // ERC-4337 v0.7
	DelegationManager = common.HexToAddress("0xdb9B1e94B5b69Df7e401DDbedE43491141047dB3") // Delegation Framework v1.3.0
	// AccountCode is the EIP7702StatelessDeleGator v1.3.0: the code that accounts delegate to with EIP-7702.
	AccountCode = common.HexToAddress("0x63c0c19a282a1B52b07dD5a65b58948A07DAE32B")

	ERC20TransferAmountEnforcer       = common.HexToAddress("0xf100b0819427117EcF76Ed94B358B1A5b5C6D2Fc")
	NativeTokenTransferAmountEnforcer = common.HexToAddress("0xF71af580b9c3078fbc2BBF16FbB8EEd82b330320")
	TimestampEnforcer                 = common.HexToAddress("0x1046bb45C8d673d4ea75321280DB34899413c069")
	LimitedCallsEnforcer              = common.HexToAddress("0x04658B29F6b82ed55274221a06Fc97D318E25416")
	AllowedCalldataEnforcer           = common.HexToAddress("0xc2b0d624c1c4319760C96503BA27C347F3260f55")

	// Create2Deployer takes a salt of 32 bytes and creation code, and answers with the 20 bytes of the address.
	Create2Deployer = common.HexToAddress("0x4e59b44847b379578588920cA78FbF26c0B4956C")
)

// Decimals of USDC and EURC on both chains.
const Decimals = 6

// environments are those of the chains.
var environments = map[uint64]toll.Environment{Base: toll.Live, BaseSepolia: toll.Sandbox}

// USDC is the token of Circle on the chain, or the zero address on a chain that is not known.
func USDC(chainID uint64) common.Address { return token(chainID, toll.Environment.USDC) }

// EURC is the token of Circle on the chain, or the zero address on a chain that is not known.
func EURC(chainID uint64) common.Address { return token(chainID, toll.Environment.EURC) }

func token(chainID uint64, of func(toll.Environment) toll.Address) common.Address {
	e, known := environments[chainID]
	if !known {
		return common.Address{}
	}
	return common.Address(of(e))
}

// TokenDomain returns the name and the version that USDC and EURC have in signatures of their holders (EIP-712). ok is false for
// every other token.
func TokenDomain(chainID uint64, token common.Address) (name, version string, ok bool) {
	const both = "2"
	switch {
	case token == common.Address{}:
	case token == EURC(chainID):
		return "EURC", both, true
	case token == USDC(chainID) && chainID == Base:
		return "USD Coin", both, true
	case token == USDC(chainID):
		return "USDC", both, true
	}
	return "", "", false
}
