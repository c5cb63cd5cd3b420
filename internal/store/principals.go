package store

import (
	"cmp"
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Principal owns an address. SealedKey is the private key of the address, sealed; empty for a wallet whose key the service never had.
type Principal struct {
	Address   toll.Address `db:"address"`
	Name      string       `db:"name,null"`  // by which operators look it up, unique; "" for none
	Title     string       `db:"title,null"` // what its members call it; "" for nothing
	SealedKey []byte       `db:"sealed_key,empty"`
	CreatedAt time.Time    `db:"created_at"`
	Operator  bool         `db:"is_operator,null"` // see [MakeOperator]
	// ExportedAt is when the key was given to the owner, who shares the custody since then; zero: never.
	ExportedAt time.Time `db:"exported_at,null"`
	// SuspendedAt is since when the operator has the workspace sell nothing; zero: it sells.
	SuspendedAt time.Time `db:"suspended_at,null"`
}

// Shown is what people read of a principal in place of its address; "" for nothing.
func (p Principal) Shown() string { return cmp.Or(p.Title, p.Name) }

var (
	principals      = newRecord[Principal]("principals")
	InsertPrincipal = principals.insert // [IsUnique] when the address or the name is taken
	// SuspendPrincipal suspends a workspace since a moment; zero resumes it.
	SuspendPrincipal   = runs2[toll.Address, time.Time](found, "UPDATE principals SET suspended_at = $2 WHERE address = $1")
	PrincipalByAddress = by[toll.Address](principals, "address = $1")
	PrincipalByName    = by[string](principals, "name = $1")
	// SetTitle changes what the members of a principal call it; "" for nothing.
	SetTitle = runs2[toll.Address, string](found, "UPDATE principals SET title = NULLIF($2, '') WHERE address = $1")
	// MakeOperator gives a principal the rights beyond its own records, such as moving the clock of a sandbox. [ErrNotFound]
	// when there is no such principal.
	MakeOperator = runs[toll.Address](found, "UPDATE principals SET is_operator = TRUE WHERE address = $1")
)

// PrincipalList lists all principals, for the operators of the service. Their number is -1 where one part does not have them all:
// to count them would read each.
func PrincipalList(ctx context.Context, q Querier, p Page) (List[Principal], error) {
	return principals.list(ctx, q, Listing{ID: "address", Sorts: map[Sort]string{SortCreated: "created_at"}, Count: "SELECT -1"}, p)
}

// LockPrincipal keeps a principal from being changed until the transaction ends. [ErrNotFound] when there is none.
func LockPrincipal(ctx context.Context, tx *Tx, a toll.Address) error {
	_, err := principals.one(ctx, tx, "WHERE address = $1"+tx.ForUpdate(), a.Lower())
	return err
}
