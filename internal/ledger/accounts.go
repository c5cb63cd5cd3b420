package ledger

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const accountColumns = `account_id, plan_id, subscriber, balance, held, open_holds, minted, burned, expired, taken_back,
	returned, seq, commitment, next_lot_end, next_hold_end, period_end, orders, updated_at, version, hot, low_mark`

const (
	sqlAccount = `SELECT ` + accountColumns + ` FROM accounts WHERE account_id = $1`
	// SQLite has one writer, so its transaction is the lock.
	sqlAccountLock = sqlAccount + ` FOR UPDATE`

	sqlAccountMake = `INSERT INTO accounts (` + accountColumns + `)
		VALUES ($1, $2, $3, 0, 0, 0, 0, 0, 0, 0, 0, 0, $4, $5, $5, 0, 0, 0, 0, NULL, 0) ON CONFLICT (account_id) DO NOTHING`

	// sqlAccountVersion is for a change of a permission that does not go through the account.
	sqlAccountVersion = `UPDATE accounts SET version = version + 1 WHERE account_id = $1`

	sqlAccountSave = `UPDATE accounts SET balance = $2, held = $3, open_holds = $4, minted = $5, burned = $6, expired = $7,
		taken_back = $8, returned = $9, seq = $10, commitment = $11, next_lot_end = $12, next_hold_end = $13, period_end = $14,
		orders = $15, updated_at = $16, version = $17, hot = $18, low_mark = $19 WHERE account_id = $1`
	sqlAccountsSave = `UPDATE accounts a SET balance = u.balance, held = u.held, open_holds = u.open_holds, minted = u.minted,
		burned = u.burned, expired = u.expired, taken_back = u.taken_back, returned = u.returned, seq = u.seq,
		commitment = u.commitment, next_lot_end = u.next_lot_end, next_hold_end = u.next_hold_end, period_end = u.period_end,
		orders = u.orders, updated_at = u.updated_at, version = u.version, hot = u.hot, low_mark = u.low_mark
		FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],
			$17::bigint[], $18::bytea[], $19::bigint[])
		AS u(account_id, balance, held, open_holds, minted, burned, expired, taken_back, returned, seq, commitment,
			next_lot_end, next_hold_end, period_end, orders, updated_at, version, hot, low_mark)
		WHERE a.account_id = u.account_id`
)

type scanFunc = func(dest ...any) error

// into makes a reader of rows that returns what it read.
func into[T any](read func(scan scanFunc, v *T) error) func(scan scanFunc) (T, error) {
	return func(scan scanFunc) (v T, err error) {
		err = read(scan, &v)
		return v, err
	}
}

func scanAccount(scan scanFunc, a *Account) error {
	var id, commitment, hot []byte
	var subscriber string
	var updated int64
	err := scan(&id, &a.Plan, &subscriber, &a.Balance, &a.Held, &a.OpenHolds, &a.Minted, &a.Burned, &a.Expired, &a.TakenBack,
		&a.Returned, &a.Seq, &commitment, &a.nextLotEnd, &a.nextHoldEnd, &a.periodEnd, &a.Orders, &updated, &a.version, &hot,
		&a.lowMark)
	if err != nil {
		return err
	}
	copy(a.ID[:], id)
	copy(a.Commitment[:], commitment)
	a.UpdatedAt = micro(updated)
	a.hot = string(hot)
	a.Subscriber, err = toll.ParseAddress(subscriber)
	return err
}

// row returns the columns that change, in the order of sqlAccountSave.
func (a *Account) row() []any {
	return []any{
		a.ID[:], int64(a.Balance), int64(a.Held), a.OpenHolds, int64(a.Minted), int64(a.Burned), int64(a.Expired),
		int64(a.TakenBack), int64(a.Returned), a.Seq, a.Commitment[:], a.nextLotEnd, a.nextHoldEnd, a.periodEnd, a.Orders,
		a.UpdatedAt.UnixMicro(), a.version, []byte(a.hot), int64(a.lowMark),
	}
}

// makeAccount returns the statement that makes an account which does not exist.
func makeAccount(id AccountID, plan toll.PlanID, subscriber toll.Address) store.Stmt {
	return store.Stmt{SQL: sqlAccountMake, Args: []any{id[:], string(plan), subscriber.Lower(), make([]byte, 32), int64(never)}}
}
