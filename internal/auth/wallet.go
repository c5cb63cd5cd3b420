package auth

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// ExportAge is how old the API key of who exports a wallet key may be: exporting takes a fresh sign-in.
const ExportAge = 10 * time.Minute

// OpenWallet returns the private key of the wallet of a principal, 32 bytes in memory of the caller's own, who zeroes it. It is
// for the signer of the crypto rail alone. [store.ErrNotFound] when nobody has the address.
func (a *Auth) OpenWallet(ctx context.Context, addr toll.Address) ([]byte, error) {
	p, err := store.PrincipalByAddress(ctx, a.store, addr)
	if err != nil {
		return nil, err
	}
	return a.ring.Open(p.SealedKey, a.walletAAD(addr))
}

// Wallet is what is known of a wallet beside the chain.
type Wallet struct {
	Address    toll.Address `json:"address"`
	ExportedAt *toll.Time   `json:"exportedAt"` // null: nobody but the service has the key
}

// Wallet returns the wallet of a principal, or [store.ErrNotFound].
func (a *Auth) Wallet(ctx context.Context, addr toll.Address) (Wallet, error) {
	p, err := store.PrincipalByAddress(ctx, a.store, addr)
	return Wallet{Address: addr, ExportedAt: toll.AtPtr(p.ExportedAt)}, err
}

// ExportWallet gives the private key of the caller's wallet out, once, and notes that as an event; the custody is shared from then
// on. The caller zeroes the 32 bytes. Errors: [toll.CodeForbidden] when the API key was not made in the last ten minutes,
// [toll.CodeExists] when the key was exported before.
func (a *Auth) ExportWallet(ctx context.Context, c Caller) ([]byte, error) {
	now := a.clock()
	if age := now.Sub(c.KeyCreatedAt); c.KeyCreatedAt.IsZero() || age > ExportAge {
		return nil, toll.Errorf(toll.CodeForbidden, "The key of a wallet is exported with an API key that is at most ten minutes old.").
			WithHint("Sign in again (toll login), and export with the new API key.")
	}
	key, err := a.OpenWallet(ctx, c.Address)
	if err != nil {
		return nil, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.NoteExport(ctx, tx, c.Address, now); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, store.NewEvent{
			Principal: c.Address, Type: toll.EventWalletExported, Kind: "wallet", ID: c.Address.String(), At: now,
			Data: Wallet{Address: c.Address, ExportedAt: toll.AtPtr(now)},
		})
	})
	if err == nil {
		return key, nil
	}
	clear(key)
	if errors.Is(err, store.ErrExported) {
		return nil, toll.Errorf(toll.CodeExists, "The key of this wallet was exported before, and is given out once.").
			WithHint("Who has it shares the custody of the account. Move the money to another account when it is lost.")
	}
	return nil, err
}
