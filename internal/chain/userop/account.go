package userop

import (
	"bytes"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// AccountCode is the code of an account that has delegated to ours: 0xef0100 and the address (EIP-7702).
func AccountCode() []byte { return append([]byte{0xef, 0x01, 0x00}, contracts.AccountCode[:]...) }

func IsAccountCode(code []byte) bool { return bytes.Equal(code, AccountCode()) }
