package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Principal owns an address. SealedKey is the private key of the address, sealed.
type Principal struct {
	Address   toll.Address `db:"address"`
	Name      string       `db:"name,null"` // unique; "" for none
	SealedKey []byte       `db:"sealed_key"`
	CreatedAt time.Time    `db:"created_at"`
	Operator  bool         `db:"is_operator,null"` // see [MakeOperator]
	// ExportedAt is when the key was given to the owner, who shares the custody since then; zero: never.
	ExportedAt time.Time `db:"exported_at,null"`
}

var principals = newRecord[Principal]("principals")

// MakeOperator gives a principal the rights beyond its own records, such as moving the clock of a sandbox. [ErrNotFound]
// when there is no such principal.
func MakeOperator(ctx context.Context, tx *Tx, a toll.Address) error {
	return found(tx.Exec(ctx, "UPDATE principals SET is_operator = TRUE WHERE address = $1", a.Lower()))
}

// InsertPrincipal adds a principal. The error is [IsUnique] when the address or the name is taken.
func InsertPrincipal(ctx context.Context, tx *Tx, p Principal) error {
	return principals.insert(ctx, tx, p)
}

// PrincipalByAddress returns the owner of an address, or [ErrNotFound].
func PrincipalByAddress(ctx context.Context, q Querier, a toll.Address) (Principal, error) {
	return principals.one(ctx, q, "WHERE address = $1", a.Lower())
}

// PrincipalByName returns the principal with this name, or [ErrNotFound].
func PrincipalByName(ctx context.Context, q Querier, name string) (Principal, error) {
	return principals.one(ctx, q, "WHERE name = $1", name)
}
