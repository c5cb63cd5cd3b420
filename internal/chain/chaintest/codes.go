package chaintest

import (
	"encoding/hex"

	"github.com/ethereum/go-ethereum/common"
)

// Code of accounts that are asked about signatures (ERC-1271), as hexadecimal text written by hand. It knows no selectors: every
// call is taken for isValidSignature(bytes32,bytes).
const (
	// CodeAgrees takes every signature.
	CodeAgrees = "63" + answer + "60e01b5f5260205ff3"
	// CodeAgreesWhenTried takes every signature in a trial, where gas has no price, and none in a transaction.
	CodeAgreesWhenTried = "3a15" + "63" + answer + "0260e01b5f5260205ff3"
	// CodeAgreesUntilCalled takes every signature until it is called without data.
	CodeAgreesUntilCalled = "3660095760015f55005b" + "5f541563" + answer + "0260e01b5f5260205ff3"
	CodeRevertsAgreeing   = "63" + answer + "60e01b5f5260205ffd"
	// CodeBurns uses up all gas, and CodeHalts ends in no way that code should.
	CodeBurns = "5b5f56"
	CodeHalts = "fe"
	// CodeFloods answers a MB, CodeTalks 100 KB, CodeMumbles the four bytes alone, each with the right ones first.
	CodeFloods  = "63" + answer + "60e01b5f52621000005ff3"
	CodeTalks   = "63" + answer + "60e01b5f52620190005ff3"
	CodeMumbles = "63" + answer + "60e01b5f5260045ff3"
	// CodeSpills has something behind the four bytes, and CodeSaysTrue answers true.
	CodeSpills   = "63" + answer + "60e01b6001175f5260205ff3"
	CodeSaysTrue = "60015f5260205ff3"
	// CodeAgreesPoor takes every signature as long as it has little gas, and uses up all that it has otherwise.
	CodeAgreesPoor = "63" + answer + "60e01b5f52" + "5a6207a12010601757" + "60205ff3" + "5b601756"
	// CodeAgreesLoud takes every signature, and answers half a MB when it has the gas for that: who copies that has none left.
	CodeAgreesLoud = "63" + answer + "60e01b5f52" + "5a6207a12010601757" + "60205ff3" + "5b620780005ff3"
	// CodeAgreesLate takes every signature, after more than two million gas.
	CodeAgreesLate = "620186a0" + "5b6001900380600457" + "63" + answer + "60e01b5f5260205ff3"
)

const answer = "1626ba7e"

// CodeOfOwner takes what the key of an owner has signed, 65 bytes, behind any one byte.
func CodeOfOwner(owner common.Address) string {
	const ecrecover = "6004355f52" + "60a53560f81c602052" + "606535604052" + "608535606052" + "60205f60805f60015afa50"
	return ecrecover + "5f5173" + hex.EncodeToString(owner[:]) + "14" + "63" + answer + "0260e01b5f5260205ff3"
}
