package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// SignInCode is what is kept of a one-time code: not the code, but its SHA-256.
type SignInCode struct {
	Hash      []byte
	Address   toll.Address // who signed in
	Challenge string       // S256 code challenge of the program
	Redirect  string       // where the code was sent
	ExpiresAt time.Time
}

// InsertSignInCode adds a code, and removes those that ended before this moment.
func InsertSignInCode(ctx context.Context, tx *Tx, c SignInCode, now time.Time) error {
	if _, err := tx.Exec(ctx, "DELETE FROM sign_in_codes WHERE expires_at <= $1", Micros(now)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO sign_in_codes (hash, address, challenge, redirect, expires_at) VALUES ($1, $2, $3, $4, $5)",
		blob(c.Hash), c.Address.Lower(), c.Challenge, c.Redirect, Micros(c.ExpiresAt))
	return err
}

// TakeSignInCode removes a code and returns it, ended ones too; [ErrNotFound] when there is none: of several callers one
// gets it.
func TakeSignInCode(ctx context.Context, tx *Tx, hash []byte) (SignInCode, error) {
	c := SignInCode{Hash: hash}
	var address string
	var expires int64
	err := tx.QueryRow(ctx, "DELETE FROM sign_in_codes WHERE hash = $1 RETURNING address, challenge, redirect, expires_at", blob(hash)).
		Scan(&address, &c.Challenge, &c.Redirect, &expires)
	if err != nil {
		return SignInCode{}, err
	}
	c.ExpiresAt = FromMicros(expires)
	c.Address, err = toll.ParseAddress(address)
	return c, err
}
