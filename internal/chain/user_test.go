package chain_test

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/rail"
)

// user is an account whose key the service does not have.
type user struct {
	w       *world
	keys    chaintest.Keys
	account common.Address
	owner   common.Address // who has an account of the service
}

func (w *world) userHeld(money ...any) *user {
	w.Helper()
	u := &user{w: w, owner: w.account()}
	u.account = u.keys.New(w)
	w.give(u.account, money...)
	return u
}

// delegation is a signed limit in cents on USDC, with an authorization.
func (u *user) delegation(cents int64) *rail.Delegation {
	d := u.w.delegation(u.owner, cents)
	d.OwnerAccount = toll.Address(u.account)
	u.sign(d)
	return d
}

func (u *user) sign(d *rail.Delegation) {
	u.w.Helper()
	made := u.w.onChain(d)
	d.Signature = u.keys.Sign(u.w, u.account, made.SigningHash(u.w.chainID()))
	d.Authorization = u.authorization(u.w.chainID(), contracts.AccountCode, u.w.nonce(u.account))
}

// authorization is one as wallets give it.
func (u *user) authorization(chainID *big.Int, code common.Address, nonce uint64) []byte {
	u.w.Helper()
	auth := types.SetCodeAuthorization{Address: code, Nonce: nonce}
	auth.ChainID.SetFromBig(chainID)
	s := u.keys.Sign(u.w, u.account, auth.SigHash())
	return fmt.Appendf(nil, `{"chainId":%s,"address":%q,"nonce":%d,"yParity":%d,"r":"0x%x","s":"0x%x"}`, chainID, code, nonce, s[64]-27, s[:32], s[32:64])
}
