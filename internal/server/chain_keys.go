package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// Roles of the accounts of the service.
const (
	roleService = "service" // delegate of every delegation; sends no transactions
	roleRelayer = "relayer" // sends transactions and pays their gas
	roleMirror  = "mirror"  // operator of the mirror of burns
)

// chainKeys open the keys of the accounts that the service holds: its own, and the wallets of principals. Only the signer has
// them.
type chainKeys struct {
	base     *foundation
	service  common.Address
	relayers []common.Address
	mirror   common.Address // zero: nothing is mirrored
	own      map[common.Address]store.ChainKey
}

var _ signer.Keys = (*chainKeys)(nil)

// openChainKeys returns the accounts of the service, which are made at the first start, once by however many processes.
func openChainKeys(ctx context.Context, base *foundation, relayers int, mirrored bool) (*chainKeys, error) {
	k := &chainKeys{base: base, own: map[common.Address]store.ChainKey{}}
	stored, err := store.ChainKeys(ctx, base.store)
	if err != nil {
		return nil, err
	}
	account := func(role string, number int) (common.Address, error) {
		row, err := base.chainKey(ctx, stored, role, int64(number))
		if err != nil {
			return common.Address{}, err
		}
		address := common.Address(row.Address)
		k.own[address] = row
		return address, nil
	}
	if k.service, err = account(roleService, 0); err != nil {
		return nil, err
	}
	for i := range max(relayers, 1) {
		address, err := account(roleRelayer, i)
		if err != nil {
			return nil, err
		}
		k.relayers = append(k.relayers, address)
	}
	if mirrored {
		if k.mirror, err = account(roleMirror, 0); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// serviceAccount returns the account that acts for everybody on the chain, zero when there is no chain.
func (n *network) serviceAccount(ctx context.Context) (toll.Address, error) {
	if n == nil || n.source == sourceNone {
		return toll.Address{}, nil
	}
	stored, err := store.ChainKeys(ctx, n.base.store)
	if err != nil {
		return toll.Address{}, err
	}
	row, err := n.base.chainKey(ctx, stored, roleService, 0)
	return row.Address, err
}

// chainKey returns the account of a role that is stored, or makes it.
func (f *foundation) chainKey(ctx context.Context, stored []store.ChainKey, role string, number int64) (store.ChainKey, error) {
	if i := slices.IndexFunc(stored, func(k store.ChainKey) bool { return k.Role == role && k.Number == number }); i >= 0 {
		return stored[i], nil
	}
	plain, address, err := auth.NewWalletKey()
	if err != nil {
		return store.ChainKey{}, err
	}
	defer clear(plain)
	row := store.ChainKey{Role: role, Number: number, Address: address, CreatedAt: f.clock.now()}
	if row.Sealed, err = f.ring.Seal(plain, f.chainKeyAAD(role, row.Address)); err != nil {
		return store.ChainKey{}, err
	}
	var kept store.ChainKey
	err = f.store.Tx(ctx, func(tx *store.Tx) (err error) {
		kept, err = store.PutChainKeyIfAbsent(ctx, tx, row)
		return err
	})
	return kept, err
}

// chainKeyAAD binds the key of an account of the service to its environment, role and address, so that it opens nowhere else.
func (f *foundation) chainKeyAAD(role string, address toll.Address) []byte {
	return []byte("toll/chain-key/" + string(f.auth.Environment()) + "/" + role + "/" + address.Lower())
}

// Open is that of [signer.Keys]. The caller zeroes the key.
func (k *chainKeys) Open(ctx context.Context, account common.Address) ([]byte, error) {
	if row, ok := k.own[account]; ok {
		return k.base.openChainKey(row)
	}
	key, err := k.base.auth.OpenWallet(ctx, toll.Address(account))
	if errors.Is(err, store.ErrNotFound) {
		return nil, signer.ErrNoKey
	}
	return key, err
}

func (f *foundation) openChainKey(row store.ChainKey) ([]byte, error) {
	key, err := f.ring.Open(row.Sealed, f.chainKeyAAD(row.Role, row.Address))
	if errors.Is(err, seal.ErrOtherKey) {
		return nil, fmt.Errorf("the %s account: %w", row.Role, err)
	}
	return key, err
}

// senders are the accounts that pay gas.
func (k *chainKeys) senders() []common.Address {
	if k.mirror == (common.Address{}) {
		return k.relayers
	}
	return append(slices.Clone(k.relayers), k.mirror)
}
