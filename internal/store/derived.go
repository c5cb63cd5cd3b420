package store

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
)

// Sides are those who are told about an account.
type Sides struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Owner      toll.Address // of the plan, zero when there is no record of it
}

const (
	sqlSides = `SELECT a.account_id, a.plan_id, a.subscriber, COALESCE(p.owner, '') FROM accounts a
		LEFT JOIN plans p ON p.plan_id = a.plan_id WHERE a.account_id = $1`
	sqlSidesOf = `SELECT a.account_id, a.plan_id, a.subscriber, COALESCE(p.owner, '') FROM accounts a
		LEFT JOIN plans p ON p.plan_id = a.plan_id WHERE a.account_id = ANY($1)`
)

type engined interface {
	Querier
	Engine() Engine
}

// SidesOf returns the sides of accounts that exist.
func SidesOf(ctx context.Context, tx engined, accounts [][16]byte) (map[[16]byte]Sides, error) {
	out := make(map[[16]byte]Sides, len(accounts))
	if len(accounts) == 0 {
		return out, nil
	}
	read := func(scan func(dest ...any) error) (s Sides, err error) {
		var id []byte
		var plan, subscriber, owner string
		if err = scan(&id, &plan, &subscriber, &owner); err != nil {
			return s, err
		}
		s.Plan = toll.PlanID(plan)
		if s.Subscriber, err = toll.ParseAddress(subscriber); err == nil && owner != "" {
			s.Owner, err = toll.ParseAddress(owner)
		}
		out[[16]byte(id)] = s
		return s, err
	}
	if tx.Engine() == Postgres {
		_, err := All(ctx, tx, read, sqlSidesOf, Mapped(accounts, func(id [16]byte) []byte { return id[:] }))
		return out, err
	}
	for i := range accounts {
		if _, err := read(tx.QueryRow(ctx, sqlSides, accounts[i][:]).Scan); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return out, nil
}

// Payer is what a permission says about who pays under it.
type Payer struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Network    string
}

// PermissionKey names a permission.
type PermissionKey struct {
	Account [16]byte
	Hash    toll.Hash
}

// A page of settlements is of several accounts, and the hash of a permission is unique by itself.
const sqlPayers = `SELECT account_id, permission_hash, plan_id, subscriber, network FROM permissions WHERE permission_hash IN `

// Payers returns the payers of permissions that exist, for at most 512 with one statement. It names no account: on a sharded store it
// asks every shard.
func Payers(ctx context.Context, q Querier, permissions []PermissionKey) (map[PermissionKey]Payer, error) {
	out := make(map[PermissionKey]Payer, len(permissions))
	for args := range lists(Mapped(permissions, func(k PermissionKey) []byte { return k.Hash[:] })) {
		if _, err := All(ctx, q, func(scan func(dest ...any) error) (p Payer, err error) {
			var account, hash []byte
			var subscriber string
			if err = scan(&account, &hash, &p.Plan, &subscriber, &p.Network); err != nil {
				return p, err
			}
			p.Subscriber, err = toll.ParseAddress(subscriber)
			out[PermissionKey{[16]byte(account), toll.Hash(hash)}] = p
			return p, err
		}, sqlPayers+tuples(1, len(args)), args...); err != nil {
			return nil, err
		}
	}
	return out, nil
}
