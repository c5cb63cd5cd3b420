package rails

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

// keys open the keys of the accounts that the service holds: its own, and the wallets of principals. Only the signer has them.
type chainKeys struct {
	deps     *Deps
	service  common.Address
	relayers []common.Address
	mirror   common.Address // zero: nothing is mirrored
	own      map[common.Address]store.ChainKey
}

var _ signer.Keys = (*chainKeys)(nil)

// openKeys returns the accounts of the service, which are made at the first start, once by however many processes.
func openKeys(ctx context.Context, deps *Deps, relayers int, mirrored bool) (*chainKeys, error) {
	k := &chainKeys{deps: deps, own: map[common.Address]store.ChainKey{}}
	stored, err := store.ChainKeys(ctx, deps.Store)
	if err != nil {
		return nil, err
	}
	account := func(role string, number int) (common.Address, error) {
		row, err := deps.chainKey(ctx, stored, role, int64(number))
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

// chainKey returns the account of a role that is stored, or makes it.
func (d *Deps) chainKey(ctx context.Context, stored []store.ChainKey, role string, number int64) (store.ChainKey, error) {
	if i := slices.IndexFunc(stored, func(k store.ChainKey) bool { return k.Role == role && k.Number == number }); i >= 0 {
		return stored[i], nil
	}
	plain, address, err := auth.NewWalletKey()
	if err != nil {
		return store.ChainKey{}, err
	}
	defer clear(plain)
	row := store.ChainKey{Role: role, Number: number, Address: address, CreatedAt: d.Clock()}
	if row.Sealed, err = d.Ring.Seal(plain, d.chainKeyAAD(role, row.Address)); err != nil {
		return store.ChainKey{}, err
	}
	var kept store.ChainKey
	err = d.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		kept, err = store.PutChainKeyIfAbsent(ctx, tx, row)
		return err
	})
	return kept, err
}

// chainKeyAAD binds the key of an account of the service to its environment, role and address, so that it opens nowhere else.
func (d *Deps) chainKeyAAD(role string, address toll.Address) []byte {
	return ChainKeyOf(d.Auth.Environment(), role, address.Lower())
}

// ChainKeyOf is what the sealed key of an account of the service is bound to.
func ChainKeyOf(environment toll.Environment, role, address string) []byte {
	return []byte("toll/chain-key/" + string(environment) + "/" + role + "/" + address)
}

// Open is that of [signer.Keys]. The caller zeroes the key.
func (k *chainKeys) Open(ctx context.Context, account common.Address) ([]byte, error) {
	if row, ok := k.own[account]; ok {
		return k.deps.openChainKey(row)
	}
	key, err := k.deps.Auth.OpenWallet(ctx, toll.Address(account))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, auth.ErrExternal) {
		return nil, signer.ErrNoKey
	}
	return key, err
}

func (d *Deps) openChainKey(row store.ChainKey) ([]byte, error) {
	key, err := d.Ring.Open(row.Sealed, d.chainKeyAAD(row.Role, row.Address))
	if errors.Is(err, seal.ErrOtherKey) {
		return nil, fmt.Errorf("the key of the %s account: %w", row.Role, err)
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
