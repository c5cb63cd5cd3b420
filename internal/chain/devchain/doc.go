// Package devchain is an EVM chain inside the program, for sandboxes and tests: nothing has to be installed, nothing is reached
// over a network, and a block exists as soon as there is something to put in it.
//
// It is a go-ethereum node without peers. Decision 20 says which parts of it are used and why its storage is set as it is. The
// chain holds development tokens at the addresses that the public networks have theirs at, with a mint that is open to
// everybody, and the contracts of the rail at the addresses and with the code of the public networks.
//
// The build tag nodevchain leaves the node out; [Start] then returns [ErrAbsent].
package devchain
