package userop

import (
	"bytes"
	"errors"
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

var errSignature = errors.New("userop: not a signature of 65 bytes with v 27 or 28 and low s")

// Recover returns the address whose key made a signature over a hash, as the contracts recover it: r, s, v with v 27 or 28,
// and s in the lower half.
func Recover(hash common.Hash, signature []byte) (common.Address, error) {
	if len(signature) != 65 {
		return common.Address{}, errSignature
	}
	r, s, v := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64]), signature[64]
	if v != 27 && v != 28 || !crypto.ValidateSignatureValues(v-27, r, s, true) {
		return common.Address{}, errSignature
	}
	compact := bytes.Clone(signature)
	compact[64] -= 27
	public, err := crypto.SigToPub(hash[:], compact)
	if err != nil {
		return common.Address{}, errSignature
	}
	return crypto.PubkeyToAddress(*public), nil
}
