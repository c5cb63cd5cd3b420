// Package devchain is an EVM chain inside the program, for sandboxes and tests: it needs no installation and no network, and a
// transaction is usually in a block at once.
//
// It uses go-ethereum's chain, pool, miner and EVM on LevelDB, and implements the JSON-RPC methods that the rail and the tests call, and the
// common ones of viem and ethers. Decision 20 gives the reasons. The chain has development tokens, which every account can mint, at the addresses of
// the tokens of the public networks, and the contracts of the rail at the addresses and with the code of the public networks.
//
// The build tag nodevchain leaves the chain out; [Start] then returns [ErrAbsent].
package devchain
