package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Principal owns an address. SealedKey is the private key of the address, sealed.
type Principal struct {
	Address   toll.Address
	Name      string // unique; "" for none
	SealedKey []byte
	CreatedAt time.Time
	Operator  bool // see [MakeOperator]
	// ExportedAt is when the key was given to the owner, who shares the custody since then; zero: never.
	ExportedAt time.Time
}

// MakeOperator gives a principal the rights beyond its own records, such as moving the clock of a sandbox. [ErrNotFound]
// when there is no such principal.
func MakeOperator(ctx context.Context, tx *Tx, a toll.Address) error {
	n, err := tx.Exec(ctx, "UPDATE principals SET is_operator = TRUE WHERE address = $1", a.Lower())
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// InsertPrincipal adds a principal. The error is [IsUnique] when the address or the name is taken.
func InsertPrincipal(ctx context.Context, tx *Tx, p Principal) error {
	_, err := tx.Exec(ctx, "INSERT INTO principals (address, name, sealed_key, created_at) VALUES ($1, $2, $3, $4)",
		p.Address.Lower(), optional(p.Name), blob(p.SealedKey), Micros(p.CreatedAt))
	return err
}

const principalColumns = "SELECT address, name, sealed_key, created_at, COALESCE(is_operator, FALSE), COALESCE(exported_at, 0) FROM principals WHERE "

// PrincipalByAddress returns the owner of an address, or [ErrNotFound].
func PrincipalByAddress(ctx context.Context, q Querier, a toll.Address) (Principal, error) {
	return scanPrincipal(q.QueryRow(ctx, principalColumns+"address = $1", a.Lower()))
}

// PrincipalByName returns the principal with this name, or [ErrNotFound].
func PrincipalByName(ctx context.Context, q Querier, name string) (Principal, error) {
	return scanPrincipal(q.QueryRow(ctx, principalColumns+"name = $1", name))
}

func scanPrincipal(row *Row) (p Principal, err error) {
	var address string
	var name *string
	var created, exported int64
	if err := row.Scan(&address, &name, &p.SealedKey, &created, &p.Operator, &exported); err != nil {
		return Principal{}, err
	}
	if name != nil {
		p.Name = *name
	}
	p.CreatedAt, p.ExportedAt = FromMicros(created), FromMicros(exported)
	p.Address, err = toll.ParseAddress(address)
	return p, err
}
