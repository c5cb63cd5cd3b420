package store

import (
	"context"
	"errors"
)

// Settings that are sealed.
const (
	SettingMACKey     = "mac_key"
	SettingCardDouble = "card_double"
)

// SealedColumn is a column whose values are envelopes of the master key.
type SealedColumn struct {
	Name       string // table.column
	table, set string
	key        string // column that identifies a row; text, or bytes
	more       string // what else the envelope is bound to, '' for nothing
	bytes      bool   // the key is bytes
	where      string // rows that count, "" for all
}

var SealedColumns = []SealedColumn{
	{Name: "settings.value", table: "settings", set: "value", key: "name", more: "''",
		where: " AND name IN ('" + SettingMACKey + "', '" + SettingCardDouble + "')"},
	{Name: "signing_keys.sealed", table: "signing_keys", set: "sealed", key: "kid", more: "COALESCE(purpose, '')"},
	{Name: "principals.sealed_key", table: "principals", set: "sealed_key", key: "address", more: "''"},
	{Name: "agents.sealed_credentials", table: "agents", set: "sealed_credentials", key: "agent_id", more: "''"},
	{Name: "webhooks.secret", table: "webhooks", set: "secret", key: "webhook_id", more: "''"},
	{Name: "webhooks.old_secret", table: "webhooks", set: "old_secret", key: "webhook_id", more: "''"},
	{Name: "chain_keys.sealed_key", table: "chain_keys", set: "sealed_key", key: "address", more: "role"},
	{Name: "idempotency_keys.answer", table: "idempotency_keys", set: "answer", key: "scope", more: "''", bytes: true},
	{Name: "browser_answers.answer", table: "browser_answers", set: "answer", key: "form", more: "''", bytes: true},
}

// SealedValue is one envelope.
type SealedValue struct {
	Key    string // text, or the bytes of the key
	More   string
	Sealed []byte
}

// SealedAfter returns the envelopes of a column behind a key, in the order of their keys, at most limit.
func SealedAfter(ctx context.Context, q Querier, c SealedColumn, after string, limit int64) ([]SealedValue, error) {
	return All(ctx, q, func(scan func(dest ...any) error) (v SealedValue, err error) {
		if !c.bytes {
			err = scan(&v.Key, &v.More, &v.Sealed)
			return v, err
		}
		var key []byte
		err = scan(&key, &v.More, &v.Sealed)
		v.Key = string(key)
		return v, err
	}, "SELECT "+c.key+", "+c.more+", "+c.set+" FROM "+c.table+" WHERE "+c.key+" > $1 AND LENGTH("+c.set+") > 0"+c.where+
		" ORDER BY "+c.key+" LIMIT $2", c.arg(after), limit)
}

// PutSealed replaces an envelope by another one of the same secret. It changes nothing if the secret has changed meanwhile.
func PutSealed(ctx context.Context, tx *Tx, c SealedColumn, v SealedValue, sealed []byte) error {
	err := found(tx.Exec(ctx, "UPDATE "+c.table+" SET "+c.set+" = $3 WHERE "+c.key+" = $1 AND "+c.set+" = $2", c.arg(v.Key), v.Sealed, sealed))
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return err
}

func (c *SealedColumn) arg(key string) any {
	if c.bytes {
		return []byte(key)
	}
	return key
}
