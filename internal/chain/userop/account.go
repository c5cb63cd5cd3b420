package userop

import (
	"bytes"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// AccountCode is the code of an account that has delegated to ours: 0xef0100 and the address (EIP-7702).
func AccountCode() []byte { return append([]byte{0xef, 0x01, 0x00}, contracts.AccountCode[:]...) }

// IsAccountCode reports whether the code of an account is [AccountCode].
func IsAccountCode(code []byte) bool { return bytes.Equal(code, AccountCode()) }

// AuthorizationHash is what an account signs to let its code be the one at an address (EIP-7702, "Set code transaction"):
// nonce is the account's own at that time.
func AuthorizationHash(chainID *big.Int, code common.Address, nonce uint64) common.Hash {
	list, err := rlp.EncodeToBytes([]any{chainID, code, nonce})
	if err != nil {
		panic(err) // a negative chain id
	}
	return crypto.Keccak256Hash([]byte{0x05}, list)
}
