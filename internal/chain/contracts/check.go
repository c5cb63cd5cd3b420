package contracts

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
)

// Caller reads a chain. A nil block number is the latest block.
type Caller interface {
	CodeAt(ctx context.Context, account common.Address, block *big.Int) ([]byte, error)
}

// TokenCaller calls contracts of a chain. A nil block number is the latest block.
type TokenCaller interface {
	CallContract(ctx context.Context, call ethereum.CallMsg, block *big.Int) ([]byte, error)
}

// Mismatch is a contract that is not what it should be. Its Err is set when that could not be read at all: then Found is empty
// and nothing is known of the contract.
type Mismatch struct {
	Name    string // of the contract, and what of it was read when that is not its code
	Address common.Address
	Want    string // hash of the code, 0x and 64 digits; otherwise the value
	Found   string
	Err     error
}

func (m Mismatch) Error() string {
	if m.Err != nil {
		return fmt.Sprintf("%s at %s: %v", m.Name, m.Address, m.Err)
	}
	return fmt.Sprintf("%s at %s is %s, want %s", m.Name, m.Address, m.Found, m.Want)
}

// Unwrap is the error of the chain, if that is what is wrong.
func (m Mismatch) Unwrap() error { return m.Err }

// Check compares the code of every contract of [Deployments] with the known hashes. It does not ask for the id of the chain.
// An unknown chain is one mismatch, whose Err is [ErrUnknownChain].
func Check(ctx context.Context, c Caller, chainID uint64) []Mismatch {
	contracts := Deployments(chainID)
	if contracts == nil {
		return []Mismatch{{Name: "chain " + strconv.FormatUint(chainID, 10), Err: ErrUnknownChain}}
	}
	var out []Mismatch
	for _, contract := range contracts {
		m := Mismatch{Name: contract.Name, Address: contract.Address, Want: contract.CodeHash.Hex()}
		code, err := c.CodeAt(ctx, contract.Address, nil)
		if err != nil {
			m.Err = err
			out = append(out, m)
			continue
		}
		if m.Found = crypto.Keccak256Hash(code).Hex(); m.Found != m.Want {
			out = append(out, m)
		}
	}
	return out
}

// reverted is the code of the JSON-RPC error of a call that the contract refused.
const reverted = 3

// CheckTokens asks USDC and EURC for their decimals and symbols. Their code is not compared: on public chains it is a proxy
// that its owner can change.
func CheckTokens(ctx context.Context, c TokenCaller, chainID uint64) []Mismatch {
	if chainID != Base && chainID != BaseSepolia {
		return []Mismatch{{Name: "chain " + strconv.FormatUint(chainID, 10), Err: ErrUnknownChain}}
	}
	text, err := abi.NewType("string", "", nil)
	if err != nil {
		return []Mismatch{{Name: "string", Err: err}}
	}
	number, err := abi.NewType("uint8", "", nil)
	if err != nil {
		return []Mismatch{{Name: "uint8", Err: err}}
	}
	var out []Mismatch
	ask := func(name, function string, token common.Address, of abi.Type, want string) {
		m := Mismatch{Name: name + " " + function, Address: token, Want: want}
		answer, err := c.CallContract(ctx, ethereum.CallMsg{To: &token, Data: crypto.Keccak256([]byte(function + "()"))[:4]}, nil)
		var refused rpc.Error
		switch {
		case errors.As(err, &refused) && refused.ErrorCode() == reverted:
			m.Found = "a revert"
		case err != nil:
			m.Err = err
		default:
			m.Found = "no " + of.String()
			if values, err := (abi.Arguments{{Type: of}}).Unpack(answer); err == nil {
				m.Found = fmt.Sprint(values[0])
			}
		}
		if m.Err != nil || m.Found != want {
			out = append(out, m)
		}
	}
	for _, token := range []struct {
		name    string
		address common.Address
	}{{"USDC", USDC(chainID)}, {"EURC", EURC(chainID)}} {
		ask(token.name, "decimals", token.address, number, strconv.Itoa(Decimals))
		ask(token.name, "symbol", token.address, text, token.name)
	}
	return out
}
