package auth

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// OpenWallet returns the private key of the wallet of a principal, 32 bytes in memory of the caller's own, who zeroes it. It is
// for the signer of the crypto rail alone. [store.ErrNotFound] when nobody has the address, [ErrExternal] for a wallet of its owner.
func (a *Auth) OpenWallet(ctx context.Context, addr toll.Address) ([]byte, error) {
	p, err := store.PrincipalByAddress(ctx, a.store, addr)
	if err != nil {
		return nil, err
	}
	if len(p.SealedKey) == 0 {
		return nil, ErrExternal
	}
	return a.ring.Open(p.SealedKey, a.aad("wallet", addr.Lower()))
}

// ErrExternal says that the workspace is a wallet whose key the service never had.
var ErrExternal = toll.Errorf(toll.CodeForbidden, "The wallet of this workspace is external: "+
	"the service does not have the private key, so it cannot sign with the key or export it.").
	WithHint("Pay with an x402 payment or a delegation that the wallet signs.")

// Wallet is what is known of a wallet beside the chain.
type Wallet struct {
	Address    toll.Address `json:"address"`
	ExportedAt *toll.Time   `json:"exportedAt"` // null: nobody but the service has the key
	External   bool         `json:"-"`          // the service never had the key
}

// Wallet returns the wallet of a principal, or [store.ErrNotFound].
func (a *Auth) Wallet(ctx context.Context, addr toll.Address) (Wallet, error) {
	p, err := store.PrincipalByAddress(ctx, a.store, addr)
	return Wallet{Address: addr, ExportedAt: toll.AtPtr(p.ExportedAt), External: err == nil && len(p.SealedKey) == 0}, err
}

// ExportWallet is [Auth.ExportLocalWallet] for a caller with the right export: a person, or an API key that was made on the database
// itself. Errors: [toll.CodeRightMissing], [toll.CodeForbidden] for a key that was made otherwise.
func (a *Auth) ExportWallet(ctx context.Context, c Caller) ([]byte, error) {
	if !c.Rights.Has(toll.RightExport) {
		return nil, MissingRight(toll.RightExport)
	}
	if c.MadeBy != toll.MadeLocally && !c.KeyID.IsZero() {
		return nil, toll.Errorf(toll.CodeForbidden, "Only an owner, or an API key created by the operator, can export the key of a wallet.").
			WithHint("Sign in as an owner, or run toll wallet export --local.")
	}
	return a.export(ctx, c.Address, func(tx *store.Tx) error { return a.Lock(ctx, tx, c, toll.RightExport) })
}

// ExportLocalWallet gives the private key of a wallet out, once, and notes that as an event; the custody is shared from then on.
// The caller zeroes the 32 bytes. Errors: [toll.CodeExists] when the key was exported before, [store.ErrNotFound].
func (a *Auth) ExportLocalWallet(ctx context.Context, addr toll.Address) ([]byte, error) {
	return a.export(ctx, addr, func(*store.Tx) error { return nil })
}

// export is [Auth.ExportLocalWallet] if the caller still may.
func (a *Auth) export(ctx context.Context, addr toll.Address, may func(*store.Tx) error) ([]byte, error) {
	now := a.clock()
	key, err := a.OpenWallet(ctx, addr)
	if err != nil {
		return nil, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		if err := may(tx); err != nil {
			return err
		}
		if err := store.NoteExport(ctx, tx, addr, now); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, store.NewEvent{
			Principal: addr, Type: toll.EventWalletExported, Kind: "wallet", ID: addr.String(), At: now,
			Data: Wallet{Address: addr, ExportedAt: toll.AtPtr(now)},
		})
	})
	if err == nil {
		return key, nil
	}
	clear(key)
	if errors.Is(err, store.ErrExported) {
		return nil, toll.Errorf(toll.CodeExists, "The key of this wallet was already exported. It can be exported only once.").
			WithHint("The holder of the key shares custody of the wallet. If the key is lost, move the money to another workspace.")
	}
	return nil, err
}
