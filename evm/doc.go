// Package evm signs and recovers off-chain signatures of EVM wallets: token transfer authorizations (EIP-3009, as EIP-712
// typed data) and texts (EIP-191). It needs no chain connection and stores no data.
//
// Signatures are 65 bytes: r, s and v, each number big-endian, v 27 or 28, s in the lower half of the order of the curve.
package evm
