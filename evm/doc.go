// Package evm signs what wallets of an EVM chain sign off the chain, and finds out who signed it: authorizations to transfer a
// token (EIP-3009, as EIP-712 typed data), and texts (EIP-191). It reads no chain and keeps nothing.
//
// Signatures are 65 bytes: r, s and v, each number big-endian, v 27 or 28, s in the lower half of the order of the curve.
package evm
